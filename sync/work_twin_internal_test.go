package sync

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/sync/internal/allowance"
	"github.com/graspsync/graspsync/sync/internal/session"
)

// naiveWork is what work should be, as a table of allowances by name.
type naiveWork struct {
	most    int64
	buckets map[string]*allowance.Bucket
	needs   map[string]int64 // bytes that history waits for
	said    map[string]bool  // that they are there
	inside  map[string]int64 // bytes in the pipeline
	freed   bool
	ready   bool
	record  naiveRecord
}

var (
	payers = map[lane]string{foreignLane: "foreign", oursLane: "ours", trustedLane: "trusted", newcomerLane: "ours"}
	lanes  = []lane{foreignLane, oursLane, trustedLane, newcomerLane}
)

func newNaiveWork(most int64) *naiveWork {
	n := &naiveWork{
		most: most, buckets: make(map[string]*allowance.Bucket), needs: make(map[string]int64), said: make(map[string]bool), inside: make(map[string]int64),
		record: newNaiveRecord(),
	}
	for name, size := range map[string]int64{
		"foreign": most, "ours": most, "trusted": most, "foreign live": max(1, most/2), "ours live": max(1, most/2), "unread": 4 * most,
	} {
		b := allowance.NewWork(size)
		n.buckets[name] = &b
	}
	return n
}

// take takes a cost of all that has to pay for it, or of nothing.
func (n *naiveWork) take(now time.Time, cost int64, name string, live bool) time.Duration {
	b, share := n.buckets[name], n.buckets[name+" live"]
	if !live || share == nil || n.needs[name] == 0 {
		return b.Take(now, cost)
	}
	if part := min(cost, share.Most()); share.Left(now) < part {
		return share.Take(now, part)
	} else if b.Left(now) >= cost {
		share.Take(now, part)
	}
	return b.Take(now, cost)
}

func (n *naiveWork) try(now time.Time, size int64, of lane, live bool) (cost int64, from lane, wait time.Duration) {
	cost = allowance.Work(n.most, size)
	borrowed := func() bool {
		for _, from = range []lane{foreignLane, trustedLane} {
			b := n.buckets[payers[from]]
			if b.Left(now)-cost >= n.most/2 && n.take(now, cost, payers[from], live) == 0 {
				return true
			}
		}
		return false
	}
	if of == newcomerLane && n.needs["ours"] > 0 && borrowed() {
		return cost, from, 0
	}
	if wait = n.take(now, cost, payers[of], live); wait > 0 && of == newcomerLane && borrowed() {
		return cost, from, 0
	}
	return cost, of, wait
}

func (n *naiveWork) earn(of lane, size int64) {
	n.buckets[payers[of]].Earn(size)
	if share := n.buckets[payers[of]+" live"]; share != nil {
		share.Earn(size)
	}
	n.freed = true
	n.look()
}

func (n *naiveWork) reserve(needs map[string]int64) {
	for name, bytes := range needs {
		n.said[name] = n.said[name] && bytes == n.needs[name]
	}
	n.needs = needs
	n.look()
}

// look says it if what history waits for has come.
func (n *naiveWork) look() {
	for name, bytes := range n.needs {
		there := bytes > 0 && n.buckets[name].Left(time.Now()) >= bytes
		n.ready = n.ready || there && !n.said[name]
		n.said[name] = there
	}
}

