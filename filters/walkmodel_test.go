package filters_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

type stamp struct {
	at nostr.Timestamp
	id graspsync.EventID
}

// modelRelay answers as NIP-01 says: newest first, the lowest id first within a
// second, until and since inclusive, at most limit and at most its own cap.
type modelRelay struct {
	events []stamp
	cap    int
	nip67  bool
	// before, if set, is called with every page before it is sent, to misbehave.
	before func(page []stamp) []stamp
}

func newModel(limit int, times ...nostr.Timestamp) *modelRelay {
	r := &modelRelay{cap: limit}
	for i, at := range times {
		r.events = append(r.events, stamp{at, number32[graspsync.EventID](i)})
	}
	r.sort()
	return r
}

func (r *modelRelay) sort() {
	slices.SortFunc(r.events, func(a, b stamp) int {
		return cmp.Or(cmp.Compare(b.at, a.at), a.id.Compare(b.id))
	})
}

func (r *modelRelay) answer(f nostr.Filter) (page []stamp, complete, more bool) {
	for _, ev := range r.events {
		if f.Until != nil && ev.at > *f.Until || f.Since != nil && ev.at < *f.Since {
			continue
		}
		page = append(page, ev)
	}
	n := min(len(page), r.cap, f.Limit)
	cut := n < len(page)
	page = page[:n]
	if r.before != nil {
		page = r.before(slices.Clone(page))
	}
	return page, r.nip67 && !cut, r.nip67 && cut
}

// counts returns how many events each second has.
func (r *modelRelay) counts() map[nostr.Timestamp]int {
	n := map[nostr.Timestamp]int{}
	for _, ev := range r.events {
		n[ev.at]++
	}
	return n
}

// run walks to the end and returns what came, and fails if the walk does not end
// within the promised number of pages.
func run(t testing.TB, r *modelRelay, w *filters.Walk) map[graspsync.EventID]bool {
	t.Helper()
	got := map[graspsync.EventID]bool{}
	fresh, moved := 0, 0
	before := int64(-1)
	for !w.Done() {
		if w.Done() {
			break
		}
		page, complete, more := r.answer(w.Next())
		for _, ev := range page {
			if w.Saw(ev.id, ev.at) {
				fresh++
			}
			got[ev.id] = true
		}
		w.End(complete, more)
		if until := w.Until(); until != before {
			moved, before = moved+1, until
		}
		if w.Pages() > fresh+moved+2 {
			t.Fatalf("the walk does not end: %d pages", w.Pages())
		}
	}
	require.True(t, w.Done())
	return got
}

// missed returns what the model has and got has not.
func missed(r *modelRelay, got map[graspsync.EventID]bool) (out []stamp) {
	for _, ev := range r.events {
		if !got[ev.id] {
			out = append(out, ev)
		}
	}
	return out
}

func seconds(from, to nostr.Timestamp) (out []nostr.Timestamp) {
	for at := from; at <= to; at++ {
		out = append(out, at)
	}
	return out
}

// checkWalk compares a walk with the model, which knows what must be found.
func checkWalk(t testing.TB, r *modelRelay, f nostr.Filter, opt filters.WalkStart) {
	t.Helper()
	w := filters.NewWalk(f, opt)
	got := run(t, r, w)
	page := min(r.cap, cmp.Or(max(opt.Limit, 0), filters.DefaultLimit))
	gaps := w.Gaps()
	require.True(t, slices.IsSortedFunc(gaps, func(a, b nostr.Timestamp) int { return cmp.Compare(b, a) }))
	require.Equal(t, slices.Compact(slices.Clone(gaps)), gaps, "each gap once")
	count := r.counts()
	for _, ev := range r.events {
		inside := (f.Since == nil || ev.at >= *f.Since) && (f.Until == nil || ev.at <= *f.Until) &&
			(opt.Until == 0 || int64(ev.at) <= opt.Until)
		switch {
		case !inside && got[ev.id]:
			t.Fatalf("not asked for: %v", ev)
		case inside && count[ev.at] > page && !slices.Contains(gaps, ev.at):
			t.Fatalf("%d events in second %d and no gap; page %d, gaps %v", count[ev.at], ev.at, page, gaps)
		case inside && count[ev.at] <= page && !got[ev.id]:
			t.Fatalf("lost %v; page %d, gaps %v", ev, page, gaps)
		}
	}
	for _, g := range gaps {
		// A second of exactly a page can't be told from one that was cut. Where the
		// page size is not known, neither can the largest there is.
		least := page
		if opt.PageSize < page {
			least = 1
		}
		require.GreaterOrEqual(t, count[g], least, "nothing is missing at %d", g)
	}
	require.Equal(t, len(gaps) == 0, w.Complete())
	require.LessOrEqual(t, w.PageSize(), max(page, opt.PageSize))
}

