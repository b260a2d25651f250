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
	"github.com/graspsync/graspsync/adapter/nostrlib"
	graspadapter "github.com/graspsync/graspsync/adapter/nostrlib/grasp"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// block has nothing by an author taken from now on, and removes what is here. The rule holds over restarts, and
// [rules.Book.Unset] with the same Reconsider lifts it. A relay is blocked without the removal.
func block(ctx context.Context, book *rules.Book, server *graspadapter.Server, author, reason string) (removed int, err error) {
	subject, err := rules.ParseSubject("author", author) // in any spelling
	if err != nil {
		return 0, err
	}
	if err := book.Set(ctx, rules.Rule{Action: rules.Block, Subject: subject, Reason: reason}); err != nil {
		return 0, err
	}
	if err := server.Sync().Manager().Reconsider(ctx, rules.Lifted(subject)); err != nil {
		return 0, err
	}
	for event, err := range server.Sync().Store().Events(ctx, gonostr.Filter{Authors: []string{subject.Name}}) {
		if err != nil {
			return removed, err
		}
		if err := server.Sync().Remove(ctx, event); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// An author is blocked while the server runs. One that is to know its rules after a restart keeps them as it keeps
// State: with filestate.Open, in a folder of their own that is in the backup.
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
	book, err := rules.Open(ctx, state.NewMemory(), rules.Config{})
	check(err)

	relay := khatru.NewRelay()
	server, err := graspadapter.New(ctx, grasp.New(relay, filepath.Join(dir, "git")), db, identity, graspadapter.Config{
		State:  state.NewMemory(),
		Sync:   relaysync.Config{Rules: book},
		Egress: egress.Config{Deny: book.Deny}, // the git servers of a blocked host
	})
	check(err)
	defer server.Close()
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(ctx) })
	defer running.Wait()
	defer cancel()
	<-server.Sync().Ready()

	mallory := relaytest.NewKey("mallory")
	parsed := func(e *gonostr.Event) graspsync.Event {
		event, err := graspsync.ParseEvent(e)
		check(err)
		return event
	}
	_, err = server.Sync().Store().Save(ctx, []graspsync.Incoming{{Event: parsed(mallory.Hosted(gonostr.Now()-60, "old", "grasp.example.com"))}})
	check(err)
	fmt.Println(block(ctx, book, server, mallory.Npub(), "spam"))
	next, err := nostrlib.ToEvent(parsed(mallory.Hosted(gonostr.Now(), "repo", "grasp.example.com")))
	check(err)
	_, err = relay.AddEvent(ctx, next) // as a client's
	fmt.Println(err)
	// Output:
	// 1 <nil>
	// blocked: this server takes nothing by this author
}
