package graspadapter_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore/slicestore"
	"fiatjaf.com/nostr/khatru"
	"fiatjaf.com/nostr/khatru/grasp"
	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	graspadapter "github.com/graspsync/graspsync/adapter/nostrlib/grasp"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A client announces a repository, publishes its state and pushes. Then both events are served. A
// server that must survive a restart uses another backend and state.Open.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	dir, err := os.MkdirTemp("", "grasp")
	check(err)
	defer os.RemoveAll(dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	address := listener.Addr().String()
	identity, err := nip34.ParseIdentity(address)
	check(err)
	db := &slicestore.SliceStore{}
	check(db.Init())

	relay := khatru.NewRelay()
	gs := grasp.New(relay, filepath.Join(dir, "served"))
	server, err := graspadapter.New(ctx, gs, db, identity, graspadapter.Config{State: state.NewMemory()})
	check(err)
	defer server.Close()
	front := &http.Server{Handler: relay, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	defer front.Close()
	go front.Serve(listener)
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()

	git := func(args ...string) string {
		args = append([]string{"-C", dir, "-c", "user.name=alice", "-c", "user.email=alice@example.com"}, args...)
		out, err := exec.CommandContext(ctx, "git", args...).CombinedOutput()
		if err != nil {
			fmt.Println(args, err, string(out))
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "main")
	git("commit", "-q", "--allow-empty", "-m", "first")
	served := func() (n int) {
		for range relay.QueryStored(ctx, nostr.Filter{}) {
			n++
		}
		return n
	}
	alice := relaytest.NewKey("alice")
	for _, e := range []*gonostr.Event{
		alice.Hosted(gonostr.Now(), "repo", "ws://"+address),
		alice.State(gonostr.Now(), "repo", map[string]string{"refs/heads/main": git("rev-parse", "main")}, "main"),
	} {
		parsed, err := graspsync.ParseEvent(e)
		check(err)
		event, err := nostrlib.ToEvent(parsed)
		check(err)
		_, err = relay.AddEvent(ctx, event) // as a client does
		check(err)
	}
	fmt.Println(served())
	git("push", "-q", "http://"+address+"/"+alice.Npub()+"/repo.git", "main")
	fmt.Println(served())
	cancel()
	fmt.Println(<-ended)
	// Output:
	// 0
	// 2
	// context canceled
}
