package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

type later time.Duration

// Error implements error.
func (l later) Error() string { return "address had its share" }

// RetryAfter returns the time until another attempt is allowed.
func (l later) RetryAfter() time.Duration { return time.Duration(l) }

// A relay that our own limit of attempts kept from being dialed was dead after a day, although no
// attempt had reached it.
func TestOurOwnRefusalIsNoFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{
			DialError: fmt.Errorf("%w: %w", relaysync.ErrNotDialed, later(time.Minute)),
		})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		issue := owner.Issue(at(time.Hour), owner.Ref("repo"), "x")
		a.Publish(issue)
		after(26 * time.Hour)
		s := r.relay("wss://a.example")
		assert.Equal(t, "disconnected", s.Health)
		assert.Zero(t, s.Failures)
		assert.Zero(t, s.FailedAttempts)
		assert.Contains(t, s.LastError, "had its share")
		assert.Greater(t, len(a.Dials()), 100, "tried every ten minutes or so")
		assert.Less(t, len(a.Dials()), 200)
		a.Update(func(b *relaytest.Behavior) { b.DialError = nil })
		after(12 * time.Minute)
		assert.Equal(t, "live", r.relay("wss://a.example").Phase)
		assert.True(t, r.has(issue))
	})
}
