package purgatory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// Maintainers are read again under the lock, because earlier data may be stale.
func TestPromiseP12_JudgedUnderTheLock(t *testing.T) {
	run(t, purgatory.Config{Membership: unanswered()}, func(t *testing.T, w *world) {
		at, d := now()-500, nostrTag{"d", "r"}
		w.relay.put(listing(alice, at, bob))
		w.git.Put(repoOf(alice), object(1))
		w.git.FailWith(func(op string) error {
			if op == "lock" { // alice has removed the maintainer
				w.relay.mu.Lock()
				defer w.relay.mu.Unlock()
				w.relay.events = []*nostrEvent{alice.Event(at+1, graspsync.KindAnnouncement, "", d)}
			}
			return nil
		})
		s := says(bob, now(), "main", 1)
		w.held(s)
		wait(time.Minute)
		require.Empty(t, w.git.RefsOf(repoOf(alice)))
		require.False(t, w.relay.has(s))
	})
}

// A state is not served before its held announcement.
func TestTrapP1_NotBeforeItsAnnouncement(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		a, s := announce(alice, now(), "a.example/r.git"), says(alice, now(), "main", 1)
		w.git.Serve(clone("a.example/r.git"), serving(1))
		w.relay.mu.Lock()
		w.relay.refuse = func(ev *nostrEvent) error {
			if ev.Kind == graspsync.KindAnnouncement {
				return errors.New("not now")
			}
			return nil
		}
		w.relay.mu.Unlock()
		w.held(a)
		w.held(s)
		wait(time.Minute)
		require.Equal(t, map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)}, w.git.RefsOf(repoOf(alice)))
		require.Empty(t, w.relay.events)
		w.relay.mu.Lock()
		w.relay.refuse = nil
		w.relay.mu.Unlock()
		wait(6 * time.Minute)
		require.True(t, w.relay.has(a))
		require.True(t, w.relay.has(s))
	})
}
