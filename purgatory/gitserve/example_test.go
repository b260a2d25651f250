package gitserve_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// mirror is the authority of a server without pushes. A server with a Purgatory uses Authority of
// adapter/purgatory.
type mirror struct{}

func (mirror) AuthorizedState(context.Context, graspsync.RepoRef) (*nip34.State, error) {
	return nil, nil
}

func (mirror) Tip(context.Context, graspsync.RepoRef, graspsync.EventID) (nip34.ObjectID, bool, error) {
	return nip34.ObjectID{}, false, nil
}

func (mirror) AdmitPullRefs(context.Context, graspsync.RepoRef, string, []graspsync.EventID, int64) (map[graspsync.EventID]string, error) {
	return nil, nil
}

func (mirror) Pushing(graspsync.RepoRef, []nip34.RefName)                          {}
func (mirror) AfterPush(context.Context, graspsync.RepoRef, []nip34.RefName) error { return nil }
func (mirror) Staged(graspsync.RepoRef, []graspsync.EventID)                       {}
func (mirror) WaitServed(context.Context, graspsync.RepoRef) error                 { return nil }

// Repositories are served beside other handlers of a server.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "gitserve")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	repos, err := gitserve.Open(dir, gitserve.RepositoriesConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer repos.Close()
	git, err := gitserve.New(repos, mirror{}, gitserve.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer git.Close()
	relay := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "a relay") })
	handler := git.Middleware(relay) // for an http.Server with timeouts

	alice := relaytest.NewKey("alice")
	ev, err := graspsync.ParseEvent(alice.Hosted(nostr.Now(), "repo", "grasp.example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	announced, err := nip34.ParseAnnouncement(ev)
	if err != nil {
		fmt.Println(err)
		return
	}
	clone := "/" + alice.Npub() + "/repo.git/info/refs?service=git-upload-pack"
	ask := func(path string) {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
		fmt.Println(answer.Code, answer.Header().Get("Content-Type"))
	}
	ask(clone)
	fmt.Println(repos.Create(ctx, announced.Ref, nip34.SHA1))
	ask(clone)
	ask("/")
	// Output:
	// 404 text/plain; charset=utf-8
	// <nil>
	// 200 application/x-git-upload-pack-advertisement
	// 200 text/plain; charset=utf-8
}
