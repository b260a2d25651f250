package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// keptOne returns the saved state of a relay with one repository.
func keptOne(t *testing.T, u graspsync.RelayURL) Kept {
	t.Helper()
	p := newPlan(defaults())
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1, 2))
	settle(p, start, u, connect(t, p, start, u))
	p.Step(start.Add(time.Minute), Settled{At: start.Add(time.Minute)})
	require.Len(t, allKept(p), 1)
	return allKept(p)[0]
}

// S5: after a restart everything was fetched from all relays simultaneously. Any invalid saved
// state leads to full history.
func TestTrapS5_Restore(t *testing.T) {
	u := relayURL(t, "a")
	kept := keptOne(t, u)
	for _, tc := range []struct {
		name   string
		change func(*Kept)
		after  time.Duration
		recent int // batches of a catch-up
	}{
		{"as it was", func(*Kept) {}, 10 * time.Minute, 3},
		{"at the bound", func(*Kept) {}, 16 * time.Minute, 3},
		{"too old", func(*Kept) {}, 16*time.Minute + time.Second, 0},
		{"in no order", func(k *Kept) { slices.Reverse(k.Items) }, 10 * time.Minute, 3},
		{"of the future", func(k *Kept) { k.Mark = start.Add(time.Hour) }, 10 * time.Minute, 0},
		{"without a mark", func(k *Kept) { k.Mark = time.Time{} }, 10 * time.Minute, 0},
		{"of other items", func(k *Kept) { k.Items = []uint64{1, 2, 3} }, 10 * time.Minute, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := kept
			k.Items = slices.Clone(kept.Items)
			tc.change(&k)
			p, now := newPlan(defaults()), start.Add(tc.after)
			p.Step(now, Restore{Relays: []Kept{k}})
			p.Step(now, full(repoRef("one"), []graspsync.RelayURL{u}, 1, 2))
			effects := connect(t, p, now, u)
			recent := 0
			for _, s := range only[Start](effects) {
				if s.Batch.Kind == Recent {
					recent++
					for _, q := range s.Batch.Queries {
						assert.Equal(t, k.Mark.Add(-15*time.Minute).Unix(), int64(*q.Filter.Since))
					}
				}
			}
			assert.Equal(t, tc.recent, recent)
			assert.Equal(t, 3, settle(p, now, u, effects))
			assert.Equal(t, 4, p.Status()[0].Confirmed)
		})
	}
}

// P25: the mark does not pass events that may have been missed or are polled.
func TestPromiseP25_MarkStaysBehind(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1))
	settle(p, start, u, connect(t, p, start, u))
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	mark := func(minutes int) time.Time {
		p.Step(at(minutes), Settled{At: at(minutes)})
		return allKept(p)[0].Mark
	}
	assert.Equal(t, at(1), mark(1))
	// before the connection stood
	assert.Equal(t, at(1), func() time.Time { p.Step(at(2), Settled{At: start.Add(-time.Second)}); return allKept(p)[0].Mark }())
	// a subscription was closed: complete up to then, until that is caught up with
	p.Step(at(3), LiveClosed{Relay: u, Epoch: 1, Live: 1})
	assert.Equal(t, at(3), mark(4))
	batches := only[Start](p.Step(at(5), Tick{}))
	require.Len(t, batches, 3)
	assert.Equal(t, at(3), mark(6))
	for _, s := range batches {
		p.Step(at(6), Done{Relay: u, Epoch: 1, Batch: s.Batch.ID})
	}
	assert.Equal(t, at(7), mark(7))
	// a pass over history: what is not confirmed again is not kept
	p.Step(start.Add(26*time.Hour), Tick{})
	assert.Empty(t, allKept(p))
}

// Root events beyond MaxRoots are requested after all others.
func TestPromiseP28_OlderRootsAreRequested(t *testing.T) {
	c := defaults()
	c.MaxRoots = 20
	p, u, now := newPlan(c), relayURL(t, "a"), start
	for i := range 4 {
		roots := make([]int, 100)
		for k := range roots {
			roots[k] = 100*i + k
		}
		p.Step(now, full(repoRef(fmt.Sprint(i)), []graspsync.RelayURL{u}, roots...))
	}
	effects := connect(t, p, now, u)
	asked := make(map[string]int)
	for len(effects) > 0 {
		s, ok := effects[0].(Start)
		if effects = effects[1:]; !ok {
			continue
		}
		for _, q := range s.Batch.Queries {
			for _, v := range q.Filter.Tags["e"] {
				asked[v]++
			}
		}
		effects = append(effects, p.Step(now, Done{Relay: u, Epoch: 1, Batch: s.Batch.ID})...)
	}
	assert.Len(t, asked, 400)
	for _, n := range asked {
		assert.Equal(t, 1, n)
	}
	_, roots := p.Repos()
	assert.Equal(t, 80, roots)
}
