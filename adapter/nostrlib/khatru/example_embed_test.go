package khatruadapter_test

import (
	"context"
	"testing"

	"fiatjaf.com/nostr/eventstore/boltdb"
	"fiatjaf.com/nostr/khatru"

	"github.com/graspsync/graspsync/adapter/gate"
	khatruadapter "github.com/graspsync/graspsync/adapter/nostrlib/khatru"
	"github.com/graspsync/graspsync/internal/doctest"
)

// The first part is a relay on fiatjaf.com/nostr without UseEventstore. The second part makes it
// sync.
func Example_embed() {
	serve := func(ctx context.Context) error {
		db := &boltdb.BoltBackend{Path: "events.db"}
		if err := db.Init(); err != nil {
			return err
		}
		defer db.Close()
		relay := khatru.NewRelay()

		syncer, err := khatruadapter.Open(relay, db, "grasp.example.com", "data", "wss://relay.ngit.dev")
		if err != nil {
			return err
		}
		defer syncer.Close() // ends all use of db
		door := gate.New(relay, gate.Config{})
		defer door.Close() // disconnects clients
		syncer.Pace(door.Wait)
		return gate.ListenAndServe(ctx, "127.0.0.1:3334", door, syncer.Run)
	}
	_ = serve
}

func TestReadmeShowsTheExample(t *testing.T) {
	doctest.ContainsCode(t, "../README.md", "example_embed_test.go", "\tdb := ", "\t}\n\t_ = serve")
}
