package khatruadapter_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"fiatjaf.com/nostr/eventstore/boltdb"
	"fiatjaf.com/nostr/khatru"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
	khatruadapter "github.com/graspsync/graspsync/adapter/nostrlib/khatru"
)

// The first part is a relay as one is written on fiatjaf.com/nostr, but for UseEventstore; the second
// makes it one that syncs.
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
		defer syncer.Close() // when it returns nobody uses db
		door := gate.New(relay, gate.Config{})
		defer door.Close() // hangs up
		syncer.Pace(door.Wait)
		return gate.ListenAndServe(ctx, "127.0.0.1:3334", door, syncer.Run)
	}
	_ = serve
}

func TestReadmeShowsTheExample(t *testing.T) {
	source, err := os.ReadFile("example_embed_test.go")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(source), "serve := func(ctx context.Context) error {\n")
	require.True(t, ok)
	body, _, ok := strings.Cut(rest, "\t}\n\t_ = serve")
	require.True(t, ok)
	_, added, ok := strings.Cut(body, "\n\n")
	require.True(t, ok, "the relay that exists, and what is added to it")
	require.LessOrEqual(t, strings.Count(added, "\n"), 9)
	var lines []string
	for line := range strings.Lines(body) {
		lines = append(lines, strings.TrimPrefix(line, "\t\t"))
	}
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\n"+strings.Join(lines, "")+"```\n")
}
