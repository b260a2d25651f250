package grasp_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/khatru"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state/filestate"
)

// What makes the relay of the README's quick start a GRASP server: it is compiled, and
// compared with the README below.
func Example() {
	serve := func(ctx context.Context, relay *khatru.Relay, db *badger.BadgerBackend, identity nip34.Identity, records *filestate.Store, front *http.Server, listener net.Listener) error {
		server, err := grasp.New(ctx, relay, db, identity, grasp.Config{Dir: "git", State: records})
		if err != nil {
			return err
		}
		defer server.Close()
		front.Handler = server.Handler()
		go front.Serve(listener)
		return server.Run(ctx) // until ctx ends
	}
	_ = serve
}

func TestReadmeShowsTheExample(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(source), "listener net.Listener) error {\n")
	require.True(t, ok)
	body, _, ok := strings.Cut(rest, "\t}\n\t_ = serve")
	require.True(t, ok)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\n"+strings.ReplaceAll(body, "\n\t\t", "\n")[2:]+"```\n")
}
