package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// Later versions must read the same hashes from the disk.
func TestHashOfItems(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 7))
	settle(p, start, u, connect(t, p, start, u))
	p.Step(start.Add(time.Second), Settled{At: start.Add(time.Second)})
	hash := func(kind byte, value string) uint64 {
		sum := sha256.Sum256([]byte("salt" + string(rune(kind)) + value))
		return binary.BigEndian.Uint64(sum[:])
	}
	id := rootID(7)
	want := []uint64{hash(1, ""), hash(2, repoRef("one").String()), hash(3, string(id[:]))}
	slices.Sort(want)
	assert.Equal(t, want, p.Kept()[0].Items)
	// the number of an item that is gone stands for something else
	p.Step(start, Changes{Roots: []RootChange{{ID: id}}})
	settle(p, start, u, p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 8)))
	other := rootID(8)
	assert.Contains(t, p.Kept(u)[0].Items, hash(3, string(other[:])))
	assert.NotContains(t, p.Kept(u)[0].Items, hash(3, string(id[:])))
}

// Items confirmed with the states in layer 1 do not count as confirmed without, and vice versa.
// Only repositories and root events are common.
func TestHashOfNarrowItems(t *testing.T) {
	u, c := relayURL(t, "a"), defaults()
	c.HostedStatesOnly = true
	p := newPlan(c)
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1, 2))
	settle(p, start, u, connect(t, p, start, u))
	p.Step(start.Add(time.Minute), Settled{At: start.Add(time.Minute)})
	hash := func(value string) uint64 {
		sum := sha256.Sum256([]byte("salt" + value))
		return binary.BigEndian.Uint64(sum[:])
	}
	narrow, with := p.Kept()[0].Items, keptOne(t, u).Items
	assert.Len(t, narrow, 5)
	var apart []uint64
	for _, h := range narrow {
		if !slices.Contains(with, h) {
			apart = append(apart, h)
		}
	}
	assert.ElementsMatch(t, []uint64{hash("\x04" + repoRef("one").String()), hash("\x05")}, apart)
}

// keptOne returns the saved state of a relay with one repository.
func keptOne(t *testing.T, u graspsync.RelayURL) Kept {
	t.Helper()
	p := newPlan(defaults())
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1, 2))
	settle(p, start, u, connect(t, p, start, u))
	p.Step(start.Add(time.Minute), Settled{At: start.Add(time.Minute)})
	require.Len(t, p.Kept(), 1)
	return p.Kept()[0]
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

// Saved state is not lost by a crash before the relay was reached or known.
func TestRestoredIsKept(t *testing.T) {
	u := relayURL(t, "a")
	kept := keptOne(t, u)
	p := newPlan(defaults())
	now := start.Add(2 * time.Minute)
	p.Step(now, Restore{Relays: []Kept{kept}})
	assert.Equal(t, []Kept{kept}, p.Kept())
	assert.Empty(t, maps.Collect(p.Marks()), "it is not known")
	p.Step(now, Bootstrap{Relay: u})
	assert.Equal(t, []Kept{kept}, p.Kept(u))
	assert.Equal(t, map[graspsync.RelayURL]time.Time{u: kept.Mark}, maps.Collect(p.Marks()))
	assert.Empty(t, p.Changed())
	settle(p, now, u, connect(t, p, now, u))
	assert.Len(t, p.Kept(u)[0].Items, 1, "the repository is not wanted any more")
	assert.Equal(t, kept.Mark, p.Kept(u)[0].Mark)
	assert.Equal(t, start, p.Kept(u)[0].PassAt)
	assert.Len(t, maps.Collect(p.Marks()), 1)
	// a relay that is known before what was kept of it
	p = newPlan(defaults())
	p.Step(now, Bootstrap{Relay: u})
	p.Step(now, Restore{Relays: []Kept{kept}})
	assert.Equal(t, []Kept{kept}, p.Kept())
	// what nobody wants is let go of
	p = newPlan(defaults())
	p.Step(now, Restore{Relays: []Kept{kept}})
	p.Step(now.Add(time.Hour), Settled{At: now.Add(time.Hour)})
	assert.Empty(t, p.Kept())
}

