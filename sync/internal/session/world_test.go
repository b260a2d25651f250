package session

import (
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// world is a relay, our store and the shell around a session, drawn from a source of choices. The
// relay may return, refuse, delay, repeat or withhold its events, and never lies.
type world struct {
	t   testing.TB
	src source
	s   *Session
	now time.Time
	log []string

	events  []*nostr.Event // of the relay, newest first
	hidden  map[string]bool
	held    map[string]bool // ids that we received from other relays
	cap     int
	kind    relayKind
	rules   rules                   // refusals of the relay
	calm    bool                    // the relay behaves from now on
	curious bool                    // the shell reads all cursors after each step
	repeats bool                    // the relay sent a page twice in one answer, so its page size is unknown
	asked   map[string]nostr.Filter // by NEG-OPEN

	out     []wire.Message // on its way to us
	answers []func() []Action

	used    map[string]bool
	open    map[string]bool // historic REQs
	last    string          // opened last and not answered
	openAt  time.Time
	cool    time.Time
	limit   int
	batches map[plan.BatchID]*worldBatch
	lives   map[plan.LiveID][]nostr.Filter
	nextID  plan.BatchID
	results []plan.Result
	dones   []Done
	sent    map[wire.RequestType]int
	live    map[string]*worldLive // by subscription
	history map[string]bool       // unfinished requests for stored events
	fresh   int                   // events that arrived live

	// set by tests that build a world
	refuse                   func(r wire.Request) bool
	rewrite                  func(f nostr.Filter) nostr.Filter
	unshown                  map[string]bool               // hidden by NIP-77
	madeUp                   bool                          // hidden events do not arrive by pages either
	others                   func(ids []graspsync.EventID) // returns some of the checked ids from other relays
	negMax, negCap, negFrame int
}

type worldBatch struct {
	plan.Batch
	got  map[string]bool
	held map[string]bool // ids that we had when it began
	far  []plan.Cursor   // last cursor of each query

	events, pages int // received
}

// worldLive is a live subscription at the relay.
type worldLive struct {
	filters nostr.Filters
	stands  bool // its EOSE was sent
}

// relayKind is the way in which a relay handles NIP-77.
type relayKind int

const (
	offersNeg relayKind = iota
	refusesNegErr
	refusesNotice
	refusesSilently
	negTooLarge
	negBroken
	relayKinds
)

// source yields numbers below n. done reports that no number is left.
type source interface {
	n(n int) int
	done() bool
}

type randSource struct {
	*rand.Rand
	left int
}

func (s *randSource) n(n int) int { return s.IntN(n) }
func (s *randSource) done() bool  { s.left--; return s.left < 0 }

type byteSource struct{ data []byte }

func (s *byteSource) n(n int) int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b) % n
}
func (s *byteSource) done() bool { return len(s.data) == 0 }

var roots = []string{"u", "v", "w", "x", "y", "z"}

