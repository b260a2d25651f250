//go:build !race

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Rules of an owner survive the loss of the other records.
func TestRulesOutliveState(t *testing.T) {
	owner, mallory := relaytest.NewKey("owner"), relaytest.NewKey("mallory")
	addr, data := freeAddr(t), t.TempDir()
	opt := options{Listen: addr, Domain: "grasp.example", Data: data, Admin: []graspsync.PubKey{owner.PubKey()}}
	_, stop := server(t, opt)
	require.NoError(t, commandAs(t, owner, addr, "block", "author", mallory.Npub()))
	for range 2 {
		stop()
		require.NoError(t, os.RemoveAll(filepath.Join(data, "state")))
		_, stop = server(t, opt)
		require.Contains(t, publish(t, dial(t, addr), mallory.Event(nostr.Now(), 1, "x")).Text, "nothing by this author")
	}
	stop()
}

// commandAs has somebody command a server.
func commandAs(t *testing.T, owner *relaytest.Key, addr string, args ...string) (err error) {
	t.Helper()
	eventually(t, "the second is over in which it was started", func() bool {
		err = command(t.Context(), append([]string{"-url", "http://" + addr}, args...), owner.Secret(), &bytes.Buffer{})
		return err == nil || !strings.Contains(err.Error(), "signed before")
	})
	return err
}
