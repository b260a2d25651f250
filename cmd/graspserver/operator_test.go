//go:build !race

package main

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
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

	_, err := once(t.Context(), options{data: t.TempDir(), rules: "/none", domain: addr}, slog.New(slog.DiscardHandler), &bytes.Buffer{})
	require.ErrorContains(t, err, "-rules")
}

// Once is until all is here.
func TestOnce(t *testing.T) {
	aAddr, ours := freeAddr(t), freeAddr(t)
	aURL, err := graspsync.ParseRelayURL("ws://" + aAddr)
	require.NoError(t, err)
	_, stop := server(t, options{listen: aAddr, domain: aAddr})
	owner := relaytest.NewKey("owner")
	ann := owner.Hosted(nostr.Now()-100, "repo", "ws://"+aAddr, "ws://"+ours)
	work := newWork(t)
	hold(t, aAddr, ann, owner.State(nostr.Now()-90, "repo", refs(t, work), "main"))
	git(t, work, "push", "-q", owner.CloneURL("ws://"+aAddr, "repo"), "main")
	eventually(t, "the announcement", func() bool { return served(t, aAddr, ann) })
	require.True(t, publish(t, dial(t, aAddr), owner.Issue(nostr.Now()-50, owner.Ref("repo"), "x")).Accepted)

	opt := options{
		listen: ours, domain: ours, data: t.TempDir(), bootstrap: []graspsync.RelayURL{aURL}, once: true, onceWait: 5 * time.Second,
		allowNet: []netip.Prefix{loopback}, allowPlaintext: true, batchWindow: 100 * time.Millisecond, baseBackoff: time.Minute, huntBackoff: 300 * time.Millisecond,
	}
	try := func() (bool, string) {
		var out bytes.Buffer
		complete, err := once(t.Context(), opt, slog.New(slog.NewTextHandler(t.Output(), nil)), &out)
		require.NoError(t, err)
		return complete, out.String()
	}
	complete, said := try()
	require.True(t, complete, said)
	require.Contains(t, said, "repositories: 1; patches, pull requests and issues: 1; stored events: 3")
	require.Contains(t, said, "caught up")

	stop()
	complete, said = try()
	require.False(t, complete)
	require.Contains(t, said, "not reached")
	require.True(t, strings.HasSuffix(said, "\nincomplete: No relay can be reached\n"), said)

	o, err := parse([]string{"-admin", owner.Npub(), "-admin", fmt.Sprint(owner.Hex()), "-once", "-rules", "x"}, func(string) string { return "" })
	require.NoError(t, err)
	require.Equal(t, []graspsync.PubKey{owner.PubKey(), owner.PubKey()}, o.admins)
	_, err = parse([]string{"-admin", "bob"}, func(string) string { return "" })
	require.ErrorContains(t, err, "npub")
}
