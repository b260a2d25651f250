package absent

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// naiveRejected remembers events in lists that are gone through from their beginning.
type naiveRejected struct {
	entries []*naiveEntry // that were noted longest ago first
	seq     int
	tags    *rand.Rand // draws what events and filters tag
}

// naiveEntry is all that is to be seen of an event.
type naiveEntry struct {
	ID        graspsync.EventID
	Author    uint64
	CreatedAt nostr.Timestamp
	Kind      int
	Seen      int64
	Relay     graspsync.RelayURL
	Deps      []Key
	Tries     int

	Accepted, Asked, Judged bool
	Whole                   *naiveWhole
}

func tagOf(i int) string { return string(rune('a' + i)) }

// naiveWhole is an event that is whole.
type naiveWhole struct {
	In    string
	Event *nostr.Event
	Since time.Time
	Size  int64
	seq   int // of arrival
	turn  int // in its holding
}

func (n *naiveRejected) find(id graspsync.EventID) *naiveEntry {
	for _, e := range n.entries {
		if e.ID == id {
			return e
		}
	}
	return nil
}

func (n *naiveRejected) remove(gone *naiveEntry) {
	n.entries = slices.DeleteFunc(n.entries, func(e *naiveEntry) bool { return e == gone })
}

const naiveKeep = 7 * 24 * 3600 // seconds

func (e *naiveEntry) old(now time.Time) bool { return now.Unix()-e.Seen > naiveKeep }

func (e *naiveEntry) due(now time.Time) bool {
	hours := []int64{0, 1, 2, 4, 8, 16, 20, 20}[e.Tries]
	return e.Tries > 0 && e.Whole == nil && now.Unix()-e.Seen >= hours*3600
}

func (e *naiveEntry) counts(now time.Time) bool {
	return !e.Asked && e.CreatedAt >= 0 && !e.old(now) && !e.due(now)
}

func (n *naiveRejected) shrink(now time.Time) {
	for _, e := range n.entries {
		if e.Whole != nil && e.Whole.In == "fresh" && now.Sub(e.Whole.Since) >= 2*time.Minute {
			e.Whole = nil
		}
	}
	n.entries = slices.DeleteFunc(n.entries, func(e *naiveEntry) bool { return e.old(now) })
}

func (n *naiveRejected) entry(in Note, now time.Time) *naiveEntry {
	e := n.find(in.ID)
	if e == nil {
		e = &naiveEntry{ID: in.ID, CreatedAt: -1}
	}
	n.remove(e)
	n.entries = append(n.entries, e)
	e.Seen, e.Relay = now.Unix(), in.Incoming.Source.Relay
	return e
}

func (n *naiveRejected) add(in Note, now time.Time) {
	e := n.entry(in, now)
	ev := in.Incoming.Event
	e.CreatedAt, e.Kind = ev.CreatedAt, ev.Kind
	if author, err := graspsync.ParsePubKey(ev.PubKey.String()); err == nil {
		e.Author = shortKey(author)
	}
	tries := min(max(e.Tries, in.Tries)+1, 7)
	e.Asked, e.Judged, e.Tries, e.Whole, e.Deps = false, false, 0, nil, in.Deps
	e.Accepted = e.Accepted || in.Accepted
	if in.Later {
		e.Tries = tries
	}
	where := ""
	switch {
	case in.Fresh:
		where = "fresh"
	case in.Later && in.Tries < 4:
		where = "later"
	case in.Waits:
		where = "wait"
	}
	if where != "" {
		n.seq++
		e.Whole = &naiveWhole{In: where, Event: ev.Event, Since: now, Size: in.Size, seq: n.seq, turn: n.seq}
	}
	n.shrink(now)
}

func (n *naiveRejected) owe(in Note, now time.Time) {
	e := n.entry(in, now)
	if e.CreatedAt == -1 {
		e.CreatedAt, e.Kind = in.Incoming.Event.CreatedAt, in.Incoming.Event.Kind
	}
	e.Whole, e.Deps, e.Judged, e.Tries, e.Asked = nil, nil, false, 0, true
	n.shrink(now)
}

func (n *naiveRejected) forget(id graspsync.EventID) {
	e := n.find(id)
	switch {
	case e == nil:
	case e.Accepted:
		e.Whole, e.Deps, e.Judged, e.Tries, e.Asked = nil, nil, false, 0, true
	default:
		n.remove(e)
	}
}

func (n *naiveRejected) stored(id graspsync.EventID) {
	e := n.find(id)
	switch {
	case e == nil:
	case e.Accepted:
		e.Whole, e.Judged, e.Tries, e.Asked = nil, false, 0, false
	default:
		n.remove(e)
	}
}

