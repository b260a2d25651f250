package purgatory

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
	"github.com/graspsync/graspsync/state"
)

// A git server, or a repository, that was to be left alone for a while when we were
// started again was left alone for as much longer as the clock was set back after that.
func TestRecalledGoesByTheMonotonicClock(t *testing.T) {
	store := state.NewMemory()
	ref := graspsync.RepoRef{Owner: graspsync.PubKey{1}, Identifier: "r"}
	from, err := graspsync.ParseCloneURL("https://a.example/r.git")
	require.NoError(t, err)
	now := time.Now()
	fetches := func() *fetches {
		p := newPurgatory(nil, nil, nil, store, Config{}.withDefaults(), func(string) {}, 1)
		require.NoError(t, p.engine.recall(t.Context()))
		return p.fetches
	}
	f := fetches()
	end := f.servers.start(t.Context())
	f.servers.started(syncqueue.Fetch{Repo: ref, URL: from, Attempt: 3, Wait: time.Minute})
	f.servers.found(from.HostPort(), 2, now.Add(time.Hour))
	f.servers.inVain(ref, patience{failures: 2, until: now.Add(time.Hour)})
	f.servers.memory.put(ref, keyOf(from, false), lack{whatever: true, until: now.Add(time.Hour)})
	add(f.servers.memory.hosts, from.HostPort(), 5, now)
	end()

	f = fetches()
	s, h := f.servers.servers[from.HostPort()], f.servers.hunted[ref]
	require.NotNil(t, s)
	require.NotNil(t, h)
	for name, at := range map[string]time.Time{
		"the last request": s.last, "broken": s.brokenUntil, "the next attempt": h.next, "in vain": h.vain.until,
		"lacking": f.servers.memory.lacks[ref][keyOf(from, false)].until, "the day": f.servers.memory.hosts[from.HostPort()].since,
	} {
		require.Contains(t, at.String(), "m=", name)
	}
	require.WithinDuration(t, now.Add(time.Hour), s.brokenUntil, time.Second)
	require.WithinDuration(t, now.Add(time.Minute), h.next, time.Second)
	require.True(t, recalled(now, time.Time{}, time.Hour).IsZero())
	require.True(t, recalled(now, now.Add(99*time.Hour).Round(0), time.Hour).Equal(now.Add(time.Hour)))
}
