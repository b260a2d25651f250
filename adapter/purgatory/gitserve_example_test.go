package purgatoryadapter_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Serve announced repositories beside other handlers. Package adapter/grasp does all of this in one
// call.
func Example_gitserve() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	dir, err := os.MkdirTemp("", "gitserve")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	identity, err := nip34.ParseIdentity("grasp.example")
	if err != nil {
		fmt.Println(err)
		return
	}
	repos, err := gitserve.Open(dir, gitserve.RepositoriesConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer repos.Close()
	dialer, err := egress.NewDialer(egress.Config{OwnNames: identity.HostPorts()})
	if err != nil {
		fmt.Println(err)
		return
	}
	fetcher, err := gitfetch.New(ctx, gitfetch.Config{Dialer: dialer})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer fetcher.Close()
	store := memstore.New()
	host := purgatoryadapter.Host{
		Store: store, Release: purgatoryadapter.Save(store), Lists: identity.Lists,
		Held: func(graspsync.Event) {}, Removed: func(graspsync.Event) {}, // for a SyncManager, of which there is none here
	}
	p, err := purgatory.Open(ctx, host.Relay(), repos, fetcher, fetcher, state.NewMemory(), purgatory.Config{Identity: identity, Observe: host.Observe})
	if err != nil {
		fmt.Println(err)
		return
	}
	authority := purgatoryadapter.Authority{Store: store, Purgatory: p}
	git, err := gitserve.New(repos, authority, gitserve.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer git.Close()
	relay := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "a relay") })
	handler := git.Before(relay) // for an http.Server with timeouts

	alice := relaytest.NewKey("alice")
	ev, err := graspsync.ParseEvent(alice.Hosted(nostr.Now(), "repo", "grasp.example"))
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
	answer, err := p.Submit(ctx, ev, graspsync.Source{Kind: graspsync.Direct})
	fmt.Println(answer.Decision == purgatory.Held, err) // it waits for a push, for which the repository is there
	ask(clone)
	ask("/")
	// Output:
	// 404 text/plain; charset=utf-8
	// true <nil>
	// 200 application/x-git-upload-pack-advertisement
	// 200 text/plain; charset=utf-8
}
