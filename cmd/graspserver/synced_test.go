//go:build !race

package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// record keeps what is written to it.
type record struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// While two of four repositories wait for a git server that may be asked twice a minute, the page, the
// log, /status.json and /metrics said "in sync".
func TestCaseC18_ServerIsNotSyncedWithoutGitData(t *testing.T) {
	from, ours := freeAddr(t), freeAddr(t)
	_, stop := server(t, options{Listen: from, Domain: from})
	defer stop()
	work, owner := newWork(t), relaytest.NewKey("owner")
	for i := range 4 {
		name := fmt.Sprint("repo", i)
		ann := owner.Hosted(nostr.Now()-100, name, "ws://"+from, "ws://"+ours)
		hold(t, from, ann, owner.State(nostr.Now()-90, name, refs(t, work), "main"))
		git(t, work, "push", "-q", owner.CloneURL("ws://"+from, name), "main")
		eventually(t, "the announcement", func() bool { return served(t, from, ann) })
	}
	u, err := graspsync.ParseRelayURL("ws://" + from)
	require.NoError(t, err)
	said := &record{}
	_, stopOurs := serverTo(t, options{
		Listen: ours, Domain: ours, Bootstrap: []graspsync.RelayURL{u}, DomainConcurrent: 1, DomainRate: 2,
		SummaryEvery: 50 * time.Millisecond,
	}, said)
	defer stopOurs()
	var status struct {
		Synced bool
		Relays []struct{ Synced bool }
		Git    struct{ Complete, Missing, Unobtainable int }
	}
	eventually(t, "two are here, and all events are", func() bool {
		require.NoError(t, json.Unmarshal([]byte(get(t, "http://"+ours+"/status.json")), &status))
		require.False(t, status.Synced)
		return status.Git.Complete == 2 && len(status.Relays) > 0 && status.Relays[0].Synced
	})
	require.Equal(t, 2, status.Git.Missing)
	// the page has what it looked at some seconds ago
	eventually(t, "the page", func() bool { return strings.Contains(get(t, "http://"+ours+"/status/"), "2 of 4 repositories") })
	metrics := get(t, "http://"+ours+"/metrics")
	require.Contains(t, metrics, "\nngit_sync_synced 0\n")
	require.Contains(t, metrics, "\nngit_sync_repositories{git=\"missing\"} 2\n")
	eventually(t, "the log", func() bool {
		return strings.Contains(said.String(), `msg=summary state="Catching up: 2 of 4 repositories"`)
	})
	require.NotContains(t, said.String(), "In sync")
	progress := regexp.MustCompile(`msg="catching up" percent=\d+ state="Catching up: . of 4 repositories"`).FindAllString(said.String(), -1)
	require.Contains(t, progress[len(progress)-1], "2 of 4")
	require.Len(t, slices.Compact(slices.Clone(progress)), len(progress), "a line without progress")
}
