package session

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// fetchBroad compares the relay as a whole, for so many bytes.
func (w *world) fetchBroad(bytes int) (Done, *worldBatch) {
	w.nextID++
	b := &worldBatch{got: make(map[string]bool), held: make(map[string]bool)}
	for id := range w.held {
		b.held[id] = w.held[id]
	}
	b.Batch = batchOf(w.nextID, plan.History, nostr.Filter{})
	b.Queries[0].Broad = bytes
	w.batches[b.ID] = b
	w.do("fetch", w.s.Fetch(w.now, b.Batch))
	w.finish()
	return w.dones[len(w.dones)-1], b
}

// holdBut has us hold all of the relay's events but every n-th.
func (w *world) holdBut(n int) {
	for i, ev := range w.events {
		w.held[ev.ID] = i%n != n-1
	}
}

// believes is what a session believes of its relay besides what it was told at first.
func (w *world) believes() (relaylimits.Limits, bool) {
	return w.s.terms.Limits, w.s.history.reconciling.offered
}

func TestBroad(t *testing.T) {
	for _, but := range []int{1 << 30, 100, 50} {
		for _, n := range []int{1_000, 1_001} {
			w := honest(t, offersNeg, 500, spaced(n, time.Hour), nil)
			w.holdBut(but)
			missing := n / but
			d, b := w.fetchBroad(1 << 20)
			assert.Equal(t, plan.Complete, d.Result)
			assert.Zero(t, w.missing(b))
			assert.Equal(t, Negent, d.Report.Method)
			assert.Equal(t, missing+1, d.Report.Events, "and the oldest again")
			assert.Equal(t, 1, d.Report.Reconciled)
			assert.Equal(t, 1, w.sent[wire.TypeNegOpen])
			assert.Equal(t, min(1, missing)+1, w.sent[wire.TypeReq], "the ids, and a look at the end")
		}
	}
}

// Some relays reconcile only so many events, the newest, and do not say so. Of all that they
// have that would always leave something out, whatever the number is.
func TestBroadOfARelayThatCuts(t *testing.T) {
	const n = 1_000
	for _, most := range []int{1, 40, 137, 375, 500, 999} {
		for _, but := range []int{1 << 30, 100} {
			w := honest(t, offersNeg, 500, spaced(n, time.Hour), nil)
			w.negCap = most
			w.holdBut(but)
			d, _ := w.fetchBroad(1 << 20)
			assert.Equal(t, plan.Failed, d.Result, "of %d", most)
			assert.LessOrEqual(t, w.sent[wire.TypeReq], 2)
		}
	}
}

// A relay that has mostly what is of no use here costs no more than it may, and is asked for
// nothing of that.
func TestBroadOfAForeignRelay(t *testing.T) {
	w := honest(t, offersNeg, 500, spaced(20_000, time.Minute), nil)
	w.hold(40)
	before, offered := w.believes()
	bytes := 0
	w.negBytes = func(n int) { bytes += 2 * n }
	const budget = 100_000
	d, _ := w.fetchBroad(budget)
	assert.Equal(t, plan.Failed, d.Result)
	assert.Zero(t, w.sent[wire.TypeReq])
	assert.Equal(t, 1, w.sent[wire.TypeNegOpen])
	assert.Equal(t, 1, w.sent[wire.TypeNegClose])
	assert.Less(t, bytes, budget+2*w.negFrame, "and one answer")
	after, still := w.believes()
	assert.Equal(t, before, after)
	assert.Equal(t, offered, still)
}

// What says no to everything at once may say yes to what is wanted.
func TestBroadRefused(t *testing.T) {
	for _, text := range []string{
		"blocked: too many query results", "error: bad filter", "invalid: filter must name kinds",
		"blocked: an author must be specified to get their kind:1 notes", "restricted: not for you", "auth-required: who are you",
		"rate-limited: slow down", "closed: lost", "error: too many concurrent REQs", "bad req: too many filters", "too many tag values",
	} {
		w := honest(t, offersNeg, 500, spaced(300, time.Hour), nil)
		w.holdBut(100)
		w.negRefuse = text
		before, _ := w.believes()
		d, _ := w.fetchBroad(1 << 20)
		assert.Equal(t, plan.Failed, d.Result, text)
		assert.Zero(t, w.sent[wire.TypeReq], text)
		after, offered := w.believes()
		after.Pace = before.Pace
		assert.Equal(t, before, after, text)
		assert.True(t, offered, text)

		w.negRefuse = ""
		d, b := w.fetchAll(plan.History, tagging("x"))
		assert.Equal(t, plan.Complete, d.Result, text)
		assert.Zero(t, w.missing(b), text)
		assert.Equal(t, Negent, d.Report.Method, text)
	}
}

