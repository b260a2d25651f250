package sync

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
)

// faultyView is a View whose step number fails fails.
type faultyView struct {
	*twinView
	fails, steps int
}

func (v *faultyView) step() error {
	if v.steps++; v.steps == v.fails {
		return errFault
	}
	return nil
}

func (v *faultyView) Events(ctx context.Context, ids []graspsync.EventID) (map[graspsync.EventID]graspsync.Event, error) {
	if err := v.step(); err != nil {
		return nil, err
	}
	return v.twinView.Events(ctx, ids)
}

func (v *faultyView) Addressed(ctx context.Context, at []graspsync.Address) (bool, error) {
	if err := v.step(); err != nil {
		return false, err
	}
	return v.twinView.Addressed(ctx, at)
}

func (v *faultyView) Mentioned(ctx context.Context, id graspsync.EventID) (bool, error) {
	if err := v.step(); err != nil {
		return false, err
	}
	return v.twinView.Mentioned(ctx, id)
}

func (v *faultyView) Near(ctx context.Context, ids []graspsync.EventID, at []graspsync.Address) ([]graspsync.Event, error) {
	if err := v.step(); err != nil {
		return nil, err
	}
	return v.twinView.Near(ctx, ids, at)
}

func (v *faultyView) Wrote(ctx context.Context, author graspsync.PubKey) (bool, error) {
	if err := v.step(); err != nil {
		return false, err
	}
	return v.twinView.Wrote(ctx, author)
}

// Whatever is judged, and whichever question about it fails: there is no verdict then. A
// refusal would be for good, and what is let in stays.
func TestNoVerdictWithoutAnAnswer(t *testing.T) {
	p := graspPolicy(t, graspHost)
	told := 0
	for name, ev := range map[string]*nostr.Event{
		"announcement":         testAnnouncement(80, 9, "z", 1, ""),
		"state":                stateOf(9, "x"),
		"deletion of one's":    deletion(6, tagEvent(60)),
		"deletion of others'":  deletion(7, tagEvent(60)),
		"deletion of nothing":  deletion(6),
		"deletion by address":  deletion(6, nostr.Tag{"a", "0:" + testKey(6).String() + ":"}),
		"vanishing":            vanish(5, "ALL_RELAYS"),
		"vanishing stranger":   vanish(77, "ALL_RELAYS"),
		"related":              related(tagEvent(51), tagEvent(60)),
		"related to nothing":   related(),
		"mentioned":            testEvent(70, 1, 9, 1),
		"tags an announcement": related(tagEvent(62)),
		"tags a foreign one":   related(tagEvent(63)),
		"refers to a root":     related(tagEvent(50)),
	} {
		judge := func(fails int) (graspsync.Verdict, int, error) {
			v := &faultyView{twinView: graspView(), fails: fails}
			verdict, err := p.Judge(t.Context(), eventtest.Of(ev), graspsync.Source{Kind: graspsync.CatchUp}, v)
			return verdict, v.steps, err
		}
		_, steps, err := judge(0)
		require.NoError(t, err)
		for fails := 1; fails <= steps; fails++ {
			verdict, _, err := judge(fails)
			assert.ErrorIs(t, err, errFault, "%s, question %d of %d", name, fails, steps)
			assert.Equal(t, graspsync.Verdict{}, verdict, name)
			told++
		}
	}
	require.GreaterOrEqual(t, told, 12)
}

// What waits for nothing is rejected.
func TestWaitingForNothing(t *testing.T) {
	require.Equal(t, reject("r"), waitingFor{}.verdict("r"))
}

// Whichever step of the Store fails: a scan that can't be finished says so, ends its journal
// and changes nothing; the next one finds all there is.
func TestEachFaultOfAScan(t *testing.T) {
	racetest.Amounts(t)
	for _, partly := range []bool{false, true} {
		store := &capable{twinStore: &twinStore{}}
		for i := range 5 {
			require.True(t, store.save(testAnnouncement(i, i, "x", 1, []string{"ours", "foreign"}[i%3%2])))
			require.True(t, store.save(testEvent(100+i, 1621, 9, 1, tagRepo(testRepo(i, "x")))))
		}
		faults := &faulty{Store: store}
		x := newWholeIndex(faults, listsByName, nip34.Identity{})
		scan := func() (missed, err error) {
			s, missed, err := x.scan(t.Context(), func(graspsync.Event) {})
			if err != nil {
				require.Nil(t, x.pending)
				return missed, err
			}
			_, ok := x.replaceAll(s)
			require.True(t, ok)
			return missed, nil
		}
		_, err := scan()
		require.NoError(t, err)
		want := x.facts()
		require.Len(t, want.Roots, 5)
		store.partly = partly
		faults.steps = 0
		missed, err := scan()
		require.NoError(t, err)
		require.Equal(t, partly, errors.Is(missed, ErrIncomplete))
		require.Equal(t, want, x.facts(), "what could not be read is still there")
		steps := faults.steps
		require.Greater(t, steps, 2)
		for fails := 1; fails <= steps; fails++ {
			if partly && fails == steps-1 {
				continue // it says that this is not all, and nothing else
			}
			faults.fails, faults.steps = fails, 0
			_, err := scan()
			require.ErrorIs(t, err, errFault, "step %d of %d", fails, steps)
			require.Nil(t, x.pending, "no journal is written any more")
			require.Equal(t, want, x.facts())
		}
		faults.fails = 0
		if partly { // a Store that answers another question, or has lost something
			store.short = true
			_, err := scan()
			require.ErrorContains(t, err, "8 answers on 9 ids")
			require.Nil(t, x.pending)
			store.short, store.gone = false, testID(2)
			_, err = scan()
			require.NoError(t, err)
			require.Nil(t, x.announcement(testRepo(2, "x")))
			require.Len(t, x.facts().Repos, len(want.Repos)-1)
			store.gone = testID(103)
			_, err = scan()
			require.NoError(t, err)
			require.Len(t, x.facts().Roots, 4)
		}
		for _, ev := range store.events {
			require.Positive(t, x.size())
			x.removed(eventtest.Of(ev))
		}
		require.Zero(t, x.size())
	}
}

// capable is a twinStore that has what the index asks for where a scan was not complete:
// of that it gives the first event only then.
type capable struct {
	*twinStore
	partly, short bool
	gone          graspsync.EventID
}

// Events implements [Store].
func (c *capable) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	if !c.partly {
		return c.twinStore.Events(ctx, f)
	}
	return func(yield func(graspsync.Event, error) bool) {
		if yield(eventtest.Of(c.events[0]), nil) {
			yield(graspsync.Event{}, fmt.Errorf("reading: %w", ErrIncomplete))
		}
	}
}

// Has implements [Store].
func (c *capable) Has(_ context.Context, ids []graspsync.EventID) ([]bool, error) {
	var has []bool
	for _, id := range ids {
		has = append(has, id != c.gone)
	}
	if c.short {
		has = has[1:]
	}
	return has, nil
}

// What the Store panics with while it is read is an error, and the journal ends.
func TestScanOfAStoreThatPanics(t *testing.T) {
	store := &twinStore{during: func() { panic("corrupt") }}
	require.True(t, store.save(testAnnouncement(1, 1, "x", 1, "ours")))
	require.True(t, store.save(testAnnouncement(2, 2, "x", 1, "ours")))
	x := newWholeIndex(store, listsByName, nip34.Identity{})
	k := &counters{}
	x.counters = k
	_, err := scanOf(t, x)
	require.ErrorContains(t, err, "corrupt")
	require.Nil(t, x.pending)
	require.Equal(t, map[string]uint64{"store": 1}, k.panics)
}