func TestWorkAgainstItsTwin(t *testing.T) {
	racetest.Amounts(t)
	outcomes := make(map[string]int)
	for seed := range uint64(150) {
		rnd := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // the same each time
		synctest.Test(t, func(t *testing.T) {
			most := []int64{1, 2, 3, 1_999, 2_000, 2_001, 4_001, 100_000}[rnd.IntN(8)]
			each := (most + 1_999) / 2_000
			w, n := newWork(most), newNaiveWork(most)
			wakes := waiter{1, make(chan struct{}, 1)}
			name := map[bool]string{true: "ours", false: "foreign"}
			size := func() int64 {
				return []int64{0, 1, each, each + 1, most / 4, most / 2, most/2 + 1, most, most + 1, 3 * most}[rnd.IntN(10)]
			}
			for range 150 {
				now := time.Now()
				s, of, ours, live := size(), lanes[rnd.IntN(4)], rnd.IntN(2) == 0, rnd.IntN(3) > 0
				switch rnd.IntN(10) {
				case 0, 1, 2:
					cost, from, wait := w.try(s, of, live)
					wantCost, wantFrom, wantWait := n.try(now, s, of, live)
					require.Equal(t, []any{wantCost, wantFrom, wantWait}, []any{cost, from, wait})
					switch {
					case wait > 0:
						outcomes["waits"]++
					case from != of:
						outcomes["borrows"]++
					default:
						outcomes["taken"]++
					}
				case 3:
					cost := w.owe(s, ours)
					require.Equal(t, allowance.Work(most, s), cost)
					n.buckets[name[ours]].Owe(now, cost)
				case 4:
					w.give(s, of)
					n.earn(of, s)
				case 5:
					require.Equal(t, n.buckets["unread"].Take(now, s) == 0, w.skip(s))
				case 6:
					foreign, own := []int{0, 1, 500, 1_999}[rnd.IntN(4)], []int{0, 1, 500, 1_999}[rnd.IntN(4)]
					w.reserve(wakes, foreign, own)
					n.reserve(map[string]int64{"foreign": int64(foreign) * each, "ours": int64(own) * each})
				case 7:
					n.visit(t, w, rnd, s, ours)
				case 8:
					author, of := graspsync.PubKey{byte(rnd.IntN(4))}, categoryOf(graspsync.KindIssue, graspsync.PubKey{byte(rnd.IntN(2))})
					useful := rnd.IntN(2) == 0
					w.judged(author, of, useful, s)
					weight := 1 // verifications, a part of one being one
					for cost := allowance.Work(most, s); int64(weight)*each < cost; weight++ {
					}
					n.record.judged(author, of, useful, weight)
					for a := range byte(4) {
						require.Equal(t, n.record.lane(graspsync.PubKey{a}, of), w.laneFor(graspsync.PubKey{a}, of))
					}
				case 9:
					time.Sleep(time.Duration(rnd.Int64N(int64(100 * time.Second))))
				}
				n.same(t, w)
			}
			w.leftOver(t)
		})
	}
	for _, o := range []string{"waits", "borrows", "taken"} {
		require.Greater(t, outcomes[o], 200, o)
	}
}

// same compares all that can be seen of it.
func (n *naiveWork) same(t *testing.T, w *work) {
	t.Helper()
	now := time.Now()
	full := true
	for name, b := range map[string]*allowance.Bucket{
		"foreign": &w.foreign, "ours": &w.ours, "trusted": &w.trusted,
		"foreign live": &w.foreignLive, "ours live": &w.oursLive, "unread": &w.unread,
	} {
		require.Equal(t, n.buckets[name].Left(now), b.Left(now), name)
		full = full && b.Left(now) == n.buckets[name].Most()
	}
	require.Equal(t, full, w.full(now))
	each := (n.most + 1_999) / 2_000
	for name, ours := range map[string]bool{"foreign": false, "ours": true} {
		b := n.buckets[name]
		require.Equal(t, session.Budget{
			Now: int(b.Left(now) / each), Full: int(max(1, n.most/2/each)), Every: b.Per(each),
		}, w.budget(now, ours))
	}
	select {
	case <-w.freed:
		require.True(t, n.freed)
	default:
		require.False(t, n.freed, "who waits is told")
	}
	n.freed = false
	select {
	case <-w.waiter.ready:
		require.True(t, n.ready)
	default:
		require.False(t, n.ready, "who waits is told")
	}
	n.ready = false
}

// visit has an event in the pipeline for a while, if there is room for it.
func (n *naiveWork) visit(t *testing.T, w *work, rnd *rand.Rand, size int64, ours bool) {
	t.Helper()
	var sizes []int64
	for range 1 + rnd.IntN(4) {
		held := int64(0)
		for _, s := range sizes {
			held += min(s, n.most)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		err := w.enter(ctx, size, ours)
		cancel()
		require.Equal(t, held+min(size, n.most) <= n.most, err == nil)
		if err == nil {
			sizes = append(sizes, size)
		}
	}
	require.True(t, w.inside(!ours).TryAcquire(n.most), "the others have a share of their own")
	w.inside(!ours).Release(n.most)
	for _, s := range sizes {
		w.leave(s, ours)
	}
}

// Who waits for its allowance has it when it has come back, at once when something else was
// of use, and never when nobody wants it any more.
func TestTakingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 2_000_000
		taken := func(ctx context.Context, w *work) (took time.Duration, cost int64, from lane, err error) {
			began := time.Now()
			cost, from, err = w.take(ctx, 1_000, newcomerLane, true)
			return time.Since(began), cost, from, err
		}
		w := newWork(most)
		took, cost, from, err := taken(t.Context(), w)
		require.NoError(t, err)
		require.Equal(t, []any{time.Duration(0), int64(1_000), newcomerLane}, []any{took, cost, from})

		for _, of := range []lane{oursLane, foreignLane, trustedLane} {
			w.bucket(of).Owe(time.Now(), most)
		}
		took, cost, from, err = taken(t.Context(), w)
		require.NoError(t, err)
		require.Equal(t, []any{time.Second, int64(1_000), newcomerLane}, []any{took, cost, from})

		w.bucket(oursLane).Owe(time.Now(), most)
		go func() {
			time.Sleep(500 * time.Millisecond)
			w.give(most, oursLane)
		}()
		took, _, _, err = taken(t.Context(), w)
		require.NoError(t, err)
		require.Equal(t, 500*time.Millisecond, took)

		w.bucket(oursLane).Owe(time.Now(), most)
		gone := errors.New("nobody wants it")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(700*time.Millisecond, func() { cancel(gone) })
		took, cost, from, err = taken(ctx, w)
		require.Equal(t, gone, err)
		require.Equal(t, []any{700 * time.Millisecond, int64(0), newcomerLane}, []any{took, cost, from})
	})
}

