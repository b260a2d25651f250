// khatru has a data race between its subscriptions.

//go:build !race

package grasp_test

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

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A client announces a repository, publishes its state and pushes. Then both events are served.
// Until then the server explains why they are not. A server that must survive a restart uses
// another backend and state.Open.
func Example_push() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	dir, err := os.MkdirTemp("", "grasp")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	address := listener.Addr().String()
	identity, err := nip34.ParseIdentity(address)
	if err != nil {
		fmt.Println(err)
		return
	}
	db := &slicestore.SliceStore{}
	if err := db.Init(); err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	server, err := grasp.New(ctx, khatru.NewRelay(), db, identity, grasp.Config{Dir: filepath.Join(dir, "served"), State: state.NewMemory()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	front := &http.Server{Handler: server.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
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
	client, err := nostr.RelayConnect(ctx, "ws://"+address)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	alice := relaytest.NewKey("alice")
	for _, ev := range []*nostr.Event{
		alice.Hosted(nostr.Now(), "repo", "ws://"+address),
		alice.State(nostr.Now(), "repo", map[string]string{"refs/heads/main": git("rev-parse", "main")}, "main"),
	} {
		if err := client.Publish(ctx, *ev); err != nil {
			fmt.Println(err)
		}
	}
	ours := nostr.Filter{Authors: []string{alice.Hex()}}
	found, err := client.QuerySync(ctx, ours)
	fmt.Println(len(found), err)
	why, err := server.Explain(ctx, alice.Npub()+"/repo")
	fmt.Println(why.Is, err)
	git("push", "-q", "http://"+address+"/"+alice.Npub()+"/repo.git", "main")
	found, err = client.QuerySync(ctx, ours)
	fmt.Println(len(found), err)
	cancel()
	fmt.Println(<-ended)
	// Output:
	// 0 <nil>
	// held <nil>
	// 2 <nil>
	// context canceled
}
