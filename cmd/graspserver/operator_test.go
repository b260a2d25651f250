//go:build !race

package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// An owner commands a running server from the command line, over a restart; nobody else does.
func TestCommandLine(t *testing.T) {
	owner, stranger, mallory := relaytest.NewKey("owner"), relaytest.NewKey("stranger"), relaytest.NewKey("mallory")
	addr, data := freeAddr(t), t.TempDir()
	opt := options{listen: addr, domain: "grasp.example", data: data, admins: []graspsync.PubKey{owner.PubKey()}}
	_, stop := server(t, opt)
	secret, err := nip19.EncodePrivateKey(owner.Secret())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	do := func(args ...string) (string, error) {
		for {
			var out bytes.Buffer
			err := command(t.Context(), append([]string{"-url", "http://" + addr}, args...), func(string) string { return stranger.Secret() }, &out)
			if err == nil || !strings.Contains(err.Error(), "signed before") {
				return out.String(), err
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	_, err = do("block", "author", mallory.Npub())
	require.ErrorContains(t, err, "not by an owner")
	out, err := do("-key", file, "block", "author", mallory.Npub(), "no", "reason")
	require.NoError(t, err)
	require.Contains(t, out, `"reason": "no reason"`)
	out, err = do("-key", file, "describe", "name", "ours")
	require.NoError(t, err)
	require.Contains(t, out, `"name": "ours"`)
	_, err = do("-key", file, "-for", "https://grasp.example/", "block", "relay", "spam.example")
	require.NoError(t, err, "signed for its domain, asked where it listens")
	_, err = do("-key", file, "-for", "https://other.example/", "block", "relay", "spam.example")
	require.ErrorContains(t, err, "another URL")
	require.ErrorContains(t, err, "Set -for to the URL")
	_, err = do("-key", file, "blok", "author", mallory.Npub())
	require.ErrorContains(t, err, `invalid command: "blok", the nearest is "block"`)
	_, err = do("-key", file, "retry", "wss://nowhere.example")
	require.ErrorContains(t, err, "relay not followed")
	require.Contains(t, get(t, "http://"+addr+"/", "Accept", "application/nostr+json"), `77,86]`)
	for range 2 {
		ok := publish(t, dial(t, addr), mallory.Event(nostr.Now(), 1, "x"))
		require.False(t, ok.Accepted)
		require.Contains(t, ok.Text, "blocked: this server takes nothing by this author")
		out, err = do("-key", file, "rules")
		require.NoError(t, err)
		require.Contains(t, out, "no reason")
		require.Contains(t, out, "spam.example")
		require.Contains(t, out, owner.Npub())
		stop()
		_, stop = server(t, opt)
	}
	stop()
	audit, err := os.ReadFile(filepath.Join(data, "audit.log"))
	require.NoError(t, err)
	require.Equal(t, 8, bytes.Count(audit, []byte("\n")), "before each of four, and after it")
	require.Contains(t, string(audit), `"command":"block","args":["author","`+mallory.Hex()+`","no reason"],"outcome":"done"}`)
	require.Contains(t, string(audit), `"args":["wss://nowhere.example"],"outcome":"failed","error":"relay not followed`)

	var help bytes.Buffer
	require.ErrorIs(t, command(t.Context(), []string{"-h"}, os.Getenv, &help), flag.ErrHelp)
	require.Contains(t, help.String(), "refetch <repository>")
	none := func(string) string { return "" }
	err = command(t.Context(), []string{"-url", "http://" + addr, "rules"}, func(string) string { return owner.Secret() }, &help)
	require.ErrorContains(t, err, "no server accepts commands at http://"+addr+": dial tcp")
	require.ErrorContains(t, err, "Start the server with -admin")
	require.ErrorContains(t, command(t.Context(), []string{"rules"}, none, &help), "no secret key")
	require.Error(t, command(t.Context(), []string{"-key", "/none", "rules"}, none, &help))
	require.Error(t, command(t.Context(), []string{"-nonsense"}, none, &help))
	err = command(t.Context(), []string{"rules"}, func(string) string { return "nsec1thisisnone" }, &help)
	require.ErrorContains(t, err, "not a secret key")
	require.NotContains(t, err.Error(), "thisisnone")
}

// SIGHUP has the file of rules read again; one that can't be read changes nothing.
func TestReload(t *testing.T) {
	mallory := relaytest.NewKey("mallory")
	addr, path := freeAddr(t), filepath.Join(t.TempDir(), "rules")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("block author " + mallory.Npub() + " # spam\n")
	hangups := make(chan os.Signal)
	said := make(lines, 1000)
	_, stop := serverTo(t, options{listen: addr, domain: addr, rules: path, reload: hangups, summaryEvery: time.Minute}, said)
	defer stop()
	refused := func() string { return publish(t, dial(t, addr), mallory.Event(nostr.Now(), 1, "x")).Text }
	require.Contains(t, refused(), "nothing by this author")
	write("blok author " + mallory.Npub())
	hangups <- syscall.SIGHUP
	for line := range said {
		if strings.Contains(line, "reload of the rules file failed") {
			require.Contains(t, line, "line 1")
			break
		}
	}
	require.Contains(t, refused(), "nothing by this author")
	write("bootstrap ws://" + freeAddr(t) + "\nblock relay spam.example\n")
	hangups <- syscall.SIGHUP
	eventually(t, "not blocked", func() bool { return !strings.Contains(refused(), "nothing by this author") })
	eventually(t, "followed", func() bool { return strings.Contains(get(t, "http://"+addr+"/status.json"), `"bootstrap": true`) })
	write("")
	hangups <- syscall.SIGHUP
	eventually(t, "left", func() bool { return !strings.Contains(get(t, "http://"+addr+"/status.json"), `"bootstrap": true`) })
	hangups <- syscall.SIGHUP
}
