package graspadapter_test

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
	"fiatjaf.com/nostr/khatru/grasp"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
	graspadapter "github.com/graspsync/graspsync/adapter/nostrlib/grasp"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state/filestate"
)

// The first part is a GRASP-01 server on fiatjaf.com/nostr, but for UseEventstore; the second adds
// GRASP-02 to it.
func Example_embed() {
	serve := func(ctx context.Context) error {
		db := &boltdb.BoltBackend{Path: "events"}
		if err := db.Init(); err != nil {
			return err
		}
		defer db.Close()
		relay := khatru.NewRelay()
		relay.Negentropy = true
		repositories := grasp.New(relay, "repositories")
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
		server, err := graspadapter.New(ctx, repositories, db, identity, graspadapter.Config{State: records, Pace: door.Wait})
		if err != nil {
			return err
		}
		defer server.Close() // when it returns nobody uses db
		go front.Serve(listener)
		return server.Run(ctx) // until ctx ends
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
	at := strings.Index(body, "\t\tserver, err := ")
	require.Positive(t, at)
	var lines []string
	for line := range strings.Lines(body[at:]) {
		lines = append(lines, strings.TrimPrefix(line, "\t\t"))
	}
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\nrepositories := grasp.New(relay, \"repositories\") // before the gate\n...\n"+strings.Join(lines, "")+"```\n")
}
