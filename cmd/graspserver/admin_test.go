//go:build !race

// As in servers_test.go.

package main

import (
	"bytes"
	"encoding/json"
	"io"
	standard "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// answer returns what a URL answers, with whatever code.
func answer(t *testing.T, url string, header ...string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(data)
}

// What whoever runs a server wants to see is at an address of its own, and not at the one that everybody
// reaches.
func TestAdminListen(t *testing.T) {
	addr, admin := freeAddr(t), freeAddr(t)
	pages, err := graspsync.ParseRelayURL("ws://" + admin)
	require.NoError(t, err)
	_, stop := server(t, options{Listen: addr, Domain: addr, AdminListen: admin, Bootstrap: []graspsync.RelayURL{pages}})
	defer stop()
	eventually(t, "it is never dialed", func() bool {
		return strings.Contains(get(t, "http://"+admin+"/status.json?relay=ws://"+admin), "own listener")
	})
	require.Contains(t, get(t, "http://"+admin+"/metrics"), "ngit_sync_relays_connected_total")
	require.Contains(t, get(t, "http://"+admin+"/metrics"), `ngit_build_info{go="`+runtime.Version())
	require.Contains(t, get(t, "http://"+admin+"/metrics"), `ngit_gate_disconnects_total{reason="slow"} 0`)
	require.Contains(t, get(t, "http://"+admin+"/status.json"), `"purgatory"`)
	require.Contains(t, get(t, "http://"+admin+"/"), "<h1 class=\"visually-hidden\">Overview", "it leads to the page")
	require.Contains(t, get(t, "http://"+admin+"/status/relays"), "<h1>Relays")
	err = command(t.Context(), []string{"-url", "http://" + admin, "rules"}, relaytest.NewKey("x").Secret(), io.Discard)
	require.ErrorContains(t, err, "set -url to its -listen address")
	code, body := answer(t, "http://"+admin+"/status.json?event=zzz")
	require.Equal(t, http.StatusBadRequest, code)
	var wrong struct{ Error string }
	require.NoError(t, json.Unmarshal([]byte(body), &wrong), body)
	require.Contains(t, wrong.Error, "?event=")
	never := strings.Repeat("ab", 32)
	require.Contains(t, get(t, "http://"+admin+"/status/explain?q="+never), "never arrived")
	require.Contains(t, get(t, "http://"+admin+"/status/explain?q=<b>"), "&lt;b&gt;")
	for _, at := range []string{addr, admin} {
		require.Equal(t, "ok\n", get(t, "http://"+at+"/healthz"))
		require.Eventually(t, func() bool { code, _ := answer(t, "http://"+at+"/readyz"); return code == http.StatusOK }, time.Minute, 20*time.Millisecond)
	}
	for _, path := range []string{"/metrics", "/status.json", "/status/", "/status/relays"} {
		code, _ := answer(t, "http://"+addr+path)
		require.Equal(t, http.StatusNotFound, code, path)
	}
}

// A server that can't write says so, why only to whoever runs it.
func TestNotReady(t *testing.T) {
	addr, admin, data := freeAddr(t), freeAddr(t), t.TempDir()
	_, stop := server(t, options{Listen: addr, Domain: addr, AdminListen: admin, Data: data})
	defer stop()
	incoming := filepath.Join(data, "git", "incoming")
	require.NoError(t, os.RemoveAll(incoming))
	require.NoError(t, os.WriteFile(incoming, nil, 0o600))
	require.Eventually(t, func() bool {
		code, body := answer(t, "http://"+admin+"/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "writing to the folder of repositories")
	}, time.Minute, 20*time.Millisecond)
	code, body := answer(t, "http://"+addr+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "not ready\n", body)
	require.Equal(t, "ok\n", get(t, "http://"+addr+"/healthz"), "the process is alive")
	require.Contains(t, get(t, "http://"+admin+"/metrics"), "ngit_server_ready 0")
	require.Contains(t, get(t, "http://"+admin+"/status/"), "Not ready")
	require.NoError(t, os.Remove(incoming))
	require.NoError(t, os.Mkdir(incoming, 0o700))
}

// That kept rules were damaged, or the file of rules not read, was in the log and nowhere else.
func TestRulesThatFailAreSeen(t *testing.T) {
	addr, admin, data := freeAddr(t), freeAddr(t), t.TempDir()
	file, reload := filepath.Join(t.TempDir(), "rules"), make(chan os.Signal, 1)
	require.NoError(t, os.WriteFile(file, []byte("block relay spam.example\n"), 0o600))
	damage(t, rulesDir(options{Data: data}))
	_, stop := server(t, options{Listen: addr, Domain: addr, AdminListen: admin, Data: data, Rules: file, reload: reload})
	defer stop()
	has := func(metric string) bool {
		return strings.Contains(get(t, "http://"+admin+"/metrics"), "\n"+metric+"\n")
	}
	require.True(t, has("ngit_rules_state_failures_total 0"))
	require.True(t, has("ngit_rules_state_damaged_files 1"))
	require.True(t, has("ngit_state_damaged_files 0"))
	require.True(t, has("ngit_rules_reload_failed 0"))
	for _, c := range []struct{ text, failed string }{{"block planet mars\n", "1"}, {"block relay spam.example\n", "0"}} {
		require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
		reload <- os.Interrupt
		eventually(t, c.text, func() bool { return has("ngit_rules_reload_failed " + c.failed) })
	}
	require.NoError(t, os.Remove(file))
	reload <- os.Interrupt
	eventually(t, "it is gone", func() bool { return has("ngit_rules_reload_failed 1") })
	entries, err := os.ReadFile(filepath.Join(data, "audit.log"))
	require.NoError(t, err)
	require.Contains(t, string(entries), `"by":"SIGHUP","command":"reload","outcome":"failed","error":"rules unchanged: -rules `+file)
}

// damage damages the records in a folder in one place.
func damage(t *testing.T, folder string) {
	t.Helper()
	kept, err := state.Open(folder, state.Config{})
	require.NoError(t, err)
	for _, key := range []string{"one", "two", "three"} {
		err := kept.Put(t.Context(), state.Record{Key: key, Value: []byte("value of " + key)})
		require.NoError(t, err)
	}
	require.NoError(t, kept.Close())
	path := filepath.Join(folder, "state.db")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	at := bytes.Index(data, []byte("value of two"))
	require.Positive(t, at)
	data[at] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

func TestAdminAddress(t *testing.T) {
	for _, c := range []struct {
		admin   string
		port    int
		address string
		chosen  bool
	}{
		{"", 7334, "127.0.0.1:7335", false}, {"", 65535, adminOff, false}, {"off", 7334, adminOff, true}, {"10.0.0.1:9000", 7334, "10.0.0.1:9000", true},
	} {
		address, chosen := adminAddress(options{AdminListen: c.admin}, &net.TCPAddr{Port: c.port})
		require.Equal(t, c.address, address)
		require.Equal(t, c.chosen, chosen)
	}
	// What somebody chose and can't be had ends the server; what nobody chose does not.
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	_, err = listenAdmin(options{AdminListen: taken.Addr().String()}, taken.Addr(), log)
	require.ErrorContains(t, err, "-admin-listen")
	before := *taken.Addr().(*net.TCPAddr)
	before.Port--
	_, err = listenAdmin(options{}, &before, log)
	require.NoError(t, err)
	require.Contains(t, said.String(), "status page not served, set -admin-listen")
}

func TestLogFormat(t *testing.T) {
	for args, wants := range map[string]string{
		"":                                 "INF two n=3",
		"-log-format=json":                 `"level":"INFO"`,
		"-log-format=json -log-level=warn": "",
		"-log-level=debug":                 "DBG one",
	} {
		opt, err := read(strings.Fields(args))
		require.NoError(t, err)
		var out bytes.Buffer
		log := newLogger(&out, opt)
		log.Debug("one")
		log.Info("two", "n", 3)
		if wants == "" {
			require.Empty(t, out.String(), args)
			continue
		}
		require.Contains(t, out.String(), wants, args)
		for line := range strings.Lines(out.String()) {
			require.Equal(t, strings.Contains(args, "json"), json.Valid([]byte(line)), line)
		}
	}
	var out bytes.Buffer
	defer func(to io.Writer, flags int) { standard.SetOutput(to); standard.SetFlags(flags) }(standard.Writer(), standard.Flags())
	adopt(newLogger(&out, options{LogFormat: "json"}))
	standard.Println("[badger] migration 5: delete all indexes and recreate them")
	require.Empty(t, out.String(), "lines of libraries have no level")
	adopt(newLogger(&out, options{LogFormat: "json", LogLevel: "debug"}))
	standard.Println("[badger] migration 5: delete all indexes and recreate them")
	require.True(t, json.Valid(out.Bytes()), out.String())
	require.Contains(t, out.String(), `"level":"DEBUG","msg":"[badger] migration 5: delete all indexes and recreate them"`)
	for _, bad := range []string{"-log-format=xml", "-log-level=loud"} {
		_, err := read([]string{bad})
		require.ErrorContains(t, err, strings.Split(bad, "=")[0])
	}
}
