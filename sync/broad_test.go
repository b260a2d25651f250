package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// known starts a manager that has a repository with so many issues, of which the last few are
// missing here, and a relay that has all of them and what else is given.
func known(t *testing.T, behavior relaytest.Behavior, issues, missing int, others ...*nostr.Event) (*rig, *relaytest.Relay, []*nostr.Event) {
	t.Helper()
	net, owner := relaytest.NewNetwork(), relaytest.NewCheapKey("owner")
	a := net.Add("wss://a.example", behavior)
	events := []*nostr.Event{owner.Hosted(at(48*time.Hour), "repo", us, "a.example")}
	for i := range issues {
		events = append(events, owner.Issue(at(time.Hour+time.Duration(i*7919%issues)*time.Minute), owner.Ref("repo"), fmt.Sprint(i)))
	}
	a.Publish(events...)
	a.Publish(others...)
	r := &rig{t: t, store: memstore.New()}
	r.save(events[:len(events)-missing]...)
	return start(t, net, r.store, relaysync.Config{}), a, events
}

func hasAll(r *rig, events []*nostr.Event) bool {
	for _, ev := range events {
		if !r.has(ev) {
			return false
		}
	}
	return true
}

// notes are what is of no use here.
func notes(n int) (events []*nostr.Event) {
	stranger := relaytest.NewCheapKey("stranger")
	for i := range n {
		events = append(events, stranger.Event(at(time.Hour+time.Duration(i)*time.Second), 1, fmt.Sprint("hello ", i)))
	}
	return events
}

// A relay of which nearly all is here is compared with as a whole, and again at the daily pass.
// What is of no use of it comes once.
func TestBroad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, a, events := known(t, relaytest.Behavior{}, 800, 7, notes(50)...)
		defer r.stop()
		after(30 * time.Second)
		assert.True(t, hasAll(r, events))
		s := r.relay("wss://a.example")
		assert.Equal(t, s.Wanted, s.Confirmed)
		assert.Equal(t, "NIP-77", s.Method)
		opened := len(a.Requests(wire.TypeNegOpen))
		assert.LessOrEqual(t, opened, 5, "one, and those for the issues that were missing")
		verified := r.manager.Status().Events.Verified
		assert.Equal(t, uint64(57), verified)

		after(26 * time.Hour)
		s = r.relay("wss://a.example")
		assert.Equal(t, s.Wanted, s.Confirmed)
		assert.LessOrEqual(t, len(a.Requests(wire.TypeNegOpen)), opened+2)
		assert.Equal(t, verified, r.manager.Status().Events.Verified)
		assert.Zero(t, r.manager.Status().Events.Dropped["unproductive"])
	})
}

// Where that is of no use, all is here as soon, and nobody is told of a failure.
func TestBroadInVain(t *testing.T) {
	for name, c := range map[string]struct {
		behavior relaytest.Behavior
		notes    int
	}{
		"a relay full of what is of no use": {notes: 20_000},
		"no NIP-77":                         {behavior: relaytest.Behavior{Negentropy: relaytest.NegNotice}},
		"silent":                            {behavior: relaytest.Behavior{Negentropy: relaytest.NegSilent}},
		"announces what it never serves":    {behavior: relaytest.Behavior{Hostility: relaytest.Hostility{LyingNegentropy: 20}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, a, events := known(t, c.behavior, 800, 7, notes(c.notes)...)
				defer r.stop()
				after(time.Minute)
				assert.True(t, hasAll(r, events))
				s := r.relay("wss://a.example")
				require.Equal(t, s.Wanted, s.Confirmed)
				assert.Empty(t, s.LastError)
				assert.Less(t, r.manager.Status().Events.Verified, uint64(60), "what is of no use is not fetched")
				assert.Empty(t, a.Violations())
			})
		})
	}
}
