package graspadapter_test

import (
	"context"
	"testing"

	"fiatjaf.com/nostr/eventstore/boltdb"
	"fiatjaf.com/nostr/khatru"
	"fiatjaf.com/nostr/khatru/grasp"

	"github.com/graspsync/graspsync/adapter/gate"
	graspadapter "github.com/graspsync/graspsync/adapter/nostrlib/grasp"
	"github.com/graspsync/graspsync/internal/doctest"
)

// The first part is a GRASP-01 server on fiatjaf.com/nostr without UseEventstore. The second part
// adds GRASP-02.
func Example_embed() {
	serve := func(ctx context.Context) error {
		db := &boltdb.BoltBackend{Path: "events.db"}
		if err := db.Init(); err != nil {
			return err
		}
		defer db.Close()
		relay := khatru.NewRelay()
		repositories := grasp.New(relay, "data/git")

		server, err := graspadapter.Open(ctx, repositories, db, "grasp.example.com", "data", "wss://relay.ngit.dev")
		if err != nil {
			return err
		}
		defer server.Close() // ends all use of db
		door := gate.New(relay, gate.Config{})
		defer door.Close() // disconnects clients
		server.Sync().Pace(door.Wait)
		return gate.ListenAndServe(ctx, "127.0.0.1:3334", door, server.Run)
	}
	_ = serve
}

func TestReadmeShowsTheExample(t *testing.T) {
	doctest.ContainsCode(t, "../README.md", "example_embed_test.go", "\trelay := ", "\t}\n\t_ = serve")
}
