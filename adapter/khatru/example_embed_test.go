package khatruadapter_test

import (
	"context"
	"testing"

	"github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/khatru"

	"github.com/graspsync/graspsync/adapter/gate"
	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	"github.com/graspsync/graspsync/internal/doctest"
)

// The relay of the README.
func Example_embed() {
	serve := func(ctx context.Context) error {
		db := &badger.BadgerBackend{Path: "data/events"}
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
		return gate.ListenAndServe(ctx, "127.0.0.1:3334", door, syncer.Run)
	}
	_ = serve
}

func TestReadmeShowsTheExample(t *testing.T) {
	for _, readme := range []string{"README.md", "../../README.md"} {
		doctest.ContainsCode(t, readme, "example_embed_test.go", "\trelay := ", "\t}\n\t_ = serve")
	}
}
