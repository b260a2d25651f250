package grasp_test

import (
	"context"
	"testing"

	"github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/khatru"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/doctest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
)

// The server of the README.
func Example() {
	serve := func(ctx context.Context) error {
		db := &badger.BadgerBackend{Path: "data/events"}
		if err := db.Init(); err != nil {
			return err
		}
		defer db.Close()
		server, err := grasp.Open(ctx, khatru.NewRelay(), db, "grasp.example.com", "data", "wss://relay.ngit.dev")
		if err != nil {
			return err
		}
		defer server.Close() // ends all use of db
		return server.ListenAndServe(ctx, "127.0.0.1:3334")
	}
	_ = serve
}

// A server with explicit settings: behind a proxy that reports the client's address, with a limit
// for each owner, and with records that the caller has opened.
func ExampleNew() {
	serve := func(ctx context.Context, db *badger.BadgerBackend, records *state.DB) error {
		identity, err := nip34.ParseIdentity("grasp.example.com")
		if err != nil {
			return err
		}
		relay := khatru.NewRelay()
		relay.Negentropy = true
		server, err := grasp.New(ctx, relay, db, identity, grasp.Config{
			Dir: "data/git", State: records,
			Egress:       egress.Config{},
			Sync:         relaysync.Config{Bootstrap: nil},
			Repositories: gitserve.RepositoriesConfig{MaxOwnerBytes: 10 << 30},
			Serve:        gitserve.Config{Client: gitserve.BehindProxy("X-Real-IP")},
		})
		if err != nil {
			return err
		}
		defer server.Close()
		return server.ListenAndServe(ctx, "127.0.0.1:3334")
	}
	_ = serve
}

func TestReadmeShowsTheExample(t *testing.T) {
	for _, readme := range []string{"README.md", "../../README.md"} {
		doctest.ContainsCode(t, readme, "example_test.go", "\tdb := ", "\t}\n\t_ = serve")
	}
}