func newWorld(t testing.TB, src source) *world {
	c := defaults()
	c.Limits.NoNegentropy = src.n(3) == 0
	c.Historic = 1 + src.n(4)
	c.PageLimit = 5 + src.n(20)
	c.Reconciling = 1 + src.n(2)
	c.IDChunk, c.MaxStrikes = []int{2, 4, 7, 10, 11, 12, 20, 30}[src.n(8)], 1+src.n(4)
	if src.n(4) == 0 {
		c.NegIDs, c.NegRounds = 10+src.n(40), 2+src.n(4)
	}
	w := &world{
		t: t, src: src, s: New(c), now: start, limit: c.Historic,
		cap: 5 + src.n(20), kind: relayKind(src.n(int(relayKinds))),
		negMax: 8, negFrame: 4096,
		hidden: make(map[string]bool), held: make(map[string]bool), asked: make(map[string]nostr.Filter), sent: make(map[wire.RequestType]int),
		used: make(map[string]bool), open: make(map[string]bool),
		batches: make(map[plan.BatchID]*worldBatch), lives: make(map[plan.LiveID][]nostr.Filter), live: make(map[string]*worldLive), history: make(map[string]bool),
	}
	w.rules = drawRules(src)
	w.s.cfg.Auth = src.n(3) > 0
	at, dense := time.Duration(0), 1+src.n(2)*60
	for n := range src.n(250) {
		// several events in one second, sometimes more than a page
		if src.n(dense+2) == 0 {
			at -= time.Duration(src.n(100)) * time.Second
		}
		ev := event(n, at-time.Hour, roots[src.n(len(roots))])
		ev.Kind = []int{1111, 1111, graspsync.KindAnnouncement, graspsync.KindState}[w.src.n(4)]
		w.events = append(w.events, ev)
		w.hidden[ev.ID] = src.n(15) == 0
		w.held[ev.ID] = src.n(4) == 0
	}
	slices.SortStableFunc(w.events, func(a, b *nostr.Event) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return w
}

func (w *world) run() {
	for !w.src.done() {
		if slices.ContainsFunc(w.out, isNotice) {
			w.deliver()
			continue
		}
		w.now = w.now.Add([]time.Duration{0, 0, 10 * time.Millisecond, time.Second, 3 * time.Second, 15 * time.Second}[w.src.n(6)])
		switch w.src.n(13) {
		case 12:
			w.publish()
		case 0, 1:
			w.fetch()
		case 2:
			w.follow()
		case 3:
			w.tick()
		case 4:
			w.odd()
		case 5:
			w.answer()
		default:
			w.deliver()
		}
	}
}

// finish makes the relay behave and lets all requests end.
func (w *world) finish() {
	w.calm = true
	for range 200_000 {
		switch {
		case len(w.out) > 0:
			w.deliver()
		case len(w.answers) > 0:
			w.answer()
		default:
			at, ok := w.s.NextWake()
			if !ok {
				w.ended()
				return
			}
			w.now = maxTime(w.now, at)
			w.tick()
		}
	}
	require.Fail(w.t, "it does not end")
}

func (w *world) ended() {
	t, s := w.t, w.s
	require.Empty(t, w.batches, "batches without an end")
	require.Empty(t, s.batches)
	require.Empty(t, s.queries)
	require.Empty(t, s.waiting)
	require.Empty(t, s.reconciling.waiting)
	require.Empty(t, s.closing)
	require.Nil(t, s.bisected)
	require.Zero(t, s.historic)
	require.Zero(t, s.reconciling.active)
	require.Empty(t, w.open)
	for id := range s.liveSubs {
		require.Contains(t, w.lives, id, "nobody wants it any more")
	}
	for id, fs := range w.lives {
		require.Equal(t, len(s.caps.pack(fs)) > 0, len(s.liveSubs[id]) > 0, "followed, unless nothing is left of it")
	}
	for _, x := range s.subs {
		require.Equal(t, reqLive, x.kind)
	}
	require.Empty(t, s.Cursors())
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (w *world) fetch() {
	if len(w.batches) >= 5 {
		return
	}
	w.nextID++
	b := &worldBatch{got: make(map[string]bool), held: maps.Clone(w.held)}
	b.ID, b.Deadline = w.nextID, w.now.Add(30*time.Minute)
	if !w.calm && w.src.n(8) == 0 {
		b.Deadline = w.now.Add(10 * time.Second)
	}
	b.Kind = []plan.Kind{plan.History, plan.History, plan.DailyHistory, plan.Recent, plan.Deletions}[w.src.n(5)]
	for range w.src.n(4) {
		q := plan.Query{Filter: w.someFilter()}
		if b.Kind == plan.Recent {
			since := nostr.Timestamp(start.Add(-time.Hour - time.Duration(w.src.n(1000))*time.Second).Unix())
			q.Filter.Since = &since
		} else if w.src.n(8) == 0 {
			q.Filter = nostr.Filter{Kinds: []int{graspsync.KindAnnouncement, graspsync.KindState}}
		}
		q.NoNegentropy = w.src.n(8) == 0
		if b.Kind != plan.Recent && w.src.n(4) == 0 {
			q.Until = start.Add(-time.Hour - time.Duration(w.src.n(1000))*time.Second).Unix()
		}
		b.Queries = append(b.Queries, q)
	}
	w.batches[b.ID] = b
	w.do("fetch", w.s.Fetch(w.now, b.Batch))
}

// cursors reads all cursors, as the shell does before it loses a connection.
func (w *world) cursors() {
	for id, at := range w.s.Cursors() {
		w.farther(w.batches[id], at)
	}
}

// farther checks that no cursor has moved back, because events would be fetched again.
func (w *world) farther(b *worldBatch, now []plan.Cursor) {
	if b.far == nil {
		for _, q := range b.Queries {
			b.far = append(b.far, plan.Cursor(q.Until))
		}
	}
	require.Len(w.t, now, len(b.far))
	for i, at := range now {
		before := b.far[i]
		require.True(w.t, before == plan.CursorStart || at == plan.CursorDone || at != plan.CursorStart && before != plan.CursorDone && at <= before,
			"query %d was at %d, and is at %d", i, before, at)
	}
	b.far = slices.Clone(now)
}

func (w *world) follow() {
	w.nextID++
	id := plan.LiveID(w.nextID)
	if w.src.n(3) > 0 && len(w.lives) < 4 {
		fs := make([]nostr.Filter, 1+w.src.n(4))
		for i := range fs {
			fs[i] = filters.Live(w.someFilter())
		}
		w.lives[id] = fs
		w.do("follow", w.s.Follow(w.now, id, fs))
		return
	}
	if ids := slices.Sorted(maps.Keys(w.lives)); len(ids) > 0 {
		id = ids[w.src.n(len(ids))]
		delete(w.lives, id)
		w.do("unfollow", w.s.Unfollow(w.now, id))
	}
}

// publish sends an event on a live subscription, maybe before its EOSE.
func (w *world) publish() {
	if subs := slices.Sorted(maps.Keys(w.live)); len(subs) > 0 {
		id := subs[w.src.n(len(subs))]
		fs := w.live[id].filters
		f := fs[w.src.n(len(fs))]
		w.fresh++
		ev := event(1_000_000+w.fresh, w.now.Sub(start), f.Tags["e"][w.src.n(len(f.Tags["e"]))])
		if len(f.Kinds) > 0 {
			ev.Kind = f.Kinds[w.src.n(len(f.Kinds))]
		}
		w.say(eventMsg(id, ev))
	}
}

func (w *world) tick() {
	due, waits := w.s.NextWake()
	actions := w.s.Tick(w.now)
	if !waits || w.now.Before(due) {
		require.Empty(w.t, actions, "nobody would have woken it for that")
	}
	w.do("tick", actions)
	next, ok := w.s.NextWake()
	require.True(w.t, !ok || next.After(w.now), "a busy loop: woken at %s for %s", clock(w.now), clock(next))
}

// odd is an event outside of the conversation, or an unrequested message of the relay.
func (w *world) odd() {
	ids := slices.Sorted(maps.Keys(w.batches))
	switch w.src.n(9) {
	case 8:
		w.forget()
	case 0:
		if len(ids) > 0 && w.src.n(3) == 0 {
			id := ids[w.src.n(len(ids))]
			delete(w.batches, id)
			w.do("abandon", w.s.Abandon(w.now, id))
		}
	case 1:
		w.s.ExtendDeadlines(time.Duration(w.src.n(5)) * time.Second)
	case 2:
		w.curious = !w.curious
	case 3:
		w.out = append(w.out, notice([]string{"hello", "rate-limited: slow", "negentropy disabled", "too many filters", "error: what"}[w.src.n(5)]))
	case 4:
		w.do("forged", w.s.Forged(w.now, "bad signature"))
	case 5:
		w.out = append(w.out, eose(w.anySub()))
	case 6:
		w.out = append(w.out, closed(w.anySub(), "error: made up"))
	case 7:
		w.out = append(w.out, wire.Message{Type: wire.TypeNegMsg, Sub: w.anySub(), Payload: []byte{0x61, 1, 2, 3}},
			wire.Message{Type: wire.TypeNegErr, Sub: w.anySub(), Text: "closed: x"}, wire.Message{Type: wire.TypeOK})
	}
}

// forget lets some learned limits and excluded values expire.
func (w *world) forget() {
	t := w.s.caps.Limits
	if w.src.n(2) == 0 {
		t.MaxSubscriptions = 20
		w.limit = max(w.limit, relaylimits.Requests{MaxSubscriptions: 20}.Historic())
	}
	for _, v := range []*int{&t.MaxValues, &t.NegentropyMax} {
		if w.src.n(3) == 0 {
			*v = 0
		}
	}
	t.NeedsKinds = t.NeedsKinds && w.src.n(2) == 0
	t.NoLimitZero = t.NoLimitZero && w.src.n(2) == 0
	aside := slices.SortedFunc(maps.Keys(w.s.caps.excluded), func(a, b relaylimits.Value) int {
		return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.Text, b.Text))
	})
	aside = slices.DeleteFunc(aside, func(relaylimits.Value) bool { return w.src.n(2) == 0 })
	w.s.SetLimits(t, aside)
	w.do("forget", w.s.flush(w.now)) // the caller of SetLimits flushes later
}

