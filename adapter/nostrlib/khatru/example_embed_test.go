package khatruadapter_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"fiatjaf.com/nostr/eventstore/boltdb"
	"fiatjaf.com/nostr/khatru"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
	khatruadapter "github.com/graspsync/graspsync/adapter/nostrlib/khatru"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state/filestate"
	relaysync "github.com/graspsync/graspsync/sync"
)

// The first part is a relay as one is written on fiatjaf.com/nostr, but for UseEventstore; the second
// makes it one that syncs.
func Example_embed() {
	serve := func(ctx context.Context) error {
		db := &boltdb.BoltBackend{Path: "events"}
		if err := db.Init(); err != nil {
			return err
		}
		defer db.Close()
		relay := khatru.NewRelay()
		relay.Negentropy = true
		listener, err := net.Listen("tcp", "127.0.0.1:3334")
		if err != nil {
			return err
		}
		door := gate.New(relay, gate.Config{})
		defer door.Close() // hangs up
		front := &http.Server{Handler: door, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
		defer front.Close()

		identity, err := nip34.ParseIdentity("grasp.example.com")
		if err != nil {
			return err
		}
		records, err := filestate.Open("records", filestate.Config{}) // what survives a restart
		if err != nil {
			return err
		}
		defer records.Close()
		syncer, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{
			GateDirect: true, Pace: door.Wait, Sync: relaysync.Config{State: records},
		})
		if err != nil {
			return err
		}
		defer syncer.Close() // when it returns nobody uses db
		go front.Serve(listener)
		return syncer.Run(ctx) // until ctx ends
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
	require.LessOrEqual(t, strings.Count(added, "\n"), 18)
	var lines []string
	for line := range strings.Lines(body) {
		lines = append(lines, strings.TrimPrefix(line, "\t\t"))
	}
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\n"+strings.Join(lines, "")+"```\n")
}