// The work that delayed the mark at the last Settled is done when the connection is lost. Then the
// mark advances to the loss, and a restart fetches no more than necessary.
func TestMarkMovesWhenTheConnectionIsLost(t *testing.T) {
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	for _, c := range []struct{ alive, mark int }{{6, 4}, {4, 4}, {3, 3}} {
		p, u := newPlan(defaults()), relayURL(t, "a")
		want := full(repoRef("one"), []graspsync.RelayURL{u}, 1)
		p.Step(start, want)
		settle(p, start, u, connect(t, p, start, u))
		p.Step(at(1), Settled{At: at(1)})
		p.Step(at(2), LiveClosed{Relay: u, Epoch: 1, Live: 1})
		p.Step(at(4), Settled{At: at(4)})
		require.Equal(t, at(2), p.Kept()[0].Mark, "something may have been missed since")
		settle(p, at(5), u, p.Step(at(5), Tick{}))
		p.Step(at(7), Lost{Relay: u, Epoch: 1, AliveAt: at(c.alive), RetryAt: at(9)})
		kept := p.Kept()
		require.Equal(t, at(c.mark), kept[0].Mark)

		p = newPlan(defaults())
		p.Step(at(8), Restore{Relays: kept})
		p.Step(at(8), want)
		batches := only[Start](connect(t, p, at(8), u))
		require.Len(t, batches, 3)
		for _, b := range batches {
			require.Equal(t, Recent, b.Batch.Kind)
			for _, q := range b.Batch.Queries {
				require.Equal(t, at(c.mark-15).Unix(), int64(*q.Filter.Since))
			}
		}
	}
}

// Dropped live events are requested immediately, and the mark does not pass them before they are
// stored.
func TestMarkStaysBehindWhatWasNotRead(t *testing.T) {
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	u := relayURL(t, "a")
	for name, in := range map[string]Input{
		"left out": Skipped{Relay: u, Epoch: 1, Since: at(2)},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan(defaults())
			p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1))
			settle(p, start, u, connect(t, p, start, u))
			p.Step(at(1), Settled{At: at(1)})
			out := p.Step(at(40), in)
			out = append(out, p.Step(at(45), Tick{})...)
			batches := only[Start](out)
			require.Len(t, batches, 3)
			for _, q := range batches[0].Batch.Queries {
				require.Equal(t, at(2-15).Unix(), int64(*q.Filter.Since))
			}
			p.Step(at(46), Settled{At: at(46)})
			require.Equal(t, at(2), p.Kept()[0].Mark)
			settle(p, at(47), u, out)
			p.Step(at(48), Settled{At: at(48)})
			require.Equal(t, at(48), p.Kept()[0].Mark)
		})
	}
}

// P25: the mark does not pass events that may have been missed, were postponed, or are polled.
func TestPromiseP25_MarkStaysBehind(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1))
	settle(p, start, u, connect(t, p, start, u))
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	mark := func(minutes int) time.Time {
		p.Step(at(minutes), Settled{At: at(minutes)})
		return p.Kept()[0].Mark
	}
	assert.Equal(t, at(1), mark(1))
	// before the connection stood
	assert.Equal(t, at(1), func() time.Time { p.Step(at(2), Settled{At: start.Add(-time.Second)}); return p.Kept()[0].Mark }())
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
	p.relays.byURL[u].live.postponed = at(6)
	p.relays.byURL[u].checkpoint.mark = at(1)
	assert.Equal(t, at(6), mark(8))
	// a pass over history: what is not confirmed again is not kept
	p.Step(start.Add(26*time.Hour), Tick{})
	assert.Empty(t, p.Kept())
}