// wake returns those of the entries whose events are whole, in the order in which these came,
// and has the others asked for.
func wake(entries []*naiveEntry) (whole []*nostr.Event, ask map[graspsync.RelayURL][]graspsync.EventID) {
	var woken []*naiveWhole
	for _, e := range entries {
		if e.Whole != nil {
			woken = append(woken, e.Whole)
			e.Whole, e.Deps, e.Judged = nil, nil, true
		} else if !e.Asked {
			e.Asked = true
			lazy.Put(&ask, e.Relay, append(ask[e.Relay], e.ID))
		}
	}
	slices.SortFunc(woken, func(a, b *naiveWhole) int { return a.seq - b.seq })
	for _, w := range woken {
		whole = append(whole, w.Event)
	}
	return whole, ask
}

func (n *naiveRejected) inTurn(most int, last, now time.Time) (turn []*nostr.Event) {
	var queue []*naiveEntry
	relays := make(map[graspsync.RelayURL]int)
	for _, e := range n.entries {
		if e.Whole != nil && e.Whole.In == "later" {
			relays[e.Relay] = 0
			if !e.Whole.Since.After(last) {
				queue = append(queue, e)
			}
		}
	}
	slices.SortFunc(queue, func(a, b *naiveEntry) int { return a.Whole.turn - b.Whole.turn })
	part := most / max(1, len(relays))
	for _, all := range []bool{false, true} {
		for _, e := range queue {
			if len(turn) < most && e.Whole.Since != now && (all || relays[e.Relay] < part) {
				relays[e.Relay]++
				n.seq++
				e.Whole.Since, e.Whole.turn = now, n.seq
				turn = append(turn, e.Whole.Event)
			}
		}
	}
	return turn
}

func (n *naiveRejected) overdue(most int, now time.Time) (ask map[graspsync.RelayURL][]graspsync.EventID, any bool) {
	for _, e := range n.entries {
		any = any || e.Tries > 0
		if e.Tries > 0 && e.Tries <= 4 && !e.Asked && e.due(now) && len(ask[e.Relay]) < most {
			e.Asked = true
			lazy.Put(&ask, e.Relay, append(ask[e.Relay], e.ID))
		}
	}
	return ask, any
}

// restart is what another process finds.
func (n *naiveRejected) restart(now time.Time) {
	for _, e := range n.entries {
		e.Whole = nil
		e.Asked, e.Judged = e.Asked || e.Judged, false
		if e.Tries > 0 {
			e.Asked = false
			e.Seen = min(e.Seen, now.Unix()-[]int64{0, 1, 2, 4, 8, 16, 20, 20}[e.Tries]*3600)
		}
		e.CreatedAt = max(e.CreatedAt, -1)
	}
	n.shrink(now)
}

// seen is all that is to be seen of what is remembered.
func (r *Table) seen() (out []naiveEntry) {
	for el := r.order.Front(); el != nil; el = el.Next() {
		e := entryOf(el)
		x := naiveEntry{
			ID: e.id, Author: e.author, CreatedAt: e.createdAt, Kind: int(e.kind), Seen: e.seen, Relay: r.relays.URL(e.relay),
			Tries: e.flags.tries(), Accepted: e.flags&fateAccepted != 0, Asked: e.flags&fateAsked != 0, Judged: e.flags&fateJudged != 0,
		}
		for _, d := range e.deps {
			x.Deps = append(x.Deps, d.key)
		}
		if e.whole != nil {
			w := wholeOf(e.whole)
			in := map[*holding]string{&r.wait: "wait", &r.fresh: "fresh", &r.later: "later"}[w.in]
			x.Whole = &naiveWhole{In: in, Event: w.Incoming.Event.Event, Since: w.since, Size: w.Size}
		}
		out = append(out, x)
	}
	return out
}

func (n *naiveRejected) seen() (out []naiveEntry) {
	for _, e := range n.entries {
		x := *e
		if len(x.Deps) == 0 {
			x.Deps = nil
		}
		if e.Whole != nil {
			w := *e.Whole
			w.seq, w.turn = 0, 0
			x.Whole = &w
		}
		out = append(out, x)
	}
	return out
}

// Whatever happens to events that are not here, in whatever order: all that is remembered, and
// every answer, is what a naive twin has. No bound is reached.
func TestRejectedAgainstItsTwin(t *testing.T) {
	racetest.Amounts(t)
	seen := make(map[string]int)
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 11))                                                               //nolint:gosec // the same each time
		synctest.Test(t, func(t *testing.T) { playRejected(t, rnd, rand.New(rand.NewPCG(seed, 12)), seen) }) //nolint:gosec // the same each time
	}
	for _, what := range []string{"whole", "asked", "turn", "overdue", "restart", "gone", "wanted", "due"} {
		require.Greater(t, seen[what], 15, what)
	}
}

