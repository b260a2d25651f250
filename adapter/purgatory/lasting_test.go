package purgatoryadapter_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// hosted publishes a repository with an issue on another relay. Its git server has no git data.
func (r *rig) hosted() (events []*nostr.Event, url graspsync.CloneURL, has nip34.ObjectID) {
	events = []*nostr.Event{
		owner.Hosted(at(time.Hour), "repo", us, "a.example"),
		owner.State(at(time.Hour), "repo", map[string]string{"refs/heads/main": commit}, "main"),
		stranger.Issue(at(time.Hour), owner.Ref("repo"), "it works"),
	}
	r.net.Add("wss://a.example", relaytest.Behavior{}).Publish(events...)
	url, err := graspsync.ParseCloneURL(owner.CloneURL("a.example", "repo"))
	require.NoError(r.t, err)
	has, err = nip34.ParseObjectID(commit)
	require.NoError(r.t, err)
	r.git.Serve(url, fetchtest.Server{})
	return events, url, has
}

func (r *rig) all(events []*nostr.Event) (n int) {
	for _, ev := range events {
		if r.has(ev) {
			n++
		}
	}
	return n
}

// A complete event that could not be stored expired and was refused for a week. Its state moved
// refs and was never served. A restart did not help.
func TestStoreThatFailsLosesNothingThatIsComplete(t *testing.T) {
	for _, fails := range []time.Duration{20 * time.Minute, 35 * time.Minute, 26 * time.Hour, 72 * time.Hour} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprint(fails, " restarts ", restarts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					defer func() { r.stop() }()
					r.failing.Store(true)
					events, url, has := r.hosted()
					r.git.Serve(url, fetchtest.Server{Objects: []nip34.ObjectID{has}})
					after(fails)
					require.Zero(t, r.all(events))
					require.Empty(t, r.blamed(), "it is not the git server that fails")
					if restarts {
						r.stop()
						r.failing.Store(false)
						r.start()
					}
					r.failing.Store(false)
					after(10 * time.Minute)
					require.Equal(t, len(events), r.all(events))
				})
			})
		}
	}
}

// The same with failures of git, a lock or the disk. In addition, the git server counted as failing
// and empty.
func TestGitThatFailsHereLosesNothingThatIsComplete(t *testing.T) {
	for _, op := range []string{"create", "lock", "quarantine", "missing", "promote", "probe", "refs", "align"} {
		for _, fails := range []time.Duration{20 * time.Minute, 35 * time.Minute, 26 * time.Hour} {
			t.Run(fmt.Sprint(op, " ", fails), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					defer func() { r.stop() }()
					var failing atomic.Bool
					failing.Store(true)
					r.git.FailWith(func(o string) error {
						if o == op && failing.Load() {
							return errDisk
						}
						return nil
					})
					events, url, has := r.hosted()
					r.git.Serve(url, fetchtest.Server{Objects: []nip34.ObjectID{has}})
					after(fails)
					require.Less(t, r.all(events), len(events))
					require.Empty(t, r.blamed(), "it is not the git server that fails")
					failing.Store(false)
					after(10 * time.Minute)
					require.Equal(t, len(events), r.all(events))
				})
			})
		}
	}
}

// With a custom Store and a relay without hooks, purgatory noticed stored events only within an
// hour.
func TestStoreTellsPurgatory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer func() { r.stop() }()
		events, url, has := r.hosted()
		r.git.Serve(url, fetchtest.Server{Objects: []nip34.ObjectID{has}})
		after(10 * time.Minute)
		require.Equal(t, len(events), r.all(events))

		a, next := r.net.Relays()[0], strings.Repeat("2", 40)
		id, err := nip34.ParseObjectID(next)
		require.NoError(t, err)
		elsewhere, err := graspsync.ParseCloneURL(owner.CloneURL("b.example", "repo"))
		require.NoError(t, err)
		r.git.Serve(elsewhere, fetchtest.Server{Objects: []nip34.ObjectID{id}})
		state := owner.State(at(0), "repo", map[string]string{"refs/heads/main": next}, "main")
		a.Publish(state)
		after(time.Minute)
		require.False(t, r.has(state))
		a.Publish(owner.Hosted(at(0), "repo", us, "a.example", "b.example"))
		after(5 * time.Minute)
		require.True(t, r.has(state))
	})
}
