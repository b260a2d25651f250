package graspadapter_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"fiatjaf.com/nostr/eventstore/boltdb"
	"fiatjaf.com/nostr/khatru"
	"fiatjaf.com/nostr/khatru/grasp"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
	graspadapter "github.com/graspsync/graspsync/adapter/nostrlib/grasp"
)

// The first part is a GRASP-01 server on fiatjaf.com/nostr, but for UseEventstore; the second adds
// GRASP-02 to it.
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
		defer server.Close() // when it returns nobody uses db
		door := gate.New(relay, gate.Config{})
		defer door.Close() // hangs up
		server.Sync().Pace(door.Wait)
		return gate.ListenAndServe(ctx, "127.0.0.1:3334", door, server.Run)
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
	at := strings.Index(body, "\t\trelay := ")
	require.Positive(t, at)
	var lines []string
	for line := range strings.Lines(body[at:]) {
		lines = append(lines, strings.TrimPrefix(line, "\t\t"))
	}
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\n"+strings.Join(lines, "")+"```\n")
}
