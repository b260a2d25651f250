package purgatory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

// nearFirst is a GitFetcher that asks a mirror nearby before it asks a server far away. What it
// does not change it has from the GitFetcher that it embeds, such as that of package gitfetch; its
// quarantines do the same. Purgatory takes every request for one to the server that it named.
type nearFirst struct {
	purgatory.GitFetcher
	mirror string // has https://host/path at mirror/host/path
}

type nearQuarantine struct {
	purgatory.Quarantine
	mirror string
}

// Quarantine implements [purgatory.GitFetcher].
func (g nearFirst) Quarantine(ctx context.Context, dir string) (purgatory.Quarantine, error) {
	q, err := g.GitFetcher.Quarantine(ctx, dir)
	if err != nil {
		return nil, err
	}
	return nearQuarantine{q, g.mirror}, nil
}

// Fetch implements [purgatory.Quarantine].
func (q nearQuarantine) Fetch(ctx context.Context, from graspsync.CloneURL, ids []nip34.ObjectID) (int64, error) {
	near, err := graspsync.ParseCloneURL(q.mirror + "/" + from.HostPort().Host + from.Path())
	if err != nil { // a path that is too long, say
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
	more, err := q.Quarantine.Fetch(ctx, from, missing)
	if errors.Is(err, purgatory.ErrNotServed) && len(missing) < len(ids) {
		err = nil // of what was asked for something is here
	}
	return bytes + more, err
}

// A GitFetcher around another one.
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

// A GitFetcher of one's own passes the suite.
func TestNearFirst(t *testing.T) {
	fetchtest.RunGitFetcher(t, func(t *testing.T) fetchtest.Setup {
		fake := fetchtest.New()
		s := fetchtest.Setup{
			Git: nearFirst{fake, "https://mirror.example"}, First: objectID(1), Second: objectID(2), Absent: objectID(3),
		}
		fake.Needs(s.Second, s.First)
		serve := func(name string, server fetchtest.Server) graspsync.CloneURL {
			u := cloneURL("https://" + name + "/r.git")
			fake.Serve(u, server)
			return u
		}
		s.Full = serve("full.example", fetchtest.Server{Objects: []nip34.ObjectID{s.First, s.Second}})
		s.Half = serve("half.example", fetchtest.Server{Objects: []nip34.ObjectID{s.First}})
		s.None = serve("none.example", fetchtest.Server{})
		s.Junk = serve("junk.example", fetchtest.Server{Junk: true, Bytes: 1000})
		serve("mirror.example/full.example", fetchtest.Server{Objects: []nip34.ObjectID{s.First}})
		serve("mirror.example/half.example", fetchtest.Server{Err: errors.New("down")})
		for identifier, dir := range map[string]*string{"one": &s.Dir, "two": &s.Other} {
			ref := graspsync.RepoRef{Identifier: identifier}
			require.NoError(t, fake.Create(t.Context(), ref, nip34.SHA1))
			d, unlock, err := fake.Lock(t.Context(), ref)
			require.NoError(t, err)
			unlock()
			*dir = d
		}
		return s
	})
}