func playRejected(t *testing.T, rnd, tags *rand.Rand, seen map[string]int) {
	time.Sleep(30 * 24 * time.Hour)
	r, n := testTable(1_000, 1_000, 1<<30), &naiveRejected{tags: tags}
	relays := []graspsync.RelayURL{{}, testURL(t, "wss://a.example"), testURL(t, "wss://b.example"), testURL(t, "wss://c.example")}
	keys := []Key{1, 2, 3, 4}
	id := func() graspsync.EventID { return testID(rnd.IntN(14)) }
	some := func() (out []Key) {
		for _, k := range keys {
			if rnd.IntN(3) == 0 {
				out = append(out, k)
			}
		}
		return out
	}
	events := func(whole []*Whole) (out []*nostr.Event) {
		for _, w := range whole {
			out = append(out, w.Incoming.Event.Event)
		}
		return out
	}
	sorted := func(ask map[graspsync.RelayURL][]graspsync.EventID) map[graspsync.RelayURL][]graspsync.EventID {
		for u, ids := range ask {
			ask[u] = slices.SortedFunc(slices.Values(ids), func(a, b graspsync.EventID) int { return slices.Compare(a[:], b[:]) })
		}
		return ask
	}
	for range 120 {
		time.Sleep([]time.Duration{0, 0, time.Second, time.Minute, time.Hour, 10 * time.Hour, 2 * 24 * time.Hour}[rnd.IntN(7)])
		now, was := time.Now(), len(n.entries)
		switch rnd.IntN(14) {
		case 0, 1, 2, 3, 4:
			in := Note{ID: id(), Size: 100 + rnd.Int64N(9), Deps: some(), Accepted: rnd.IntN(2) == 1, Tries: rnd.IntN(2) * rnd.IntN(6)}
			ev := testEvent(1, 1+rnd.IntN(3), rnd.IntN(3), nostr.Timestamp(rnd.IntN(5)-1))
			ev.ID = in.ID.String()
			for range tags.IntN(5) { // the same one twice at times
				ev.Tags = append(ev.Tags, nostr.Tag{[]string{"t", "q", "name"}[tags.IntN(3)], tagOf(tags.IntN(3))})
			}
			if rnd.IntN(5) == 0 {
				ev.PubKey = graspsync.PubKey{}.String()
			}
			in.Incoming = graspsync.Incoming{Event: eventtest.Of(ev), Source: graspsync.Source{Relay: relays[rnd.IntN(4)]}}
			switch rnd.IntN(4) {
			case 0:
				in.Waits = true
			case 1:
				in.Fresh = true
			case 2:
				in.Later = true
			}
			if rnd.IntN(6) == 0 {
				r.Owe(in)
				n.owe(in, now)
			} else {
				require.Zero(t, r.Add(in))
				n.add(in, now)
			}
		case 5:
			x := id()
			r.Forget(x)
			n.forget(x)
		case 6:
			x := id()
			r.Stored(x)
			n.stored(x)
		case 7:
			x := id()
			r.Here(x)
			if e := n.find(x); e != nil {
				e.Asked = false
			}
		case 8:
			x := id()
			r.Judging(x)
			if e := n.find(x); e != nil {
				e.Whole, e.Judged = nil, true
			}
		case 9, 10:
			fulfilled := some()
			whole, ask := r.Arrived(fulfilled)
			n.shrink(now)
			var entries []*naiveEntry
			for _, k := range fulfilled {
				for _, e := range n.entries {
					if slices.Contains(e.Deps, k) && !slices.Contains(entries, e) {
						entries = append(entries, e)
					}
				}
			}
			wantWhole, wantAsk := wake(entries)
			require.Equal(t, wantWhole, events(whole))
			require.Equal(t, sorted(wantAsk), sorted(ask))
			seen["whole"] += len(whole)
			seen["asked"] += len(ask)
		case 11:
			if rnd.IntN(3) > 0 {
				last := now.Add(-[]time.Duration{time.Second, time.Minute, time.Hour}[rnd.IntN(3)])
				most := 1 + rnd.IntN(6)
				turn := events(r.InTurn(most, last, now))
				require.Equal(t, n.inTurn(most, last, now), turn)
				seen["turn"] += len(turn)
				break
			}
			whole := events(r.Anything())
			var entries []*naiveEntry
			for _, e := range n.entries {
				if len(e.Deps) > 0 && !e.Accepted {
					entries = append(entries, e)
				}
			}
			want, _ := wake(entries)
			for _, e := range entries {
				e.Deps = nil
			}
			require.Equal(t, want, whole)
		case 12:
			most := 1 + rnd.IntN(2)
			ask, any := r.Overdue(most)
			wantAsk, wantAny := n.overdue(most, now)
			require.Equal(t, wantAsk, ask)
			require.Equal(t, wantAny, any)
			seen["overdue"] += len(ask)
		default:
			if rnd.IntN(3) > 0 {
				break
			}
			chunks := r.Export()
			r = testTable(1_000, 1_000, 1<<30)
			d, err := r.Restore(chunks)
			require.NoError(t, err)
			require.Zero(t, d)
			n.restart(now)
			seen["restart"]++
		}
		if len(n.entries) < was {
			seen["gone"]++
		}
		n.same(t, r, rnd, seen)
	}
}