// One that does not answer may have too much to look at. That it has no NIP-77 it says itself.
func TestBroadUnanswered(t *testing.T) {
	for kind, want := range map[relayKind]bool{refusesSilently: true, refusesNotice: false, refusesNegErr: false} {
		w := honest(t, kind, 500, spaced(300, time.Hour), nil)
		w.holdBut(100)
		d, _ := w.fetchBroad(1 << 20)
		assert.Equal(t, plan.Failed, d.Result)
		_, offered := w.believes()
		assert.Equal(t, want, offered)
		assert.Zero(t, w.sent[wire.TypeReq])
	}
}

// What was announced and is not served may be what is wanted, or of no use to anybody here: what
// is wanted is asked for by itself.
func TestBroadUnserved(t *testing.T) {
	w := honest(t, offersNeg, 500, spaced(300, time.Hour), nil)
	w.holdBut(50)
	w.hidden[w.events[49].ID] = true
	d, b := w.fetchBroad(1 << 20)
	assert.Equal(t, plan.Failed, d.Result)
	assert.Equal(t, 1, w.missing(b))
	assert.Len(t, d.Report.Unserved, 1)
}

// It is not tried where it can't be of use.
func TestBroadNotTried(t *testing.T) {
	for name, c := range map[string]struct {
		held   int
		change func(*Config)
	}{
		"nothing is here":      {held: 0},
		"little is here":       {held: leastBroad - 1},
		"the relay takes less": {held: 300, change: func(c *Config) { c.Limits.NegentropyMax = 250 }},
		"no NIP-77":            {held: 300, change: func(c *Config) { c.Limits.NoNegentropy = true }},
	} {
		w := honest(t, offersNeg, 500, spaced(300, time.Hour), c.change)
		for _, ev := range w.events[:c.held] {
			w.held[ev.ID] = true
		}
		d, _ := w.fetchBroad(1 << 20)
		assert.Equal(t, plan.Failed, d.Result, name)
		assert.Empty(t, w.sent, name)
		assert.NotEmpty(t, d.Report.Err)
	}
}

// What came for one is here when the next begins: a set that was read before does not have it.
func TestBroadLoadsAnew(t *testing.T) {
	w := honest(t, offersNeg, 500, spaced(300, time.Hour), nil)
	w.holdBut(1 << 30)
	load := func() LoadSet {
		b := batchOf(77, plan.History, nostr.Filter{})
		b.Queries[0].Broad = 1 << 20
		l := one[LoadSet](t, w.s.Fetch(w.now, b))
		w.s.Abandon(w.now, 77)
		return l
	}
	w.fetchBroad(1 << 20)
	l := load()
	require.True(t, l.Broad)
	require.Zero(t, l.Since, "nothing came")
	w.held[w.events[3].ID] = false
	w.fetchBroad(1 << 20)
	require.Equal(t, w.now, load().Since)
}

// Whatever a relay that reconciles cuts, hides, delays or loses, what is told to be complete is,
// and what is wanted is fetched after what could not be told.
func TestWorldsOfBroad(t *testing.T) {
	tried, complete, cut := 0, 0, 0
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, &randSource{rand.New(rand.NewPCG(seed, 31)), 200})
			calm := seed%3 > 0
			w.wholes = true
			w.calm, w.kind, w.rules, w.full = calm, offersNeg, rules{}, 0
			c := defaults()
			c.IDChunk = 30
			w.s, w.limit, w.cap = New(c), c.Historic, 50
			w.events = nil
			for i, ev := range spaced(leastBroad+w.src.n(300), time.Duration(w.src.n(3))*time.Second) {
				ev.Tags = nostr.Tags{{"e", roots[w.src.n(len(roots))]}}
				w.events = append(w.events, ev)
				w.held[ev.ID], w.hidden[ev.ID] = w.src.n(20+i%3) > 0, w.src.n(200) == 0
			}
			if w.src.n(3) == 0 {
				w.cutsWhole, w.negCap = true, 1+w.src.n(len(w.events))
			}
			w.negFrame = []int{4096, 60_000}[w.src.n(2)]
			if !calm {
				w.run()
			}
			for range 2 {
				for range 4 {
					w.fetch()
				}
				w.finish()
			}
			tried, complete = tried+w.broad, complete+w.broadComplete
			if w.negCap > 0 && w.negCap < len(w.events) {
				cut += w.broadComplete
			}
			if calm && !slices.Contains(slices.Collect(maps.Values(w.hidden)), true) {
				for _, r := range w.results {
					require.Less(t, r, plan.Failed)
				}
			}
		})
	}
	t.Logf("%d tried, %d complete", tried, complete)
	require.Greater(t, complete, 100)
	require.Greater(t, tried, complete+100)
	require.Zero(t, cut, "they were cut")
}