// After the clock was set back, no recorded time may be in the future.
func TestClockJumpedBack(t *testing.T) {
	c := defaults()
	c.MaxBatches = 100
	p, all := newPlan(c), urls(t, 3)
	kept := keptOne(t, all[2])
	now := start.Add(2 * time.Minute)
	p.Step(now, Restore{Relays: []Kept{kept, {Relay: relayURL(t, "unknown"), Mark: kept.Mark}}})
	roots := make([]int, 500)
	for i := range roots {
		roots[i] = i
	}
	p.Step(now, full(repoRef("one"), all, roots...))
	small := relaylimits.Requests{MaxMessage: 64 << 10, MaxFilters: 5, MaxSubscriptions: 4}
	settle(p, now, all[0], p.Step(now, Connected{Relay: all[0], Epoch: p.relays.byURL[all[0]].dial.epoch, Limits: small}))
	settle(p, now, all[1], connect(t, p, now, all[1]))
	p.Step(now, Lost{Relay: all[1], Epoch: p.relays.byURL[all[1]].dial.epoch, AliveAt: now, RetryAt: now.Add(time.Hour)})
	p.Step(now, Settled{At: now})
	require.Len(t, p.Kept(), 3, "one has no mark yet")
	require.NotNil(t, p.relays.byURL[all[0]].live.poll)

	p.Step(now, ClockJumped{By: -time.Hour})
	hour := now.Add(-time.Hour)
	assert.Equal(t, hour, p.relays.byURL[all[0]].live.poll.oldest())
	assert.Equal(t, hour, p.relays.byURL[all[1]].dial.aliveAt)
	assert.Equal(t, kept.Mark.Add(-time.Hour), p.relays.byURL[all[2]].checkpoint.restored.mark)
	assert.Zero(t, p.relays.byURL[all[0]].checkpoint.mark)
	for _, k := range p.Kept() {
		assert.False(t, k.Mark.After(hour), short(k.Relay))
	}
}

// Repeated calls of Kept are cheap.
func BenchmarkKept(b *testing.B) {
	relays := urls(b, 100)
	c := defaults()
	c.MaxDials = 1000
	p := newPlan(c)
	p.Step(start, hub(1000, 50, relays))
	for _, u := range relays {
		settle(p, start, u, connect(b, p, start, u))
	}
	p.Step(start, Settled{At: start})
	p.Kept()
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			p.Kept()
		}
	})
	b.Run("changed", func(b *testing.B) {
		for b.Loop() {
			if len(p.Changed()) != 0 {
				b.Fatal("nothing has changed")
			}
			for range p.Marks() {
			}
		}
	})
}

// All untracked root events are requested in turn, a part in each pass.
func TestPromiseP28_RotationCoversAll(t *testing.T) {
	c := defaults()
	c.MaxRoots, c.RotateRoots, c.MaxBatches = 20, 70, 100
	p, u, now := newPlan(c), relayURL(t, "a"), start
	asked := make(map[string]int)
	take := func(effects []Effect) {
		for _, s := range only[Start](effects) {
			if s.Batch.Items > 0 {
				continue
			}
			for _, q := range s.Batch.Queries {
				for _, v := range q.Filter.Tags["e"] {
					asked[v]++
				}
			}
		}
		settle(p, now, u, effects)
	}
	for i := range 4 {
		roots := make([]int, 100)
		for k := range roots {
			roots[k] = 100*i + k
		}
		take(p.Step(now, full(repoRef(fmt.Sprint(i)), []graspsync.RelayURL{u}, roots...)))
	}
	assert.Equal(t, 4*80, p.RootsInRotation())
	take(connect(t, p, now, u))
	for range 4 {
		now = now.Add(25 * time.Hour)
		take(p.Step(now, Tick{}))
	}
	assert.Len(t, asked, 4*80)
	for _, n := range asked {
		assert.LessOrEqual(t, n, 2)
	}
}

func TestRepoStatusAndExamples(t *testing.T) {
	p, all := newPlan(defaults()), urls(t, 2)
	for i := range 6 {
		p.Step(start, full(repoRef(fmt.Sprint(i)), all, 10*i))
	}
	st, ok := p.RepoStatus(repoRef("1"))
	require.True(t, ok)
	assert.Equal(t, 4, st.Wanted)
	assert.Equal(t, RelayItems{Relay: all[0], Phase: Connecting, Wanted: 2}, st.Relays[0])
	p.Step(start, Changes{Repos: []RepoChange{{Ref: repoRef("5"), Level: LevelStateOnly, Relays: all}}})
	st, _ = p.RepoStatus(repoRef("5"))
	assert.Zero(t, st.Wanted)

	assert.Equal(t, []graspsync.RepoRef{repoRef("0"), repoRef("1"), repoRef("2")}, p.Status()[0].Examples)
	for i := range 3 {
		p.Step(start, Changes{Repos: []RepoChange{{Ref: repoRef(fmt.Sprint(i))}}})
	}
	assert.Equal(t, []graspsync.RepoRef{repoRef("3"), repoRef("4"), repoRef("5")}, p.Status()[1].Examples)
}
