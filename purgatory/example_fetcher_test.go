package purgatory_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

// nearFirst is a GitFetcher that asks a mirror nearby before the server. It embeds the GitFetcher
// that does the rest, such as that of package gitfetch. Its quarantines do the same. Purgatory
// counts each request for the server.
type nearFirst struct {
	purgatory.GitFetcher
	mirror string // has https://host/path at mirror/host/path
}

type nearQuarantine struct {
	purgatory.Quarantine
	mirror string
	near   *atomic.Int64 // bytes received from the mirror
}

// Quarantine implements [purgatory.GitFetcher].
func (g nearFirst) Quarantine(ctx context.Context, dir string) (purgatory.Quarantine, error) {
	q, err := g.GitFetcher.Quarantine(ctx, dir)
	if err != nil {
		return nil, err
	}
	return nearQuarantine{q, g.mirror, new(atomic.Int64)}, nil
}

// Fetch implements [purgatory.Quarantine].
func (q nearQuarantine) Fetch(ctx context.Context, from graspsync.CloneURL, ids []nip34.ObjectID) (int64, error) {
	q.near.Store(0)
	near, err := graspsync.ParseCloneURL(q.mirror + "/" + from.HostPort().Host + from.Path())
	if err != nil { // such as a path that is too long
		return q.Quarantine.Fetch(ctx, from, ids)
	}
	bytes, err := q.Quarantine.Fetch(ctx, near, ids)
	if ctx.Err() != nil {
		return bytes, err
	}
	missing, err := q.Quarantine.Missing(ctx, ids)
	if err != nil || len(missing) == 0 {
		return bytes, err
	}
	q.near.Store(bytes)
	more, err := q.Quarantine.Fetch(ctx, from, missing)
	if errors.Is(err, purgatory.ErrNotServed) && len(missing) < len(ids) {
		err = nil // some of the objects arrived from the mirror
	}
	return bytes + more, err
}

// Received implements [purgatory.Quarantine]. The embedded count starts again at 0 when the server
// is asked. Until it exceeds the bytes from the mirror, those count.
func (q nearQuarantine) Received() int64 { return max(q.near.Load(), q.Quarantine.Received()) }

// A GitFetcher around another one. The suite that it passes is in package fetchtest.
func ExampleGitFetcher() {
	ctx := context.Background()
	first, second := objectID(1), objectID(2)
	fake := fetchtest.New()
	fake.Serve(cloneURL("https://git.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{first, second}})
	fake.Serve(cloneURL("https://mirror.example/git.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{first}})
	repo := graspsync.RepoRef{Identifier: "r"}
	if err := fake.Create(ctx, repo, nip34.SHA1); err != nil {
		panic(err)
	}
	dir, unlock, err := fake.Lock(ctx, repo)
	if err != nil {
		panic(err)
	}
	defer unlock()

	var git purgatory.GitFetcher = nearFirst{fake, "https://mirror.example"}
	q, err := git.Quarantine(ctx, dir)
	if err != nil {
		panic(err)
	}
	defer q.Discard()
	if _, err := q.Fetch(ctx, cloneURL("https://git.example/r.git"), []nip34.ObjectID{first, second}); err != nil {
		panic(err)
	}
	if err := q.Promote(ctx); err != nil {
		panic(err)
	}
	for _, call := range fake.Calls() {
		fmt.Println(call.URL, len(call.Want))
	}
	fmt.Println(fake.Complete(repo, first), fake.Complete(repo, second))
	// Output:
	// https://mirror.example/git.example/r.git 2
	// https://git.example/r.git 1
	// true true
}

func cloneURL(s string) graspsync.CloneURL {
	u, err := graspsync.ParseCloneURL(s)
	if err != nil {
		panic(err)
	}
	return u
}

func objectID(n int) nip34.ObjectID {
	id, err := nip34.ParseObjectID(fmt.Sprintf("%040x", n))
	if err != nil {
		panic(err)
	}
	return id
}
