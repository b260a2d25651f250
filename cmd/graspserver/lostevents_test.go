//go:build !race

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A server whose folder of events was lost said nothing of that, and its repositories left within two
// hours.
func TestCaseC6_LostEventsAreSaid(t *testing.T) {
	admin, owner, work := relaytest.NewKey("admin"), relaytest.NewKey("owner"), newWork(t)
	opt := options{Data: t.TempDir(), SummaryEvery: time.Minute, Admin: []graspsync.PubKey{admin.PubKey()}}
	opt.Listen = freeAddr(t)
	opt.Domain = opt.Listen
	addr, stop := server(t, opt)
	ready := func() string {
		resp, err := http.Get("http://" + addr + "/readyz") //nolint:noctx // of ours
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, string(body) == "ready\n", resp.StatusCode == http.StatusOK)
		return string(body)
	}
	clones := func() (n int) {
		for i := range 3 {
			if _, err := try(t, work, "ls-remote", "--exit-code", owner.CloneURL("ws://"+addr, fmt.Sprint("repo", i))); err == nil {
				n++
			}
		}
		return n
	}
	for i := range 3 {
		name := fmt.Sprint("repo", i)
		hold(t, addr, owner.Hosted(nostr.Now()-100, name, "ws://"+addr), owner.State(nostr.Now()-90, name, refs(t, work), "main"))
		git(t, work, "push", "-q", owner.CloneURL("ws://"+addr, name), "main")
	}
	eventually(t, "all are served", func() bool { return clones() == 3 })
	eventually(t, "ready", func() bool { return ready() == "ready\n" })
	stop()

	events, aside := filepath.Join(opt.Data, "events"), filepath.Join(opt.Data, "aside")
	require.NoError(t, os.Rename(events, aside))
	said := &record{}
	_, stop = serverTo(t, opt, said)
	eventually(t, "it is logged", func() bool { return strings.Contains(said.String(), "level=ERROR") })
	require.Contains(t, said.String(), "count=3 total=3")
	for range 5 {
		require.Contains(t, ready(), "not ready")
	}
	require.Contains(t, get(t, "http://"+addr+"/metrics"), "\npurgatory_departures_unconfirmed 3\n")
	require.Contains(t, get(t, "http://"+addr+"/metrics"), "\nngit_server_ready 0\n")
	eventually(t, "the page", func() bool { return strings.Contains(get(t, "http://"+addr+"/status/"), "3 of 3") })
	require.Contains(t, get(t, "http://"+addr+"/status.json"), `"git": {`)
	// A deletion of the owner's has their repositories looked at.
	publish(t, dial(t, addr), owner.Event(nostr.Now(), nostr.KindDeletion, "", nostr.Tag{"a", "30617:" + owner.Hex() + ":another"}))
	require.Equal(t, 3, clones())
	stop()

	require.NoError(t, os.Rename(events, filepath.Join(opt.Data, "empty")))
	require.NoError(t, os.Rename(aside, events))
	_, stop = server(t, opt)
	eventually(t, "ready with the events of before", func() bool { return ready() == "ready\n" })
	require.Equal(t, 3, clones())
	stop()

	require.NoError(t, os.RemoveAll(events))
	_, stop = server(t, opt)
	defer func() { stop() }()
	eventually(t, "asked for", func() bool {
		return strings.Contains(get(t, "http://"+addr+"/status.json"), `"unconfirmed_departures": 3`)
	})
	for {
		var out bytes.Buffer
		err := command(t.Context(), []string{"-url", "http://" + addr, "confirm", "departures"}, admin.Secret(), &out)
		if err == nil {
			require.Contains(t, out.String(), "3 repositories without an announcement go out of service")
			break
		}
		require.ErrorContains(t, err, "signed before")
		time.Sleep(100 * time.Millisecond)
	}
	eventually(t, "they have left", func() bool { return clones() == 0 })
	require.Equal(t, "ready\n", ready())
}