// anySub returns a subscription id that was never used or has ended. A message for an open one
// would count as its answer.
func (w *world) anySub() string {
	ids := []string{"made up", "", "r", "r99999"}
	for _, id := range slices.Sorted(maps.Keys(w.used)) {
		if w.s.subs[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids[w.src.n(len(ids))]
}

// answer answers one question to our store, after any time.
func (w *world) answer() {
	if len(w.answers) > 0 {
		f := w.answers[0]
		w.answers = w.answers[1:]
		w.do("store", f())
		if w.src.n(10) == 0 {
			w.do("store, once more", f())
		}
	}
}

func (w *world) do(what string, actions []Action) {
	w.log = append(w.log, clock(w.now)+" "+what)
	for _, a := range actions {
		w.log = append(w.log, "> "+show(a))
		w.perform(a)
	}
	require.GreaterOrEqual(w.t, w.s.reconciling.active, 0)
	require.GreaterOrEqual(w.t, w.s.historic, 0)
	require.LessOrEqual(w.t, w.s.reconciling.active, w.s.cfg.Reconciling)
	live, historic, _ := w.s.open()
	require.Len(w.t, w.live, live)
	require.Len(w.t, w.history, historic)
	for _, q := range w.s.queries {
		require.True(w.t, q.neg == nil || q.state == qReconciling, "a reconciliation that is over is kept")
	}
	if w.curious {
		w.cursors()
	}
}

func (w *world) perform(a Action) {
	switch a := a.(type) {
	case Send:
		w.send(a.Request)
	case Deliver:
		require.Equal(w.t, 100, a.Size)
		if a.Batch != 0 {
			id := a.Event.ID.String()
			require.True(w.t, slices.ContainsFunc(w.events, func(ev *nostr.Event) bool { return ev.ID == id }))
			require.Contains(w.t, w.batches, a.Batch, "H7: an event of an unknown batch")
			require.Equal(w.t, w.batches[a.Batch].Kind, a.Kind)
			w.batches[a.Batch].got[id] = true
		}
	case LoadSet:
		filter, id := a.Filter, a.Query
		bad := w.src.n(8) == 0
		w.answers = append(w.answers, func() []Action {
			if bad {
				return w.s.SetLoaded(w.now, id, nil, errors.New("store failed"))
			}
			return w.s.SetLoaded(w.now, id, setOf(w.matching(filter, func(ev *nostr.Event) bool { return w.held[ev.ID] })...), nil)
		})
	case Missing:
		bad := w.src.n(10) == 0 && !w.calm
		w.answers = append(w.answers, func() []Action {
			if w.others != nil {
				w.others(a.IDs)
			}
			if bad {
				return w.s.Checked(w.now, a.Query, nil, nil, errors.New("store failed"))
			}
			need := slices.DeleteFunc(slices.Clone(a.IDs), func(id graspsync.EventID) bool { return w.held[id.String()] })
			return w.s.Checked(w.now, a.Query, need, nil, nil)
		})
	case Done:
		w.done(a)
	case Authenticate:
		w.sign()
	case RateLimited:
		require.True(w.t, a.Until.After(w.cool))
		w.cool = a.Until
	case LiveClosed:
		delete(w.lives, a.Live)
	}
}

// done checks that a complete batch has all events of the relay.
func (w *world) done(a Done) {
	b := w.batches[a.Batch]
	require.NotNil(w.t, b, "a batch ended twice")
	delete(w.batches, a.Batch)
	if len(b.Queries) > 0 {
		w.results = append(w.results, a.Result)
	}
	w.dones = append(w.dones, a)
	w.farther(b, a.Cursors)
	require.Equal(w.t, b.events, a.Report.Events)
	require.Equal(w.t, b.pages, a.Report.Pages)
	require.Equal(w.t, a.Report.Err == "took too long" && b.events > 0, a.Report.Late)
	require.Equal(w.t, a.Result >= plan.Failed, a.Report.Err != "", "H6: %q", a.Report.Err)
	for i, q := range b.Queries {
		if a.Result < plan.Failed {
			require.Equal(w.t, plan.CursorDone, a.Cursors[i])
		}
		if a.Result == plan.Gaps || a.Cursors[i] == plan.CursorStart {
			continue
		}
		for _, ev := range w.matching(q.Filter, func(*nostr.Event) bool { return true }) {
			at := int64(ev.CreatedAt)
			if q.Until != 0 && at > q.Until || a.Cursors[i] != plan.CursorDone && at <= int64(a.Cursors[i]) {
				continue
			}
			if a.Result >= plan.Failed {
				continue // another query of the batch may have the gaps
			}
			if w.repeats && w.dense(q.Filter, ev.CreatedAt) {
				continue
			}
			require.True(w.t, b.got[ev.ID] || b.held[ev.ID], "%s is missing from a complete batch", ev.ID)
		}
	}
}

// TestWorlds plays random relays and interleavings to their end.
func TestWorlds(t *testing.T) {
	var complete, gaps, failed int
	for seed := range uint64(racetest.Rounds(60)) {
		w := newWorld(t, &randSource{rand.New(rand.NewPCG(seed, 1)), 400})
		t.Cleanup(func() {
			if t.Failed() && len(w.log) > 0 {
				t.Logf("seed %d\n%s", seed, strings.Join(w.log[max(0, len(w.log)-150):], "\n"))
			}
		})
		w.run()
		w.finish()
		for _, l := range w.log {
			switch {
			case !strings.HasPrefix(l, "> done"):
			case strings.Contains(l, " complete "):
				complete++
			case strings.Contains(l, " gaps "):
				gaps++
			default:
				failed++
			}
		}
		w.log = nil
	}
	t.Logf("batches: %d complete, %d with gaps, %d failed", complete, gaps, failed)
	if !testing.Short() { // a few seeds do not reach this number
		require.Greater(t, complete, 200)
		require.Greater(t, gaps, 12)
		require.Greater(t, failed, 120)
	}
}

// The requests of a query end in the order in which they were made.
func TestRequestsEndInOrder(t *testing.T) {
	for range 20 {
		w := honest(t, offersNeg, 500, spaced(40, time.Second), nil)
		w.s.caps.idChunk = 5
		w.refuse = func(wire.Request) bool { return true } // silence
		w.curious, w.limit = false, 8
		w.batches[1] = &worldBatch{Batch: batchOf(1, plan.History, tagging("x")), got: make(map[string]bool)}
		w.do("fetch", w.s.Fetch(w.now, w.batches[1].Batch))
		for w.sent[wire.TypeReq] < 4 {
			switch {
			case len(w.out) > 0:
				w.deliver()
			case len(w.answers) > 0:
				w.answer()
			default:
				w.now = w.now.Add(2 * time.Second)
				w.tick()
			}
		}
		var ended []string
		for _, a := range only[Send](w.s.Abandon(w.now, 1)) {
			ended = append(ended, a.Request.Sub)
		}
		require.Len(t, ended, 4)
		require.True(t, slices.IsSorted(ended), "%v", ended)
	}
}

func TestDeterminism(t *testing.T) {
	for seed := range uint64(12) {
		var first []string
		for i := range 5 {
			w := newWorld(t, &randSource{rand.New(rand.NewPCG(9, seed)), 400})
			w.run()
			w.finish()
			if i == 0 {
				first = w.log
			}
			require.Equal(t, first, w.log)
		}
	}
}

func FuzzSession(f *testing.F) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 3))
		data := make([]byte, 1200)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 5000 {
			data = data[:5000]
		}
		w := newWorld(t, &byteSource{data})
		w.run()
		w.finish()
	})
}