// naiveRecord is what a record should be of few authors and categories.
type naiveRecord struct {
	good, bad  map[graspsync.PubKey]int
	categories map[category]int
}

func newNaiveRecord() naiveRecord {
	return naiveRecord{good: make(map[graspsync.PubKey]int), bad: make(map[graspsync.PubKey]int), categories: make(map[category]int)}
}

// judged goes by single events of weight one, but for where a whole one counts.
func (n naiveRecord) judged(author graspsync.PubKey, of category, useful bool, weight int) {
	if useful {
		if n.bad[author] > 0 {
			n.bad[author] = max(0, n.bad[author]-weight)
		} else {
			n.good[author] = min(8, n.good[author]+weight)
		}
		if n.categories[of] -= weight; n.categories[of] <= 0 {
			delete(n.categories, of)
		}
		return
	}
	paid := min(weight, n.good[author])
	if paid > 0 {
		n.good[author] -= paid
	}
	if weight -= paid; weight == 0 {
		return
	}
	known := n.bad[author] >= 8
	more := func(count int) int {
		if count < 8 {
			return count + weight
		}
		return max(count, min(count+weight, 16))
	}
	n.bad[author] = more(n.bad[author])
	if !known {
		n.categories[of] = more(n.categories[of])
	}
}

func (n naiveRecord) lane(author graspsync.PubKey, of category) lane {
	switch {
	case n.bad[author] >= 8:
		return oursLane
	case n.good[author] > 0, n.categories[of] < 8:
		return trustedLane
	}
	return newcomerLane
}

func TestRecordAgainstItsTwin(t *testing.T) {
	racetest.Amounts(t)
	seen := make(map[lane]int)
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // the same each time
		var r record
		n := newNaiveRecord()
		ofUse := 1 + rnd.IntN(4)
		for range 300 {
			author := graspsync.PubKey{byte(rnd.IntN(5))}
			of := categoryOf([]int{graspsync.KindIssue, 1, 7}[rnd.IntN(3)], graspsync.PubKey{byte(rnd.IntN(2))})
			useful, weight := rnd.IntN(ofUse+1) > 0, 1+rnd.IntN(3)
			if rnd.IntN(10) == 0 {
				weight = 1 + rnd.IntN(30)
			}
			r.judged(author, of, useful, weight)
			n.judged(author, of, useful, weight)
			require.True(t, maps.Equal(n.categories, r.categories))
			for a := range byte(5) {
				author := graspsync.PubKey{a}
				require.Equal(t, [2]int{n.good[author], n.bad[author]}, [2]int{r.good.count(author), r.bad.count(author)})
				want := n.lane(author, of)
				require.Equal(t, want == trustedLane, r.trusts(author, of))
				require.Equal(t, want == oursLane, r.distrusts(author))
				seen[want]++
			}
			require.Len(t, r.good.young, len(n.good), "who is not known takes no place among those who are")
			require.Len(t, r.bad.young, len(n.bad))
		}
	}
	for _, of := range []lane{trustedLane, oursLane, newcomerLane} {
		assert.Greater(t, seen[of], 1_000, of)
	}
}

// 256 categories are told apart; of those that come after them what is common to all
// owners.
func TestCategoriesAreBounded(t *testing.T) {
	var r record
	of := func(n int) category { return categoryOf(graspsync.KindIssue, testKey(n)) }
	for n := range 256 {
		r.judged(testKey(n), of(n), false, distrust)
		require.Len(t, r.categories, n+1)
		require.Contains(t, r.categories, of(n))
	}
	for n := 256; n < 300; n++ {
		r.judged(testKey(n), of(n), false, 1)
		require.Len(t, r.categories, 257)
	}
	require.Equal(t, 16, r.categories[category{kind: graspsync.KindIssue}])
	r.judged(testKey(400), of(3), true, distrust)
	r.judged(testKey(401), category{kind: graspsync.KindIssue}, true, 16)
	require.Len(t, r.categories, 255)
	require.False(t, r.trusts(testKey(402), of(4)))
	require.True(t, r.trusts(testKey(402), of(3)), "it is forgiven")
	r.judged(testKey(403), of(500), false, 1)
	require.Contains(t, r.categories, of(500), "there is a place again")
}
