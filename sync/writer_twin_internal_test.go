package sync

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// moodyStore saves or not as each event has it.
type moodyStore struct {
	Store
	moods map[string]mood // by id
	calls []saveCall
}

type mood uint8

const (
	good    mood = iota
	failing      // it fails by itself
	poison       // whatever it is saved with fails
	stuck        // the Store comes to no end with it
	mute         // there is no outcome for it
	panics
)

// saveCall is what the Store was asked, and how long it was given.
type saveCall struct {
	ids      []string
	patience time.Duration
}

// Save implements [Store].
func (s *moodyStore) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	call := saveCall{}
	worst := good
	out := make([]graspsync.Outcome, 0, len(events))
	for _, in := range events {
		call.ids = append(call.ids, in.Event.ID.String())
		m := s.moods[in.Event.ID.String()]
		worst = max(worst, m)
		switch m {
		case good:
			out = append(out, graspsync.Outcome{Result: graspsync.Stored})
		default:
			out = append(out, graspsync.Outcome{Result: graspsync.Failed, Err: errDisk})
		}
	}
	if end, ok := ctx.Deadline(); ok {
		call.patience = time.Until(end)
	}
	s.calls = append(s.calls, call)
	switch worst {
	case panics:
		panic("no disk")
	case stuck:
		<-ctx.Done()
		return nil, fmt.Errorf("saving: %w", ctx.Err())
	case poison:
		return nil, errDisk
	case mute:
		return out[:len(out)-1], nil
	case good, failing:
	}
	return out, nil
}

// patientTwin says how the writer saves: what it calls, and what becomes of each job.
type patientTwin struct {
	most  time.Duration
	moods map[string]mood
	now   time.Duration // that has passed
	calls []saveCall
	works int
	saved map[string]bool
	slow  map[string]bool // of those that failed
	tries map[string]int
	apart []string // of those that failed, in that order
}

func (p *patientTwin) save(ids []string, call, end time.Duration, before int) {
	if len(ids) == 0 {
		return
	}
	p.calls = append(p.calls, saveCall{ids, call})
	worst := good
	for _, id := range ids {
		worst = max(worst, p.moods[id])
	}
	if worst <= failing {
		if slices.ContainsFunc(ids, func(id string) bool { return p.moods[id] == good }) {
			p.works++
		}
		for _, id := range ids {
			if p.moods[id] == good {
				p.saved[id] = true
			} else {
				p.fail(id, false, true)
			}
		}
		return
	}
	slow := worst == stuck
	if slow {
		p.now += call
		if end == 0 {
			end = p.now + 2*p.most
		}
		call = max(call/2, p.most/16)
	}
	if n := len(ids) - 1; n > 0 && p.tries[ids[0]] > 0 && (end == 0 || p.now < end) {
		works := before
		p.save(ids[n:], call, end, before)
		ids = ids[:n]
		if p.works != works {
			p.save(ids[:len(ids)/2], call, end, before)
			p.save(ids[len(ids)/2:], call, end, before)
			return
		}
		for _, id := range ids {
			p.fail(id, false, false)
		}
		return
	}
	for _, id := range ids {
		p.fail(id, slow && len(ids) == 1, false)
	}
}

// fail leaves a job to be tried again. By itself it failed in a call that others may have
// been saved by: how slow it was before stays known.
func (p *patientTwin) fail(id string, slow, byItself bool) {
	if !byItself {
		p.slow[id] = slow
	}
	p.tries[id]++
	p.apart = append(p.apart, id)
}

// Whatever the Store can't do, each event is saved, or tried again once: what fails together
// is taken apart in a bounded time, and what the Store comes to no end with alone is waited
// for in full every fourth time only.
func TestSavingAgainstItsTwin(t *testing.T) {
	seen := make(map[string]int)
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // the same each time
		synctest.Test(t, func(t *testing.T) {
			store := &moodyStore{moods: make(map[string]mood)}
			b := newBench(t, store, 1<<30)
			relay, err := graspsync.ParseRelayURL("wss://a.example")
			require.NoError(t, err)
			most := b.writer.cfg.fixed.StoreTimeout
			p := &patientTwin{
				most: most, moods: store.moods, saved: make(map[string]bool), slow: make(map[string]bool), tries: make(map[string]int),
			}
			tries, quirk := rnd.IntN(10), mood(rnd.IntN(6))
			var ids []string
			for range []int{1, 1, 1, 2, 3, 4, 7, 16}[rnd.IntN(8)] {
				slow := rnd.IntN(2) == 0
				j := b.waiting(t, relay, 100, func(j *job) { j.tries, j.slow = tries, slow })
				id := j.incoming.Event.ID
				ids = append(ids, id.String())
				p.tries[id.String()], p.slow[id.String()] = tries, slow
				if rnd.IntN(3) == 0 {
					store.moods[id.String()] = quirk
				}
			}
			jobs := b.retrier.retries.all()
			b.flights.failing(jobs, false)
			call := most
			if len(jobs) == 1 && p.slow[ids[0]] && tries%4 != 0 {
				call = most / 16
				seen["impatient"]++
			}
			p.save(ids, call, 0, 0)
			began := time.Now()
			require.Empty(t, b.writer.save(t.Context(), jobs))

			require.Equal(t, p.calls, store.calls)
			require.Equal(t, p.now, time.Since(began))
			require.LessOrEqual(t, p.now, 5*most)
			require.Equal(t, p.works, int(b.retrier.retries.works)) //nolint:gosec // small
			require.Len(t, b.retrier.retries.jobs, len(p.apart))
			for i, j := range b.retrier.retries.jobs {
				id := j.incoming.Event.ID
				require.Equal(t, p.apart[i], id.String())
				require.Equal(t, p.tries[id.String()], j.tries)
				require.Equal(t, p.slow[id.String()], j.slow, id)
			}
			require.Len(t, jobs, len(p.saved)+len(p.apart))
			for _, id := range ids {
				key, err := graspsync.ParseEventID(id)
				require.NoError(t, err)
				require.Equal(t, p.saved[id], b.absences.known.Has(key))
			}
			require.Equal(t, uint64(len(p.apart)), b.report.failed.Load())
			require.Equal(t, uint64(len(p.apart)), b.retrier.trouble.failures)
			require.Equal(t, uint64(len(p.saved)), b.report.results[graspsync.Stored].Load())
			lost := uint64(0)
			for _, c := range p.calls {
				if slices.ContainsFunc(c.ids, func(id string) bool { return store.moods[id] == panics }) {
					lost++
				}
			}
			require.Equal(t, lost, b.report.panics["store"])
			b.audit(t)
			if len(p.calls) > 1 {
				seen["apart"]++
			}
			if p.now > 2*most {
				seen["long"]++
			}
		})
	}
	require.Greater(t, seen["impatient"], 10)
	require.Greater(t, seen["apart"], 50)
	require.Greater(t, seen["long"], 5)
}

