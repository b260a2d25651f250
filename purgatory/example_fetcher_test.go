package purgatory_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

// nearFirst is a GitFetcher that asks a mirror nearby before the server. It embeds the GitFetcher
// that does the rest, such as that of package gitfetch. Purgatory counts each request for the
// server.
type nearFirst struct {
	purgatory.GitFetcher
	mirror string // has https://host/path at mirror/host/path
}

// Fetch implements [purgatory.GitFetcher].
func (g nearFirst) Fetch(ctx context.Context, request purgatory.FetchRequest) error {
	near := request
	var err error
	if near.From, err = graspsync.ParseCloneURL(g.mirror + "/" + request.From.HostPort().Host + request.From.Path()); err != nil {
		return g.GitFetcher.Fetch(ctx, request) // such as a path that is too long
	}
	nearErr := g.GitFetcher.Fetch(ctx, near)
	if ctx.Err() != nil {
		return nearErr
	}
	if err = g.GitFetcher.Fetch(ctx, request); nearErr == nil {
		return nil // some of the objects arrived from the mirror
	}
	return err
}

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

	var fetcher purgatory.GitFetcher = nearFirst{fake, "https://mirror.example"}
	q, err := fake.Quarantine(ctx, dir)
	if err != nil {
		panic(err)
	}
	defer q.Discard()
	request := purgatory.FetchRequest{
		From: cloneURL("https://git.example/r.git"), Want: []nip34.ObjectID{first, second},
		Dir: dir, Quarantine: q.Folder(), Received: new(atomic.Int64),
	}
	if err := fetcher.Fetch(ctx, request); err != nil {
		panic(err)
	}
	if err := q.Promote(ctx); err != nil {
		panic(err)
	}
	for _, call := range fake.Calls() {
		fmt.Println(call.URL, len(call.Want))
	}
	fmt.Println(len(fake.Objects(repo)), "objects")
	// Output:
	// https://mirror.example/git.example/r.git 2
	// https://git.example/r.git 2
	// 2 objects
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
