package plan

import (
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// tickTo advances a plan to the next time at which it starts a batch, at most an hour.
func tickTo(t *testing.T, p *Plan, now time.Time) (time.Time, []Start) {
	t.Helper()
	for end := now.Add(time.Hour); now.Before(end); {
		at, ok := p.NextWake()
		require.True(t, ok)
		now = at
		if started := only[Start](p.Step(now, Tick{})); len(started) > 0 {
			return now, started
		}
	}
	t.Fatal("nothing is started")
	return now, nil
}

// Dropped live replies to descendants were not fetched by a catch-up.
func TestSkippedBelowDescendants(t *testing.T) {
	p, u, repo := newPlan(defaults()), relayURL(t, "r"), repoRef("x")
	in := full(repo, []graspsync.RelayURL{u}, 1, 2)
	for i := range 600 {
		in.Descendants = append(in.Descendants, DescendantChange{Of: filters.Descendant{ID: rootID(10_000 + i)}, Repos: []graspsync.RepoRef{repo}})
	}
	p.Step(start, in)
	settle(p, start, u, connect(t, p, start, u))
	r := p.relays[u]
	require.Empty(t, r.live.poll.groups, "all are followed live")
	require.False(t, r.busy())
	asked := func(now time.Time) (n int) {
		for todo := only[Start](p.Step(now, Skipped{Relay: u, Epoch: 1, Since: now.Add(-time.Minute)})); len(todo) > 0; {
			b := todo[0].Batch
			todo = todo[1:]
			for _, q := range b.Queries {
				require.Equal(t, nostr.Timestamp(now.Add(-time.Minute-p.cfg.Overlap).Unix()), *q.Filter.Since)
				for _, id := range q.Filter.Tags["e"] {
					if id >= rootID(10_000).String() {
						n++
					}
				}
			}
			todo = append(todo, only[Start](p.Step(now, Done{Relay: u, Epoch: 1, Batch: b.ID}))...)
		}
		return n
	}
	require.Equal(t, 600, asked(start.Add(time.Hour)))
	require.Equal(t, 600, asked(start.Add(2*time.Hour)))
	require.False(t, r.busy())
}

// A catch-up that exceeded the time of a batch started again, and also each time that more live
// events were dropped. If more events came than one batch could fetch, older ones were never
// reached.
func TestCatchUpGoesOnWhereItWas(t *testing.T) {
	p, u := hubOf(t, 3)
	r := p.relays[u]
	since := func(at time.Time) nostr.Timestamp { return nostr.Timestamp(at.Add(-15 * time.Minute).Unix()) }
	now := start.Add(time.Hour)
	skipped := now
	begun := only[Start](p.Step(now, Skipped{Relay: u, Epoch: 1, Since: skipped}))
	require.Len(t, begun, 3, "all, repositories, root events")
	for i, b := range begun {
		assert.Equal(t, since(skipped), *b.Batch.Queries[0].Filter.Since)
		if i != 1 {
			assert.Empty(t, only[Start](p.Step(now, Done{Relay: u, Epoch: 1, Batch: b.Batch.ID})))
		}
	}
	// The part of repositories takes too long, and more events are dropped in between.
	late := func(b Start, got Cursor) Done {
		d := Done{Relay: u, Epoch: 1, Batch: b.Batch.ID, Result: Failed, Late: true}
		for range b.Batch.Queries {
			d.Cursors = append(d.Cursors, got)
		}
		return d
	}
	now = now.Add(30 * time.Minute)
	got := Cursor(skipped.Add(-time.Minute).Unix())
	d := late(begun[1], got)
	d.Cursors[0] = CursorDone // one of its filters is complete
	assert.Empty(t, only[Start](p.Step(now, d)))
	more := only[Start](p.Step(now, Skipped{Relay: u, Epoch: 1, Since: now}))
	require.Len(t, more, 3)
	for _, b := range more {
		assert.Equal(t, since(now), *b.Batch.Queries[0].Filter.Since, "what is older is looked for already")
		assert.Zero(t, b.Batch.Queries[0].Until)
	}
	assert.Equal(t, since(skipped), r.missingSince(), "until all is found")
	on, started := tickTo(t, p, now)
	require.Len(t, started, 1)
	require.Len(t, started[0].Batch.Queries, len(begun[1].Batch.Queries)-1)
	for _, q := range started[0].Batch.Queries {
		assert.Equal(t, int64(got), q.Until)
		assert.Equal(t, since(skipped), *q.Filter.Since)
	}
	// Parts that have not started include the newly dropped events.
	for i := range 100 {
		on = on.Add(time.Second)
		require.Empty(t, only[Start](p.Step(on, Skipped{Relay: u, Epoch: 1, Since: on})), i)
	}
	assert.Len(t, r.catchUp.queue, 3)
	// It continues once more from its progress.
	settle(p, on, u, p.Step(on, late(started[0], got-60)))
	for _, b := range more {
		settle(p, on, u, []Effect{b})
	}
	on, started = tickTo(t, p, on)
	assert.Equal(t, int64(got-60), started[0].Batch.Queries[0].Until)
	assert.NotZero(t, r.missingSince())
	p.Step(on, Done{Relay: u, Epoch: 1, Batch: started[0].Batch.ID})
	assert.Zero(t, r.missingSince())
}
