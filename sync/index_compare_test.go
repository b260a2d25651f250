package sync

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
)

// Who reported an event while a scan took the place of what was known waited for that, a second
// with half a million events. Now both are compared while what is known changes: what came
// between is in the index and was told, as if it had come before.
func TestIndexChangesWhileCompared(t *testing.T) {
	racetest.Amounts(t)
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		store := &twinStore{}
		x, told := newWholeIndex(store, listsByName, nip34.Identity{}), newFacts()
		before := newWholeIndex(store, listsByName, nip34.Identity{}) // to which it all comes before
		all := []*wholeIndex{x, before}
		tell := func(change func(x *wholeIndex) indexChange) {
			told.apply(t, change(x))
			change(before)
		}
		events := history(rnd, 100, func(int) bool { return true })
		happens := func(n int, known bool) {
			for range n {
				if len(store.events) > 0 && rnd.IntN(8) == 0 {
					gone := eventtest.Of(store.remove(rnd.IntN(len(store.events))))
					if known {
						tell(func(x *wholeIndex) indexChange { return x.removed(gone) })
					}
				}
				ev := eventtest.Of(events[0])
				events = events[1:]
				if !store.save(ev.Event) || !known && rnd.IntN(3) == 0 {
					continue
				}
				tell(func(x *wholeIndex) indexChange { return x.stored(ev) })
			}
		}
		happens(40, false)
		var scans []*snapshot
		for _, x := range all {
			s, err := scanOf(t, x)
			require.NoError(t, err)
			scans = append(scans, s)
		}
		happens(rnd.IntN(5), true)
		require.True(t, x.compare(scans[0]))
		happens(rnd.IntN(55), true) // more than are caught up with while others wait, or fewer
		late, ok := x.swap(scans[0])
		require.True(t, ok)
		c := scans[0].change
		c.merge(late)
		told.apply(t, c)
		_, ok = before.replaceAll(scans[1])
		require.True(t, ok)
		require.Equal(t, before.facts(), x.facts())
		require.Equal(t, before.related(), x.related())
		require.NoError(t, x.descend(t.Context(), nil, func(ev graspsync.Event) {
			told.apply(t, x.apply(storingNode(eventtest.Of(ev.Event))))
		}))
		x.check(t, store, told)
		require.False(t, x.compare(scans[0]), "it is of use once")
	}
}

// turn is a lock that counts how often it was free.
type turn struct{ free int }

func (*turn) Lock()     {}
func (t *turn) Unlock() { t.free++ }

// A change that comes while a scan is compared with what is known waits for no more than a part
// of that.
func TestIndexComparesInTurns(t *testing.T) {
	const n = 40 * compareStep
	store := &twinStore{}
	x := newWholeIndex(store, listsByName, nip34.Identity{})
	for i := range n {
		ev := testEvent(1000+i, graspsync.KindIssue, 1, 10, tagRepo(testRepo(1, "x")))
		store.events = append(store.events, ev)
		x.stored(eventtest.Of(ev))
	}
	s, err := scanOf(t, x)
	require.NoError(t, err)
	var turns turn
	x.tables.difference(s.tables, &turns)
	require.GreaterOrEqual(t, turns.free, n+n/compareStep, "others have their turn, however much there is")
}
