package sync

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
)

// naiveRetries is what retries should do, by walking through all that there is at each step.
type naiveRetries struct {
	jobs   []*naiveJob
	owed   []*naiveOwed // in the order in which they came
	missed map[graspsync.RelayURL]time.Time
	wait   time.Duration
	next   time.Time
	askAt  time.Time
	works  uint64
}

type naiveJob struct {
	of  *job
	due time.Time
}

type naiveOwed struct {
	id          graspsync.EventID
	relay       graspsync.RelayURL
	since, at   time.Time
	tries, asks int
}

// doubled is first, doubled for each try after the first one, at most most.
func doubled(tries int, first, most time.Duration) time.Duration {
	for ; tries > 1 && first < most; tries-- {
		first *= 2
	}
	return min(first, most)
}

// wakes is when something is to be done, zero if never.
func (n *naiveRetries) wakes() (at time.Time) {
	all := []time.Time{n.askAt}
	for _, j := range n.jobs {
		all = append(all, j.due)
	}
	for _, due := range n.missed {
		all = append(all, due)
	}
	for _, a := range all {
		if !a.IsZero() && (at.IsZero() || a.Before(at)) {
			at = a
		}
	}
	if !at.IsZero() && at.Before(n.next) {
		return n.next
	}
	return at
}

func (n *naiveRetries) find(id graspsync.EventID) int {
	return slices.IndexFunc(n.owed, func(o *naiveOwed) bool { return o.id == id })
}

func (n *naiveRetries) take(now time.Time) (due []*job) {
	if now.Before(n.next) {
		return nil
	}
	n.jobs = slices.DeleteFunc(n.jobs, func(j *naiveJob) bool {
		if j.due.After(now) || len(due) == saveBatch {
			return false
		}
		due = append(due, j.of)
		return true
	})
	return due
}

// held is how much of the bytes in flight its jobs hold, and which relay holds most of it.
func (n *naiveRetries) held() (all int64, by map[graspsync.RelayURL]int64) {
	by = make(map[graspsync.RelayURL]int64)
	for _, j := range n.jobs {
		if !j.of.apart && !j.of.revived {
			all += j.of.size
			by[j.of.incoming.Source.Relay] += j.of.size
		}
	}
	return all, by
}

// ask returns how many are asked for of each relay, those that may be, and how many are
// forgotten.
func (n *naiveRetries) ask(now time.Time, asked map[graspsync.RelayURL][]graspsync.EventID) (due, gone int) {
	if n.askAt.IsZero() || now.Before(n.askAt) || now.Before(n.next) {
		return 0, 0
	}
	before := len(n.owed)
	n.owed = slices.DeleteFunc(n.owed, func(o *naiveOwed) bool { return o.asks >= 13 && !o.at.After(now) })
	gone = before - len(n.owed)
	for _, o := range n.owed {
		if !o.at.After(now) {
			due++
		}
	}
	due = min(due, 250)
	n.askAt = time.Time{}
	for _, o := range n.owed {
		if slices.Contains(asked[o.relay], o.id) { // which of them is left to chance
			o.asks++
			o.tries++
			o.at = now.Add(doubled(o.tries, time.Minute, 4*time.Hour))
		}
		if n.askAt.IsZero() || o.at.Before(n.askAt) {
			n.askAt = o.at
		}
	}
	if !n.askAt.IsZero() && n.askAt.Before(now.Add(time.Second)) {
		n.askAt = now.Add(time.Second)
	}
	return due, gone
}

func TestRetriesAgainstTheirTwin(t *testing.T) {
	racetest.Amounts(t)
	seen := make(map[string]int)
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 4)) //nolint:gosec // the same each time
		synctest.Test(t, func(t *testing.T) { playRetries(t, rnd, seen) })
	}
	for what, least := range map[string]int{"taken": 500, "asked": 300, "gone": 20, "over": 20, "held back": 50, "batch": 10, "questions": 5} {
		require.GreaterOrEqual(t, seen[what], least, what)
	}
}

