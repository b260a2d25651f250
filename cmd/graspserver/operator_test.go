//go:build !race

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
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
	opt := options{Listen: addr, Domain: "grasp.example", Data: data, Admin: []graspsync.PubKey{owner.PubKey()}}
	_, stop := server(t, opt)
	secret, err := nip19.EncodePrivateKey(owner.Secret())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	do := func(args ...string) (string, error) {
		for {
			var out bytes.Buffer
			err := command(t.Context(), append([]string{"-url", "http://" + addr}, args...), stranger.Secret(), &out)
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
	_, err = do("-key", file, "-for", "https://grasp.example/", "block", "relay", "spam.example")
	require.NoError(t, err, "signed for its domain, asked where it listens")
	_, err = do("-key", file, "-for", "https://other.example/", "block", "relay", "spam.example")
	require.ErrorContains(t, err, "another URL")
	require.ErrorContains(t, err, "Set -for to the URL")
	_, err = do("-key", file, "blok", "author", mallory.Npub())
	require.ErrorContains(t, err, `invalid command: "blok"`)
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
	require.Equal(t, 6, bytes.Count(audit, []byte("\n")), "before each of three, and after it")
	require.Contains(t, string(audit), `"command":"block","args":["author","`+mallory.Hex()+`","no reason"],"outcome":"done"}`)
	require.Contains(t, string(audit), `"args":["wss://nowhere.example"],"outcome":"failed","error":"relay not followed`)

	var help bytes.Buffer
	err = command(t.Context(), []string{"-url", "http://" + addr, "rules"}, owner.Secret(), &help)
	require.ErrorContains(t, err, "no server accepts commands at http://"+addr+": dial tcp")
	require.ErrorContains(t, err, "Start the server with -admin")
	require.ErrorContains(t, command(t.Context(), []string{"rules"}, "", &help), "no secret key")
	require.Error(t, command(t.Context(), []string{"-key", "/none", "rules"}, "", &help))
	require.Error(t, command(t.Context(), []string{"-nonsense"}, "", &help))
	err = command(t.Context(), []string{"rules"}, "nsec1thisisnone", &help)
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
	_, stop := serverTo(t, options{Listen: addr, Domain: addr, Rules: path, reload: hangups, SummaryEvery: time.Minute}, said)
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

// try serves a repository that can be cloned, and leaves nothing behind.
func TestTry(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, cancel := context.WithCancel(t.Context())
	said, ended := make(lines, 10), make(chan int, 1)
	go func() { ended <- execute(ctx, []string{"try"}, nil, said, t.Output()) }()
	text := <-said
	url := regexp.MustCompile(`http://127.0.0.1:\d+/npub1\w+/sample.git`).FindString(text)
	require.NotEmpty(t, url, text)
	into := t.TempDir()
	git(t, into, "clone", "-q", url, "copy")
	require.FileExists(t, filepath.Join(into, "copy", "README.md"))
	page := url[:strings.Index(url, "/npub1")]
	require.Contains(t, text, "page     "+page+"/\nstatus   "+page+"/status/\n")
	get(t, page+"/status/")

	var out bytes.Buffer
	require.Zero(t, execute(t.Context(), []string{"explain", "-status-url", page, url}, nil, &out, t.Output()))
	require.Contains(t, out.String(), "/sample")
	out.Reset()
	require.Zero(t, execute(t.Context(), []string{"explain", "-json", "-status-url", page, url}, nil, &out, t.Output()))
	require.True(t, json.Valid(out.Bytes()))
	require.Equal(t, 1, execute(t.Context(), []string{"explain", "-status-url", page, "no/such/thing"}, nil, &out, t.Output()))
	cancel()
	require.Zero(t, <-ended)
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
	var errs bytes.Buffer
	require.Equal(t, 1, execute(t.Context(), []string{"explain", "-status-url", "http://" + freeAddr(t), "a.example"}, nil, io.Discard, &errs))
	require.Contains(t, errs.String(), "connection refused\nSet -status-url")
}

// check names what is wrong with a server that runs, and with one that does not.
func TestCheck(t *testing.T) {
	owner, addr := relaytest.NewKey("owner"), freeAddr(t)
	args := []string{"check", "-listen", addr, "-domain", addr, "-pubkey", owner.Npub(), "-allow-plaintext", "-bootstrap", "ws://" + addr}
	check := func(more ...string) (int, string) {
		var out bytes.Buffer
		code := execute(t.Context(), append(args, more...), nil, &out, &out)
		return code, out.String()
	}
	code, text := check()
	require.Equal(t, 1, code)
	require.Contains(t, text, "error: http://"+addr+" is not reachable: connection refused")
	require.Contains(t, text, "warning: relay ws://"+addr+" is not reachable")
	_, stop := server(t, options{Listen: addr, Domain: addr, Pubkey: owner.PubKey()})
	defer stop()
	code, text = check()
	require.Zero(t, code, text)
	require.Contains(t, text, "ok: http://"+addr+" answers as")
	require.Contains(t, text, "ok: relay ws://"+addr+" is reachable, clocks agree")
	code, text = check("-name", "another")
	require.Equal(t, 1, code)
	require.Contains(t, text, "which is another server or has other settings")
	code, text = check("-domain", "mistyped.invalid")
	require.Equal(t, 1, code)
	require.Contains(t, text, "error: https://mistyped.invalid is not reachable: no such host")
}

// A mistyped -domain is named, with an address that announcements list.
func TestMistypedDomain(t *testing.T) {
	owner, addr, data := relaytest.NewKey("owner"), freeAddr(t), t.TempDir()
	_, stop := server(t, options{Listen: addr, Domain: addr, Data: data})
	work := newWork(t)
	ann := owner.Hosted(nostr.Now()-100, "repo", "ws://"+addr)
	hold(t, addr, ann, owner.State(nostr.Now()-90, "repo", refs(t, work), "main"))
	git(t, work, "push", "-q", owner.CloneURL("ws://"+addr, "repo"), "main")
	eventually(t, "the announcement", func() bool { return served(t, addr, ann) })
	stop()
	said := &record{}
	_, stop = serverTo(t, options{Listen: addr, Domain: "mistyped.example", Data: data, SummaryEvery: time.Minute}, said)
	defer stop()
	eventually(t, "a warning", func() bool { return strings.Contains(said.String(), "no stored announcement lists this server") })
	require.Contains(t, said.String(), "listed=ws://"+addr)
}

// The log for people has npubs.
func TestLogIsReadable(t *testing.T) {
	var out bytes.Buffer
	key := relaytest.NewKey("owner")
	log := newLogger(&out, options{})
	log.Info("x", "repo", key.Ref("demo").String(), "owner", key.Hex(), "event", key.Hex())
	require.Regexp(t, "^[-0-9]+ [:0-9]+ INF x repo="+key.Npub()+"/demo owner="+key.Npub()+" event="+key.Hex()+"\n$", out.String())
	out.Reset()
	newLogger(&out, options{LogFormat: "json"}).Info("x", "repo", key.Ref("demo").String())
	require.Contains(t, out.String(), key.Hex())
}

// systemd is told when the store has been read and when the server stops, and that it is alive.
func TestNotify(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "200000")
	addr := freeAddr(t)
	_, stop := server(t, options{Listen: addr, Domain: addr})
	receive := func() string {
		text := make([]byte, 100)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		n, err := conn.Read(text)
		require.NoError(t, err)
		return string(text[:n])
	}
	require.Equal(t, "READY=1", receive())
	require.Equal(t, "WATCHDOG=1", receive())
	require.Equal(t, "WATCHDOG=1", receive())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	for receive() != "STOPPING=1" {
	}
	<-stopped
}