// What the Store did with an event is counted, remembered, paid for and told, whichever it
// was, and whether or not the event had failed before.
func TestWhatBecomesOfAnEvent(t *testing.T) {
	for result := graspsync.Stored; result <= graspsync.Failed; result++ {
		for _, tries := range []int{0, 1} {
			for _, owed := range []bool{false, true} {
				for _, kind := range []int{graspsync.KindState, graspsync.KindIssue, graspsync.KindDeletion} {
					t.Run(fmt.Sprint(result, tries, owed, kind), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { becomes(t, result, tries, owed, kind) })
					})
				}
			}
		}
	}
}

func becomes(t *testing.T, result graspsync.Result, tries int, owed bool, kind int) {
	var told []Observation
	b := newBench(t, &oddStore{}, 1<<30)
	b.report.observer = &observer{queue: make(chan Observation, 10), counters: b.report.counters}
	relay, err := graspsync.ParseRelayURL("wss://a.example")
	require.NoError(t, err)
	stats := &relayStats{}
	j := b.waiting(t, relay, 10_000, func(j *job) { j.tries = tries })
	j.stats = stats
	j.incoming.Event = eventtest.Of(testEvent(1, kind, 2, nostr.Now()))
	b.flights.failing(b.retrier.retries.all(), false)
	if owed {
		_, ok := b.retrier.retries.owe(&job{key: j.key}, time.Now())
		require.True(t, ok)
		b.retrier.owed.Store(1)
	}
	b.retrier.trouble = trouble{down: true, said: true, saidAt: time.Now()}
	used, _ := b.flights.room.Stats()

	require.Empty(t, b.writer.outcome(t.Context(), j, graspsync.Outcome{Result: result, Err: errors.New("why")}))

	close(b.report.queue)
	for o := range b.report.queue {
		told = append(told, o)
	}
	for r := graspsync.Stored; r <= graspsync.Failed; r++ {
		require.Equal(t, r == result, b.report.results[r].Load() == 1, r)
	}
	here := result == graspsync.Stored || result == graspsync.Duplicate
	require.Equal(t, result == graspsync.Stored, b.report.sources[graspsync.CatchUp].Load() == 1)
	require.Equal(t, here, b.absences.known.Has(j.key.id))
	e, remembered := b.absences.rejected.Look(j.key.id)
	switch result {
	case graspsync.Superseded, graspsync.Deleted:
		require.True(t, remembered)
		require.Equal(t, kind != graspsync.KindDeletion, e.Accepted)
		require.Zero(t, e.Awaits)
		require.Nil(t, e.Whole, "a deletion of the other version covers it")
	case graspsync.Refused:
		require.True(t, remembered)
		require.Equal(t, j.key.id, e.ID)
		e.Heard = pending.Heard{}
		require.Zero(t, e)
	case graspsync.Stored, graspsync.Duplicate:
		require.False(t, remembered)
	case graspsync.Failed:
	}
	require.Equal(t, result == graspsync.Stored, stats.stored.Load() == 1)
	require.Equal(t, result == graspsync.Stored, j.useful)
	if result == graspsync.Stored {
		require.Equal(t, []Observation{EventStored(j.incoming)}, told)
	}
	if result == graspsync.Failed {
		require.Equal(t, owed, b.retrier.retries.isOwed(j.key.id))
		require.Equal(t, uint64(1), b.report.failed.Load())
		require.True(t, b.retrier.trouble.down)
		if owed {
			require.Empty(t, b.flights.inFlight)
			now, _ := b.flights.room.Stats()
			require.Equal(t, used-j.size, now)
			return
		}
		require.Equal(t, []*job{j}, b.retrier.retries.jobs)
		require.Equal(t, tries+1, j.tries)
		return
	}
	require.Empty(t, b.flights.inFlight)
	require.Empty(t, b.retrier.retries.owed)
	require.Zero(t, b.retrier.owed.Load())
	now, _ := b.flights.room.Stats()
	require.Equal(t, used-j.size, now)
	require.False(t, j.tokens[0].failed.Load())
	again := tries > 0 || owed
	require.Equal(t, !again, b.retrier.trouble.down, "what had failed was saved")
	require.Equal(t, !again, b.retrier.trouble.said)
	require.Equal(t, again, b.saving.again)
}