// same checks all answers.
func (n *naiveRejected) same(t *testing.T, r *Table, rnd *rand.Rand, seen map[string]int) {
	t.Helper()
	now := time.Now()
	require.Equal(t, n.seen(), r.seen())
	r.consistent(t)
	wanted := make(map[graspsync.RelayURL][]graspsync.EventID)
	waits, deps := 0, make(map[Key]bool)
	for _, e := range n.entries {
		if e.Asked && e.Tries == 0 {
			wanted[e.Relay] = append(wanted[e.Relay], e.ID)
			seen["wanted"]++
		}
		if e.Whole != nil && e.Whole.In == "wait" {
			waits++
		}
		for _, k := range e.Deps {
			deps[k] = true
		}
		if e.due(now) {
			seen["due"]++
		}
	}
	got := r.Wanted()
	require.True(t, maps.EqualFunc(wanted, got, slices.Equal))
	require.Equal(t, waits, r.Held().Waiting)
	require.Equal(t, len(deps) == 0, r.Idle())
	for k := range Key(6) {
		require.Equal(t, deps[k], r.Awaits(k))
	}
	for i := range 15 {
		e := n.find(testID(i))
		if e != nil && e.old(now) {
			e = nil
		}
		require.Equal(t, e != nil && !e.Asked && !e.due(now), r.Has(testID(i)))
		tries := 0
		if e != nil {
			tries = e.Tries
		}
		is, _ := r.Look(testID(i))
		require.Equal(t, tries, is.Tries)
	}
	// Stamps, of what is named by its id, author or tags only as far as it is whole.
	since, until := nostr.Timestamp(rnd.IntN(4)), nostr.Timestamp(rnd.IntN(4))
	f := nostr.Filter{}
	if rnd.IntN(2) == 0 {
		f.Since = &since
	}
	if rnd.IntN(2) == 0 {
		f.Until = &until
	}
	if rnd.IntN(2) == 0 {
		f.Kinds = []int{1 + rnd.IntN(3), 1 + rnd.IntN(3)}
	}
	author := testKey(rnd.IntN(3))
	named := rnd.IntN(2) == 0
	if named {
		f.Authors = []string{author.String()}
	}
	tagged := n.tags.IntN(2) == 0
	if tagged {
		f.Tags = nostr.TagMap{"t": {tagOf(n.tags.IntN(3)), tagOf(n.tags.IntN(3)), "none"}}
		if n.tags.IntN(2) == 0 {
			f.Tags["q"] = []string{tagOf(n.tags.IntN(3)), tagOf(3), tagOf(4), tagOf(5)}
		}
	}
	var want, stamps []graspsync.EventID
	for _, e := range n.entries {
		fits := (f.Since == nil || e.CreatedAt >= since) && (f.Until == nil || e.CreatedAt <= until) && (f.Kinds == nil || slices.Contains(f.Kinds, e.Kind))
		if named {
			fits = fits && e.Whole != nil && e.Whole.Event.PubKey == author.String()
		}
		if tagged {
			fits = fits && e.Whole != nil
			for name, values := range f.Tags {
				fits = fits && slices.ContainsFunc(e.Whole.Event.Tags, func(t nostr.Tag) bool { return t[0] == name && slices.Contains(values, t[1]) })
			}
		}
		if fits && e.counts(now) {
			want = append(want, e.ID)
		}
	}
	for _, s := range r.Stamps(f) {
		require.Equal(t, n.find(s.ID).CreatedAt, s.CreatedAt)
		stamps = append(stamps, s.ID)
	}
	require.ElementsMatch(t, want, stamps)
}
