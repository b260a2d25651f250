package purgatoryadapter_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
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

// An expired event was refused as long as the process lived, even if its git data arrived a moment
// later.
func TestWhatWasGivenUpComesAfterAWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer func() { r.stop() }()
		events, url, has := r.hosted()
		after(40 * time.Minute)
		r.git.Serve(url, fetchtest.Server{Objects: []nip34.ObjectID{has}})
		after(5 * 24 * time.Hour)
		require.Zero(t, r.all(events), "that is what a week is for")
		after(6 * 24 * time.Hour) // until the id is forgotten, and the next full pass
		require.Equal(t, len(events), r.all(events))
	})
}

// speechless is a Store without outcomes.
type speechless struct{ relaysync.Store }

func (speechless) Save(_ context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	return make([]graspsync.Outcome, len(events)), nil
}

// A Store that returns no outcome has not stored the event.
func TestOutcomeThatSaysNothing(t *testing.T) {
	host := purgatoryadapter.Host{Release: purgatoryadapter.Save(speechless{})}
	require.ErrorContains(t, host.Relay().Save(t.Context(), eventtest.Of(owner.Hosted(1, "repo", us))), "without an error")
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

// An expired event was refused for a week, and the operator could not change that.
func TestWhatWasGivenUpIsForgiven(t *testing.T) {
	for _, c := range []struct {
		waits    time.Duration
		restarts bool
		ids      int
	}{{26 * time.Hour, false, 2}, {26 * time.Hour, true, 2}, {40 * time.Minute, false, 1}, {40 * time.Minute, true, 1}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			defer func() { r.stop() }()
			events, url, has := r.hosted()
			after(c.waits)
			require.Zero(t, r.all(events))
			r.git.Serve(url, fetchtest.Server{Objects: []nip34.ObjectID{has}})
			if c.restarts {
				r.stop()
				r.start()
				after(10 * time.Minute)
			}
			ids, err := r.waits.ForgetExpired(t.Context(), owner.Ref("repo"))
			require.NoError(t, err)
			require.Len(t, ids, c.ids, "the state, and the announcement unless it can be revived")
			for _, id := range ids {
				require.NoError(t, r.manager.RulesChanged(t.Context(), graspsync.OnOperatorRequest(id)))
			}
			after(10 * time.Minute)
			require.Equal(t, len(events), r.all(events))
			again, err := r.waits.ForgetExpired(t.Context(), owner.Ref("repo"))
			require.NoError(t, err)
			require.Empty(t, again)
		})
	}
}

// vague is a Store that stores events and then reports a failure.
type vague struct {
	relaysync.Store
	said bool
}

func (s *vague) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	out, err := s.Store.Save(ctx, events)
	if !s.said {
		s.said = true
		return nil, errDisk
	}
	return out, err
}

// heard counts notifications of purgatory.
type heard struct {
	purgatoryadapter.Purgatory
	arrived int
}

func (h *heard) NotifyStored(graspsync.Event) { h.arrived++ }

func TestStoreTellsOfWhatItStoredWithoutSayingSo(t *testing.T) {
	policy, told := purgatoryadapter.NewPolicy(nil), &heard{}
	policy.Join(told)
	store := policy.Store(&vague{Store: memstore.New()})
	events := []graspsync.Incoming{{Event: eventtest.Of(owner.Hosted(1, "repo", us))}}
	_, err := store.Save(t.Context(), events)
	require.ErrorIs(t, err, errDisk)
	_, err = store.Save(t.Context(), events)
	require.NoError(t, err)
	require.Equal(t, 1, told.arrived)
}

// If an owner had more repositories than can be held, the rest followed a minute later although
// earlier ones were complete long before.
func TestMoreRepositoriesThanMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer func() { r.stop() }()
		id, err := nip34.ParseObjectID(strings.Repeat("1", 40))
		require.NoError(t, err)
		var events []*nostr.Event
		for i := range 150 {
			name := fmt.Sprint("repo", i)
			at, url := at(time.Hour+time.Duration(i)*time.Second), fmt.Sprintf("https://git%d.example/%s.git", i%30, name)
			clone, err := graspsync.ParseCloneURL(url)
			require.NoError(t, err)
			r.git.Serve(clone, fetchtest.Server{Objects: []nip34.ObjectID{id}})
			events = append(events,
				owner.Announcement(at, name, []string{"wss://" + us, "wss://a.example"}, []string{owner.CloneURL("wss://"+us, name), url}),
				owner.State(at, name, map[string]string{"refs/heads/main": id.String()}, "main"))
		}
		r.net.Add("wss://a.example", relaytest.Behavior{}).Publish(events...)
		began := time.Now()
		for r.all(events) < len(events) && time.Since(began) < 10*time.Minute {
			after(time.Second)
		}
		require.Positive(t, r.waits.Status().Dropped["author"])
		require.Less(t, time.Since(began), 45*time.Second)
	})
}