func playRetries(t *testing.T, rnd *rand.Rand, seen map[string]int) {
	var r retries
	n := &naiveRetries{missed: make(map[graspsync.RelayURL]time.Time)}
	var relays []graspsync.RelayURL
	for _, host := range []string{"a", "b", "c"} {
		u, err := graspsync.ParseRelayURL("wss://" + host + ".example")
		require.NoError(t, err)
		relays = append(relays, u)
	}
	crowd := rnd.IntN(4) == 0 // more than are tried, or asked for, at once
	last := uint64(0)
	newJob := func() *job {
		last++
		j := &job{size: 1 + rnd.Int64N(100), tries: 1 + rnd.IntN(12), since: time.Now(), apart: rnd.IntN(4) == 0, revived: rnd.IntN(4) == 0}
		binary.BigEndian.PutUint64(j.key.id[:], last)
		j.incoming.Source.Relay = relays[rnd.IntN(len(relays))]
		return j
	}
	add := func() {
		j := newJob()
		r.add(j, time.Now())
		n.jobs = append(n.jobs, &naiveJob{j, time.Now().Add(doubled(j.tries, time.Second, 4*time.Minute))})
	}
	owe := func() {
		now, j := time.Now(), newJob()
		lost, ok := r.owe(j, now)
		require.True(t, ok)
		require.Nil(t, lost)
		at := now.Add(time.Minute)
		n.owed = append(n.owed, &naiveOwed{id: j.key.id, relay: j.incoming.Source.Relay, since: now, at: at})
		if n.askAt.IsZero() || at.Before(n.askAt) {
			n.askAt = at
		}
		_, ok = r.owe(j, now.Add(time.Hour))
		require.True(t, ok, "it is already")
	}
	some := func() graspsync.EventID { // that is owed, as a rule
		if len(n.owed) > 0 && rnd.IntN(5) > 0 {
			return n.owed[rnd.IntN(len(n.owed))].id
		}
		return graspsync.EventID{31: 1}
	}
	for range 200 {
		now := time.Now()
		switch rnd.IntN(13) {
		case 0, 1:
			for range 1 + rnd.IntN(3) {
				add()
			}
			if crowd && rnd.IntN(5) == 0 {
				for range saveBatch {
					add()
				}
			}
		case 2, 3:
			owe()
			if crowd && rnd.IntN(10) == 0 {
				for range 260 {
					owe()
				}
			}
		case 4:
			id := some()
			i := n.find(id)
			require.Equal(t, i >= 0, r.isOwed(id))
			require.Equal(t, i >= 0, r.paid(id))
			if i >= 0 {
				n.owed = slices.Delete(n.owed, i, i+1)
			}
			require.False(t, r.paid(id))
		case 5:
			id := some()
			i := n.find(id)
			require.Equal(t, i >= 0, r.came(id))
			if i >= 0 {
				n.owed[i].asks = 0
			}
		case 6:
			u := relays[rnd.IntN(len(relays))]
			j := r.miss(u, now)
			n.missed[u] = now.Add(24 * time.Hour)
			require.Equal(t, u, j.tokens[0].relay)
			require.Same(t, j, r.miss(u, now))
		case 7:
			n.works++
			require.Equal(t, n.wait > 0, r.worked(now))
			if n.wait > 0 {
				n.wait, n.next = 0, time.Time{}
				for _, j := range n.jobs {
					j.due = now
				}
			}
		case 8:
			n.wait = min(max(time.Second, 2*n.wait), 4*time.Minute)
			n.next = now.Add(n.wait)
			r.failed(now)
			r.arm(now)
			seen["held back"]++
		case 9:
			r.hurry(now)
			r.arm(now)
			for _, o := range n.owed {
				o.at, o.tries = now, 0
				n.askAt = now
			}
		default: // as the writer does
			if rnd.IntN(3) > 0 {
				time.Sleep(time.Duration(rnd.Int64N(int64([]time.Duration{time.Second, time.Minute, 10 * time.Hour}[rnd.IntN(3)]))))
			}
			n.wake(t, &r, rnd, seen)
		}
		n.same(t, &r)
	}
	var all []*job
	for _, j := range n.jobs {
		all = append(all, j.of)
	}
	require.True(t, slices.Equal(all, r.all()))
	n.jobs = nil
	n.same(t, &r)
}

