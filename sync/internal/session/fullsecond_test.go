package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// steady is a source of the default choices.
type steady struct{}

func (steady) n(n int) int { return min(1, n-1) }
func (steady) done() bool  { return true }

// honest returns a world with a well-behaved relay with these events.
func honest(t *testing.T, kind relayKind, limit int, events []*nostr.Event, change func(*Config)) *world {
	t.Helper()
	w := newWorld(t, steady{})
	c := defaults()
	c.PageLimit, c.IDChunk, c.MaxPage, c.NegIDs = 500, 250, 50_000, 200_000
	if change != nil {
		change(&c)
	}
	w.s, w.limit, w.cap, w.kind, w.calm = New(c), c.Historic, limit, kind, true
	w.events, w.hidden, w.held = events, make(map[string]bool), make(map[string]bool)
	w.negMax, w.negFrame = 8, 60_000
	return w
}

// fetchAll fetches filters to their end and returns the result.
func (w *world) fetchAll(kind plan.Kind, fs ...nostr.Filter) (Done, *worldBatch) {
	w.nextID++
	b := &worldBatch{got: make(map[string]bool), held: make(map[string]bool)}
	for id := range w.held {
		b.held[id] = w.held[id]
	}
	b.Batch = batchOf(w.nextID, kind, fs...)
	w.batches[b.ID] = b
	w.do("fetch", w.s.Fetch(w.now, b.Batch))
	w.finish()
	return w.dones[len(w.dones)-1], b
}

// crowd returns n events of one second and one older event, newest first.
func crowd(n, roots, kinds, authors int) (events []*nostr.Event) {
	for i := range n {
		ev := event(i, -time.Hour, fmt.Sprint("root", i%roots))
		ev.Kind = 1617 + i/roots%kinds
		ev.PubKey = fmt.Sprintf("%064x", 1+i/roots/kinds%authors)
		events = append(events, ev)
	}
	return append(events, event(n, -2*time.Hour, "root0"))
}

func rootsFilter(roots int, kinds ...int) (f nostr.Filter) {
	f.Kinds = kinds
	f.Tags = nostr.TagMap{}
	for i := range roots {
		f.Tags["e"] = append(f.Tags["e"], fmt.Sprint("root", i))
	}
	return f
}

// missing returns the number of events that did not arrive.
func (w *world) missing(b *worldBatch) (n int) {
	for _, ev := range w.events {
		if !b.got[ev.ID] && !b.held[ev.ID] {
			n++
		}
	}
	return n
}

// P24: 5,000 events in one second are reconciled, or reported as a gap. Older events are fetched.
func TestPromiseP24_SameSecond(t *testing.T) {
	for _, limit := range []int{20, 100, 500} {
		for _, kind := range []relayKind{offersNeg, refusesNegErr} {
			t.Run(fmt.Sprintf("cap=%d/neg=%t", limit, kind == offersNeg), func(t *testing.T) {
				w := honest(t, kind, limit, crowd(5_000, 10, 3, 10), nil)
				// A Recent batch begins with pages.
				d, b := w.fetchAll(plan.Recent, rootsFilter(10))
				require.True(t, b.got[w.events[5_000].ID], "what is below")
				require.LessOrEqual(t, w.sent[wire.TypeReq]+w.sent[wire.TypeNegOpen], 5_000/limit+20)
				if kind == offersNeg {
					require.Zero(t, w.missing(b))
					require.Equal(t, plan.Complete, d.Result)
					require.Zero(t, d.Report.Seconds)
					return
				}
				require.NotZero(t, w.missing(b))
				require.Equal(t, plan.Gaps, d.Result)
				require.Equal(t, 1, d.Report.Seconds)
			})
		}
	}
}

// A relay reconciled only the newest events up to its cap, and older events were never requested.
func TestReconciledUpToACap(t *testing.T) {
	for _, held := range []int{1, 3, 1 << 30} {
		w := honest(t, offersNeg, 100, spaced(450, time.Second), nil)
		w.negCap = 100
		w.hold(held)
		for _, ev := range w.events[350:] {
			w.held[ev.ID] = false
		}
		d, b := w.fetchAll(plan.History, tagging("x"))
		assert.Zero(t, w.missing(b))
		assert.Equal(t, plan.Complete, d.Result)
		assert.Less(t, w.sent[wire.TypeReq], 10)
	}
	// cut within a second, and the second page fails
	events := crowd(150, 1, 1, 1)
	for _, ev := range events {
		ev.Tags = nostr.Tags{{"e", "x"}}
	}
	w := honest(t, offersNeg, 200, events, nil)
	w.negCap = 100
	w.refuse = func(r wire.Request) bool {
		if r.Filters[0].Until != nil {
			w.say(closed(r.Sub, "error: no"))
		}
		return r.Filters[0].Until != nil
	}
	d, _ := w.fetchAll(plan.History, tagging("x"))
	assert.Equal(t, plan.Failed, d.Result)
	assert.Equal(t, []plan.Cursor{plan.Cursor(events[len(events)-1].CreatedAt)}, d.Cursors)
	// the complete set
	w = honest(t, offersNeg, 100, spaced(100, time.Second), nil)
	d, b := w.fetchAll(plan.History, tagging("x"))
	assert.Zero(t, w.missing(b))
	assert.LessOrEqual(t, d.Report.Pages, 3)
}

// NIP-67: "finish" ends a walk and proves a second, "more" prevents both.
func TestHints(t *testing.T) {
	s, r := paging(t)
	for n := range 10 {
		s.Receive(start, eventMsg(r.Sub, event(n, -time.Duration(n)*time.Second, "x")))
	}
	m := eose(r.Sub)
	m.Hint = wire.HintFinish
	d := one[Done](t, s.Receive(start, m))
	assert.Equal(t, plan.Complete, d.Result)
	assert.Equal(t, 1, d.Report.Pages, "a full page, and yet the end")

	s, r = paging(t)
	m = eose(r.Sub)
	m.Hint = wire.HintMore
	actions := s.Receive(start, m)
	require.Empty(t, only[Done](actions), "an empty page, and yet not the end")
	m.Sub = only[Send](actions)[1].Request.Sub
	d = one[Done](t, s.Receive(start, m))
	assert.Equal(t, plan.Gaps, d.Result)
	assert.Equal(t, 1, d.Report.Seconds)
}

// khatru reports a failed query by NOTICE and EOSE, which is no empty answer.
func TestNoticeAndNothingElseIsAFailure(t *testing.T) {
	s, r := paging(t)
	s.Receive(start, notice("something went wrong"))
	d := one[Done](t, s.Receive(start, eose(r.Sub)))
	assert.Equal(t, plan.Failed, d.Result)

	s, r = paging(t)
	s.Receive(start, notice("hello"))
	s.Receive(start, eventMsg(r.Sub, event(1, 0, "x")))
	assert.Empty(t, only[Done](s.Receive(start, eose(r.Sub))), "there were events")
}

// A relay that ignores until ends the walk with a gap.
func TestUntilIgnored(t *testing.T) {
	w := honest(t, refusesNegErr, 5, crowd(12, 1, 1, 1), nil)
	w.events[0].CreatedAt += 100
	w.rewrite = func(f nostr.Filter) nostr.Filter { f.Until, f.Since = nil, nil; return f }
	d, _ := w.fetchAll(plan.History, rootsFilter(1))
	assert.Equal(t, plan.Gaps, d.Result)
	assert.NotZero(t, d.Report.Seconds)
}
