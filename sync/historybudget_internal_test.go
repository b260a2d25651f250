package sync

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/allowance"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// asking is a connection that notes when it sent something, and what.
type asking struct {
	quiet
	at     *[]time.Time
	sent   *[]wire.Request // nil: whatever it was
	waited *atomic.Int64   // nil: never
}

// Send implements [Conn].
func (c asking) Send(_ context.Context, r wire.Request) error {
	*c.at = append(*c.at, time.Now())
	if c.sent != nil {
		*c.sent = append(*c.sent, r)
	}
	return nil
}

// Traffic implements [Conn].
func (c asking) Traffic() Traffic {
	if c.waited == nil {
		return Traffic{}
	}
	return Traffic{ReadWaited: time.Duration(c.waited.Load())}
}

// byPages is a batch of queries that are asked for by pages.
func byPages(began time.Time, all ...nostr.Filter) plan.Batch {
	b := plan.Batch{ID: 1, Deadline: began.Add(time.Hour)}
	for _, f := range all {
		b.Queries = append(b.Queries, plan.Query{Filter: f, NoNegentropy: true})
	}
	return b
}

// owe uses up so much of what a relay may be asked for.
func owe(c *conn, events int, ours bool) {
	for range events {
		c.stats.work.owe(1, ours)
	}
}

// give gives it back an event at a time, between which all that can happen does.
func give(c *conn, events int, of lane) {
	for range events {
		c.stats.work.give(allowance.Forgery(c.stats.work.most), of)
		synctest.Wait()
	}
}

// does is a command that takes its time, as a Policy may.
func does(d time.Duration) command {
	return func(*session.Session, time.Time) []session.Action {
		time.Sleep(d)
		return nil
	}
}

// What turned out to be of use is there for the next request at once. It went when time alone
// would have given it back, a tenth of a second an event: a relay that had answered all was left
// alone for half a minute.
func TestHistoryGoesOnOnceWhatCameIsOfUse(t *testing.T) {
	for name, l := range map[string]struct {
		lane   lane
		filter nostr.Filter
		owed   int
	}{
		"ours":            {oursLane, nostr.Filter{Tags: nostr.TagMap{"e": {testID(1).String()}}}, 2_000},
		"foreign":         {foreignLane, nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}}, 2_000},
		"foreign, partly": {foreignLane, nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}}, 1_700},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := madeConn(t, Config{})
			var sent []time.Time
			c.conn = asking{at: &sent}
			began := time.Now()
			owe(c, l.owed, l.lane == oursLane)
			c.fetch(byPages(began, l.filter))
			go func() {
				time.Sleep(3 * time.Second)
				give(c, l.owed, l.lane)
			}()
			time.AfterFunc(time.Minute, c.hangup)
			c.converse(nil, nil)
			require.NotEmpty(t, sent, name)
			require.Equal(t, 3*time.Second, sent[0].Sub(began), name)
		})
	}
}

// An answer that is here when its time is over counts, and so does that it was we who did not read,
// whatever it is that has the connection look.
func TestWhatHasArrivedCountsFirst(t *testing.T) {
	for name, arrived := range map[string]bool{"read ahead": true, "we waited for memory": false} {
		for range 20 { // either may come first
			synctest.Test(t, func(t *testing.T) {
				c := madeConn(t, Config{})
				var at []time.Time
				var sent []wire.Request
				var waited atomic.Int64
				c.conn = asking{at: &at, sent: &sent, waited: &waited}
				frames := make(chan wire.Message, frameQueue)
				var many []nostr.Filter
				for _, kind := range []int{30617, 30618, 1617, 1618, 1621} {
					many = append(many, nostr.Filter{Kinds: []int{kind}})
				}
				c.fetch(byPages(time.Now(), many...))
				go func() {
					time.Sleep(time.Second)
					synctest.Wait()
					first := sent[0].Sub
					owe(c, 20_000, false)
					c.mailbox.put(does(0))
					time.Sleep(c.env.cfg.fixed.FirstAnswer - time.Second - time.Millisecond)
					c.mailbox.put(does(2 * time.Millisecond))
					time.Sleep(time.Millisecond)
					if arrived {
						frames <- wire.Message{Type: wire.TypeEOSE, Sub: first, Size: 20}
					} else {
						waited.Store(int64(time.Minute))
					}
					for range 20_000 {
						c.stats.work.give(allowance.Forgery(c.stats.work.most), foreignLane)
					}
					time.Sleep(time.Second)
					c.hangup()
				}()
				c.converse(frames, nil)
				if arrived {
					require.Equal(t, plan.CursorDone, c.session.Cursors()[1][0], name)
				}
				for _, r := range sent {
					require.False(t, !arrived && r.Type == wire.TypeClose && r.Sub == sent[0].Sub, name)
				}
			})
		}
	}
}

// A connection that ends late takes nothing away from the one after it: what that waits for, and
// that it is there.
func TestAnEarlierConnectionWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := madeConn(t, Config{})
		next := newConn(t.Context(), old.env, old.url, old.epoch+1, old.stats)
		next.session = session.New(sessionConfig(old.env.cfg, old.stats, old.believes.limits, wire.Info{}))
		var sent []time.Time
		next.conn = asking{at: &sent}
		began := time.Now()
		owe(old, 2_000, false)
		old.mailbox.put(does(2 * time.Second))
		go old.converse(nil, nil)
		time.Sleep(time.Second)
		old.hangup()
		next.fetch(byPages(began, nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}}))
		go next.converse(nil, nil)
		time.Sleep(2 * time.Second)
		give(old, 2_000, foreignLane)
		time.Sleep(time.Minute)
		next.hangup()
		synctest.Wait()
		require.NotEmpty(t, sent)
		require.Equal(t, 3*time.Second, sent[0].Sub(began))
	})
}

// Nothing is left for history by what comes live if none waits any more, also while the relay is
// left alone.
func TestNothingIsLeftForWhatDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := madeConn(t, Config{})
		var sent []time.Time
		c.conn = asking{at: &sent}
		owe(c, 2_000, false)
		c.fetch(byPages(time.Now(), nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}}))
		frames := make(chan wire.Message, frameQueue)
		go c.converse(frames, nil)
		synctest.Wait()
		require.NotZero(t, c.stats.work.foreignNeeds.bytes)
		frames <- wire.Message{Type: wire.TypeNotice, Text: "rate-limited: slow down", Size: 20}
		synctest.Wait()
		c.abandon(1)
		synctest.Wait()
		require.Zero(t, c.stats.work.foreignNeeds.bytes)
		c.hangup()
		synctest.Wait()
	})
}