// wake waits for the moment in which something is to be done, and does it.
func (n *naiveRetries) wake(t *testing.T, r *retries, rnd *rand.Rand, seen map[string]int) {
	t.Helper()
	at := n.wakes()
	if at.IsZero() {
		require.Nil(t, r.due())
		return
	}
	if rnd.IntN(4) > 0 { // and not before
		<-r.due()
		if now := time.Now(); at.Before(now) {
			at = now
		}
		require.Equal(t, at, time.Now())
	}
	now := time.Now()
	jobs := r.take(now)
	require.Equal(t, n.take(now), jobs)
	seen["taken"] += len(jobs)
	if len(jobs) == saveBatch {
		seen["batch"]++
	}
	over := make(map[graspsync.RelayURL]bool)
	for _, j := range r.over(now) {
		over[j.tokens[0].relay] = true
	}
	for u, due := range n.missed {
		require.Equal(t, !due.After(now), over[u])
		if over[u] {
			delete(n.missed, u)
			seen["over"]++
		}
	}
	asked, gone := r.ask(now)
	count := 0
	for u, ids := range asked {
		count += len(ids)
		for _, id := range ids {
			i := n.find(id)
			if i < 0 || n.owed[i].relay != u || n.owed[i].at.After(now) {
				t.Fatal("what is asked for is owed, of that relay, and due")
			}
		}
	}
	wantDue, wantGone := n.ask(now, asked)
	require.Equal(t, []int{wantDue, wantGone}, []int{count, gone})
	seen["asked"] += count
	seen["gone"] += gone
	if count == 250 {
		seen["questions"]++
	}
	r.arm(now)
}

// same compares all that can be seen.
func (n *naiveRetries) same(t *testing.T, r *retries) {
	t.Helper()
	require.Equal(t, n.works, r.works)
	all, _ := n.held()
	require.Equal(t, all, r.held)
	require.Len(t, r.jobs, len(n.jobs))
	for i, j := range n.jobs {
		if j.of != r.jobs[i] || !j.due.Equal(r.jobs[i].due) { // which is faster than to require it of so many
			require.Equal(t, j.due, r.jobs[i].due)
			require.Same(t, j.of, r.jobs[i])
		}
	}
	require.Len(t, r.owed, len(n.owed))
	for _, o := range n.owed {
		got := r.owed[o.id]
		require.NotNil(t, got)
		if got.turn.Item == o.id && got.relay == o.relay && got.since.Equal(o.since) && got.at.Equal(o.at) && got.tries == o.tries && got.asks == o.asks {
			continue
		}
		require.Equal(t, naiveOwed{o.id, o.relay, o.since, o.at, o.tries, o.asks}, naiveOwed{got.turn.Item, got.relay, got.since, got.at, got.tries, got.asks})
	}
	numbers := 0
	for _, u := range r.relays.URLs() {
		if !u.IsZero() {
			numbers++
		}
	}
	of := make(map[graspsync.RelayURL]bool)
	for _, o := range n.owed {
		of[o.relay] = true
	}
	require.Equal(t, len(of), numbers, "a relay has its place while something of it is owed")
	require.Len(t, r.missed, len(n.missed))
	if !n.wakes().IsZero() {
		require.NotNil(t, r.due())
	}
	if len(n.owed) > 0 {
		require.False(t, r.askAt.IsZero(), "what is owed is asked for")
	}
}
