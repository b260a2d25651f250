package nostrlib_test

import (
	"context"
	"fmt"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore/slicestore"
	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/nostrlib"
)

// Use a backend as a Store: it replaces older versions, and deleted events do not come back.
func ExampleNewStore() {
	ctx := context.Background()
	db := &slicestore.SliceStore{} // or boltdb, lmdb
	if err := db.Init(); err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store, err := nostrlib.NewStore(db, nostrlib.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close() // before the backend is closed

	key := nostr.Generate()
	signed := func(kind nostr.Kind, at nostr.Timestamp, tags ...nostr.Tag) graspsync.Event {
		e := nostr.Event{Kind: kind, CreatedAt: at, Tags: tags}
		if err := e.Sign(key); err != nil {
			panic(err)
		}
		event, err := nostrlib.FromEvent(e)
		if err != nil {
			panic(err)
		}
		return event
	}
	repo := nostr.Tag{"d", "repo"}
	issue := signed(1621, 100)
	outcomes, err := store.Save(ctx, []graspsync.Incoming{
		{Event: signed(30617, 101, repo)}, {Event: signed(30617, 100, repo)},
		{Event: signed(5, 102, nostr.Tag{"e", issue.ID.String()})}, {Event: issue},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range outcomes {
		fmt.Println(outcomes[i].Result)
	}
	for e, err := range store.Events(ctx, gonostr.Filter{}) {
		fmt.Println(e.Kind, err)
	}
	// Output:
	// stored
	// superseded
	// stored
	// deleted
	// 5 <nil>
	// 30617 <nil>
}

// Convert an event without parsing.
func ExampleFromEvent() {
	e := nostr.Event{Kind: 1621, CreatedAt: 100, Content: "it does not start"}
	if err := e.Sign(nostr.Generate()); err != nil {
		fmt.Println(err)
		return
	}
	event, err := nostrlib.FromEvent(e)
	if err != nil {
		fmt.Println(err)
		return
	}
	back, err := nostrlib.ToEvent(event)
	fmt.Println(event.ID.String() == e.ID.Hex(), event.CheckID(), back.VerifySignature(), err)
	// Output: true true true <nil>
}
