package graspadapter_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"fiatjaf.com/nostr/eventstore/slicestore"
	"fiatjaf.com/nostr/khatru"
	"fiatjaf.com/nostr/khatru/grasp"
	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/control"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	graspadapter "github.com/graspsync/graspsync/adapter/nostrlib/grasp"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Block an author while the server runs, and remove their stored events. To keep the decision after
// a restart, use a persistent Config.State or [graspadapter.Open].
func Example_rules() {
	ctx, cancel := context.WithCancel(context.Background())
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	dir, err := os.MkdirTemp("", "grasp")
	check(err)
	defer os.RemoveAll(dir)
	identity, err := nip34.ParseIdentity("grasp.example.com")
	check(err)
	db := &slicestore.SliceStore{}
	check(db.Init())

	relay := khatru.NewRelay()
	server, err := graspadapter.New(ctx, grasp.New(relay, filepath.Join(dir, "git")), db, identity, graspadapter.Config{
		State: state.NewMemory(),
		Audit: func(e admin.Entry) { fmt.Println(e.By, e.Command, e.Outcome) }, // admin.Log writes a file
	})
	check(err)
	defer server.Close()
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(ctx) })
	defer running.Wait()
	defer cancel()
	<-server.Sync().Manager().Ready()

	mallory := relaytest.NewKey("mallory")
	parsed := func(e *gonostr.Event) graspsync.Event {
		event, err := graspsync.ParseEvent(e)
		check(err)
		return event
	}
	_, err = server.Sync().Store().Save(ctx, []graspsync.Incoming{{Event: parsed(mallory.Hosted(gonostr.Now()-60, "old", "grasp.example.com"))}})
	check(err)

	result, err := server.Control().Do(ctx, "alice", "remove", "author", mallory.Npub(), "spam")
	fmt.Println(result.(control.Purged).Events, err)

	next, err := nostrlib.ToEvent(parsed(mallory.Hosted(gonostr.Now(), "repo", "grasp.example.com")))
	check(err)
	_, err = relay.AddEvent(ctx, next) // as a client does
	fmt.Println(err)
	// Output:
	// alice remove begun
	// alice remove done
	// 1 <nil>
	// blocked: this server takes nothing by this author
}
