//go:build !race

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// What an owner has decided outlives what the docs say can be lost, is taken over from where older
// versions had it, and is missed aloud where it is gone.
func TestRulesOutliveState(t *testing.T) {
	owner, mallory := relaytest.NewKey("owner"), relaytest.NewKey("mallory")
	addr, data := freeAddr(t), t.TempDir()
	opt := options{listen: addr, domain: "grasp.example", data: data, admins: []graspsync.PubKey{owner.PubKey()}, summaryEvery: time.Minute}
	gone := func(folder string) { require.NoError(t, os.RemoveAll(filepath.Join(data, folder))) }
	answer := func() string { return publish(t, dial(t, addr), mallory.Event(nostr.Now(), 1, "x")).Text }
	errors := func() (out []string, stop func()) {
		said := make(lines, 1000)
		_, stop = serverTo(t, opt, said)
		for len(said) > 0 {
			if line := <-said; strings.Contains(line, "level=ERROR") {
				out = append(out, line)
			}
		}
		return out, stop
	}

	// As an older version has left it.
	records, err := state.Open(filepath.Join(data, "state"), state.Config{})
	require.NoError(t, err)
	book, err := rules.Open(t.Context(), records, rules.Config{})
	require.NoError(t, err)
	require.NoError(t, book.Set(t.Context(), rules.Rule{Action: rules.Block, Subject: rules.OfAuthor(mallory.PubKey()), Reason: "spam"}))
	require.NoError(t, records.Close())
	for range 2 {
		_, stop := server(t, opt)
		require.Contains(t, answer(), "nothing by this author")
		stop()
		gone("state")
	}

	said, stop := errors()
	require.Empty(t, said)
	command := func(args ...string) {
		require.NoError(t, commandAs(t, owner, addr, args...))
	}
	command("remove", "author", mallory.Npub(), "spam and more")
	command("block", "relay", "spam.example")
	command("block", "relay", "other.example")
	command("unset", "relay", "other.example")
	command("bootstrap", "add", "wss://first.example")
	stop()
	said, stop = errors()
	require.Empty(t, said)
	stop()

	gone("rules")
	for range 2 {
		said, stop = errors()
		require.NotContains(t, answer(), "nothing by this author")
		stop()
		all := strings.Join(said, "\n")
		require.Len(t, said, 4, all)
		require.Contains(t, said[0], "rules were lost")
		require.Contains(t, said[0], "commands=3")
		require.Contains(t, all, `remove author `+mallory.Hex()+` \"spam and more\"`)
		require.Contains(t, all, "block relay spam.example")
		require.Contains(t, all, "bootstrap add wss://first.example")
		require.Contains(t, all, owner.Npub())
	}
	_, stop = server(t, opt)
	command("block", "author", mallory.Npub())
	command("block", "relay", "spam.example")
	command("bootstrap", "add", "wss://first.example")
	stop()
	said, stop = errors()
	require.Empty(t, said)
	stop()
}

// commandAs has somebody command a server.
func commandAs(t *testing.T, owner *relaytest.Key, addr string, args ...string) (err error) {
	t.Helper()
	eventually(t, "the second is over in which it was started", func() bool {
		err = command(t.Context(), append([]string{"-url", "http://" + addr}, args...), func(string) string { return owner.Secret() }, &bytes.Buffer{})
		return err == nil || !strings.Contains(err.Error(), "signed before")
	})
	return err
}

// A command that a kill cut off in the middle was seen by nobody who did not look for it.
func TestCommandThatWasCutOffIsNamed(t *testing.T) {
	owner, addr, data := relaytest.NewKey("owner"), freeAddr(t), t.TempDir()
	opt := options{listen: addr, domain: "grasp.example", data: data, admins: []graspsync.PubKey{owner.PubKey()}, summaryEvery: time.Minute}
	log, err := admin.OpenLog(filepath.Join(data, "audit.log"))
	require.NoError(t, err)
	args := []string{"author", relaytest.NewKey("mallory").Hex()}
	for _, outcome := range []string{admin.Begun, admin.Done, admin.Begun} {
		require.NoError(t, log.Record(admin.Entry{At: time.Now(), By: owner.Npub(), Command: "purge", Args: args, Outcome: outcome}))
	}
	require.NoError(t, log.Close())
	for _, want := range []struct {
		cut   int
		again bool
	}{{1, false}, {1, true}, {0, false}} {
		said := make(lines, 1000)
		_, stop := serverTo(t, opt, said)
		cut := 0
		for len(said) > 0 {
			if strings.Contains(<-said, `command was cut off, repeat it" command="purge author `+args[1]) {
				cut++
			}
		}
		require.Equal(t, want.cut, cut)
		if want.again {
			require.NoError(t, commandAs(t, owner, addr, append([]string{"purge"}, args...)...))
		}
		stop()
	}
}
