//go:build !race

package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Two servers under paths of one host took each other for themselves: neither followed the
// other, and neither fetched from it.
func TestTwoServersOfOneHost(t *testing.T) {
	site := http.NewServeMux()
	front := httptest.NewServer(site)
	defer front.Close()
	host := strings.TrimPrefix(front.URL, "http://")
	at := func(path string) string { return "ws://" + host + path }
	a, err := graspsync.ParseRelayURL(at("/a"))
	require.NoError(t, err)
	options := map[string]options{"/a": {}, "/b": {Bootstrap: []graspsync.RelayURL{a}}}
	for path, opt := range options {
		opt.Listen, opt.Domain = "127.0.0.1:0", host+path
		addr, stop := server(t, opt)
		defer stop()
		to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
		site.Handle(path, to)
		site.Handle(path+"/", to)
	}

	owner, people := relaytest.NewKey("owner"), relaytest.NewKey("people")
	work := newWork(t)
	ann := owner.Hosted(nostr.Now()-100, "repo", at("/a"), at("/b"))
	both := func(evs ...*nostr.Event) {
		t.Helper()
		eventually(t, "at both", func() bool {
			for _, ev := range evs {
				if !served(t, host+"/a", ev) || !served(t, host+"/b", ev) {
					return false
				}
			}
			return true
		})
		for _, path := range []string{"/a", "/b"} {
			clone := t.TempDir()
			git(t, clone, "clone", "-q", "--mirror", owner.CloneURL(at(path), "repo"), "x")
			require.Equal(t, refs(t, work), refs(t, clone+"/x"), path)
		}
	}
	state := owner.State(nostr.Now()-90, "repo", refs(t, work), "main")
	hold(t, host+"/a", ann, state)
	git(t, work, "push", "-q", owner.CloneURL(at("/a"), "repo"), "main")
	both(ann, state)

	// The first does not know the second from anywhere but the announcement.
	commit(t, work, "second")
	next := owner.State(nostr.Now()-80, "repo", refs(t, work), "main")
	hold(t, host+"/b", next)
	git(t, work, "push", "-q", owner.CloneURL(at("/b"), "repo"), "main")
	both(ann, next)
	issue := people.Issue(nostr.Now()-50, owner.Ref("repo"), "x")
	require.True(t, publish(t, dial(t, host+"/b"), issue).Accepted)
	both(issue)

	// Who lists one of them does not list the other.
	alone := owner.Hosted(nostr.Now()-100, "alone", at("/b"))
	require.False(t, publish(t, dial(t, host+"/a"), alone).Accepted)
	for _, path := range []string{"/", "/c", "/.well-known/nostr.json"} {
		resp, err := http.Get(front.URL + path) //nolint:noctx // it is our own server
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusNotFound, resp.StatusCode)
	}
	require.Equal(t, "ok\n", get(t, front.URL+"/a/healthz"))
	for path, other := range map[string]string{"/a": "/b", "/b": "/a"} {
		status := get(t, front.URL+path+"/status.json")
		require.Contains(t, status, at(other)+`"`)
		require.NotContains(t, status, `"url": "`+at(path)+`"`, "nobody follows itself")
	}
	http.DefaultClient.CloseIdleConnections()
}
