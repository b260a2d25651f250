package fetchtest_test

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

// Objects are ids with needs. One server has a part of a commit, the other nothing. The commit is
// incomplete, and is not added to the repository.
func Example() {
	ctx := context.Background()
	commit, err := nip34.ParseObjectID("1111111111111111111111111111111111111111")
	if err != nil {
		fmt.Println(err)
		return
	}
	tree, err := nip34.ParseObjectID("2222222222222222222222222222222222222222")
	if err != nil {
		fmt.Println(err)
		return
	}
	half, err := graspsync.ParseCloneURL("https://half.example/repo.git")
	if err != nil {
		fmt.Println(err)
		return
	}
	none, err := graspsync.ParseCloneURL("https://none.example/repo.git")
	if err != nil {
		fmt.Println(err)
		return
	}
	fake := fetchtest.New()
	fake.Needs(commit, tree)
	fake.Tree(tree)
	fake.Serve(none, fetchtest.Server{})
	fake.Serve(half, fetchtest.Server{Objects: []nip34.ObjectID{commit}})
	repo := graspsync.RepoRef{Identifier: "repo"}
	if err := fake.Create(ctx, repo, nip34.SHA1); err != nil {
		fmt.Println(err)
		return
	}
	dir, unlock, err := fake.Lock(ctx, repo)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer unlock()

	q, err := fake.Quarantine(ctx, dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Discard()
	request := purgatory.FetchRequest{
		From: half, Want: []nip34.ObjectID{commit}, Dir: dir, Quarantine: q.Folder(), Received: new(atomic.Int64),
	}
	fmt.Println("half:", fake.Fetch(ctx, request))
	request.From = none
	err = fake.Fetch(ctx, request)
	fmt.Println("none:", errors.Is(err, purgatory.ErrNotServed))
	missing, err := q.Missing(ctx, []nip34.ObjectID{commit})
	fmt.Println(len(missing), "of 1 is missing", err)
	fmt.Println(len(fake.Calls()), "requests")
	// Output:
	// half: <nil>
	// none: true
	// 1 of 1 is missing <nil>
	// 2 requests
}
