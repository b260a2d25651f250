package khatruadapter_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/khatru"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
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
		defer syncer.Close() // when it returns nobody uses db
		door := gate.New(relay, gate.Config{})
		defer door.Close() // hangs up
		return gate.ListenAndServe(ctx, "127.0.0.1:3334", door, syncer.Run)
	}
	_ = serve
}

func TestReadmeShowsTheExample(t *testing.T) {
	source, err := os.ReadFile("example_embed_test.go")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(source), "relay := khatru.NewRelay()\n")
	require.True(t, ok)
	body, _, ok := strings.Cut(rest, "\t}\n\t_ = serve")
	require.True(t, ok)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\nrelay := khatru.NewRelay()\n"+strings.ReplaceAll(body, "\n\t\t", "\n")[2:]+"```\n")
}