// modelFrom builds a relay, a filter and options from bytes.
func modelFrom(s *source) (r *modelRelay, f nostr.Filter, opt filters.WalkStart) {
	r = &modelRelay{cap: 1 + s.intn(12), nip67: s.intn(4) == 0}
	opt.Limit = []int{0, 1, 3, 8, 20}[s.intn(5)]
	if s.intn(2) == 0 {
		opt.PageSize = min(r.cap, cmp.Or(opt.Limit, filters.DefaultLimit))
	}
	at := nostr.Timestamp(200)
	if s.intn(4) == 0 {
		at = 40
	}
	for n := 0; len(s.data) > 4 && n < 200; {
		at -= nostr.Timestamp(s.intn(3))
		burst := 1
		if s.intn(5) == 0 {
			burst = 1 + s.intn(30)
		}
		for range burst {
			if at >= 0 {
				r.events = append(r.events, stamp{at, number32[graspsync.EventID](n)})
			}
			n++
		}
	}
	r.sort()
	if s.intn(3) == 0 {
		f.Since = ts(int64(max(at, 0)) + int64(s.intn(40)))
	}
	if s.intn(3) == 0 {
		f.Until = ts(200 - int64(s.intn(40)))
	}
	if s.intn(3) == 0 {
		opt.Until = 200 - int64(s.intn(40))
	}
	return r, f, opt
}

func TestWalkAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 2000 {
		data := make([]byte, 10+rng.IntN(150))
		for i := range data {
			data[i] = byte(rng.UintN(256))
		}
		r, f, opt := modelFrom(&source{data})
		checkWalk(t, r, f, opt)
	}
}

func FuzzWalk(f *testing.F) {
	f.Add([]byte("a relay with a small cap and some events"))
	f.Add([]byte{0, 1, 0, 1, 1, 0, 0, 29, 0, 0, 29, 1, 1, 1, 2, 2, 2, 0, 0, 0})
	f.Add([]byte(strings.Repeat("\x01\x00\x1d", 40)))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, filter, opt := modelFrom(&source{data})
		checkWalk(t, r, filter, opt)
	})
}

// FuzzWalkHostile lets a relay answer anything: the walk must end as long as no
// new ids come, and must not ask for negative times.
func FuzzWalkHostile(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	f.Add([]byte(strings.Repeat("\x05\x00\x00\x01\x02", 30)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &source{data}
		w := filters.NewWalk(nostr.Filter{Until: ts(int64(s.intn(64)))}, filters.WalkStart{Limit: 1 + s.intn(4), PageSize: s.intn(4)})
		fresh := 0
		for !w.Done() {
			until := *w.Next().Until
			require.GreaterOrEqual(t, until, nostr.Timestamp(0))
			for range s.intn(8) {
				if w.Saw(graspsync.EventID{byte(s.intn(6))}, nostr.Timestamp(s.intn(70)-3)) {
					fresh++
				}
			}
			hint := s.intn(6)
			w.End(hint == 5, hint == 4)
			require.LessOrEqual(t, w.Until(), int64(until), "until never rises")
			require.LessOrEqual(t, w.Pages(), fresh+64+2)
		}
	})
}
