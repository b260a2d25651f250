package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/standing"
	"github.com/graspsync/graspsync/sync/wire"
)

// noise is a relay that answers anything with anything: what it says fits to what it is
// asked, and to nothing that it said before. It shows what becomes of each answer in states
// that no relay with a mind leads to.
type noise struct {
	t    *testing.T
	rng  *rand.Rand
	s    *Session
	now  time.Time
	next int
	all  []string

	open    map[string]wire.Request
	loads   []LoadSet
	missing []Missing
	signs   bool
	batches map[plan.BatchID]bool
	lives   []plan.LiveID
	ended   map[plan.Result]int
	learned map[relaylimits.Kind]int
}

// phrases are what relays say when they refuse something.
var noisePhrases = []string{
	"rate-limited: slow down", "auth-required: who are you?", "restricted: not you", "bad req: too many filters",
	"too many tag values", "bad req: filter item too large", "invalid: no", "error: shutting down",
	"blocked: an author must be specified to get their kind:1 notes", "error: too many concurrent REQs", "closed: lost", "rate-limited: active subscriptions exceed max size 5000 bytes",
	"ERROR: bad msg: negentropy disabled", "unsupported: no", "blocked: too many query results", "hello", "too many ids",
}

func newNoise(t *testing.T, seed uint64) *noise {
	rng := rand.New(rand.NewPCG(seed, 21))
	c := defaults()
	c.Historic, c.Reconciling, c.PageLimit = 1+rng.IntN(8), 1+rng.IntN(3), 4+rng.IntN(12)
	c.PageSize, c.MaxPage, c.IDChunk = []int{0, 0, 7, 50}[rng.IntN(4)], 15+rng.IntN(60), 1+rng.IntN(30)
	c.NegIDs, c.NegRounds, c.MaxStrikes = 1+rng.IntN(60), 1+rng.IntN(6), 1+rng.IntN(5)
	c.Auth, c.Limits = rng.IntN(2) == 0, noiseTerms(rng)
	return &noise{
		t: t, rng: rng, s: New(c), now: start, open: make(map[string]wire.Request), batches: make(map[plan.BatchID]bool),
		ended: make(map[plan.Result]int), learned: make(map[relaylimits.Kind]int),
	}
}

func noiseTerms(rng *rand.Rand) relaylimits.Limits {
	maybe := func(n int) int { return rng.IntN(2) * rng.IntN(n) }
	l := relaylimits.Limits{NoNegentropy: rng.IntN(3) == 0}
	l.NeedsKinds, l.MaxValues, l.MaxFilters = rng.IntN(4) == 0, maybe(40), 1+rng.IntN(12)
	l.MaxMessage, l.MaxSubscriptions, l.NegentropyMax = 600<<rng.IntN(6), maybe(14), maybe(30)
	return l
}

// values are of the kinds that filters have: ids, addresses, and others.
func (n *noise) values(most int) (out []string) {
	from, kind := n.rng.IntN(60), n.rng.IntN(4)
	for i := range 1 + n.rng.IntN(most) {
		id := eventID(from + i).String()
		out = append(out, []string{id, id, "30617:" + id + ":x", fmt.Sprint("v", from+i)}[kind])
	}
	return out
}

func (n *noise) filter() (f nostr.Filter) {
	most := []int{2, 6, 60}[n.rng.IntN(3)]
	switch n.rng.IntN(8) {
	case 0:
		f.Kinds = []int{graspsync.KindAnnouncement, graspsync.KindState}
	case 1:
		f.Kinds = []int{graspsync.KindDeletion}
		for i := range 1 + n.rng.IntN(most) {
			f.Authors = append(f.Authors, eventID(i).String())
		}
	case 2:
		for i := range 1 + n.rng.IntN(most) {
			f.IDs = append(f.IDs, eventID(i).String())
		}
	default:
		f.Tags = nostr.TagMap{[]string{"a", "A", "e", "E", "q", "d"}[n.rng.IntN(6)]: n.values(most)}
		if n.rng.IntN(3) == 0 {
			f.Kinds = []int{graspsync.KindAnnouncement, graspsync.KindState, 1111}
		}
	}
	return f
}

func (n *noise) fetch() {
	n.next++
	b := plan.Batch{ID: plan.BatchID(n.next), Deadline: n.now.Add(time.Duration(1+n.rng.IntN(1800)) * time.Second)}
	b.Kind = []plan.Kind{plan.History, plan.History, plan.DailyHistory, plan.Recent, plan.Deletions, plan.Audit}[n.rng.IntN(6)]
	for range n.rng.IntN(4) {
		q := plan.Query{Filter: n.filter(), NoNegentropy: n.rng.IntN(6) == 0}
		since := nostr.Timestamp(start.Unix() - int64(n.rng.IntN(2000)))
		if b.Kind == plan.Recent || b.Kind == plan.Audit {
			q.Filter.Since = &since
		} else if n.rng.IntN(6) == 0 {
			q.Until = start.Unix() - int64(n.rng.IntN(1000))
		}
		if b.Kind == plan.Audit {
			until := since + 3600
			q.Filter.Until = &until
		}
		b.Queries = append(b.Queries, q)
	}
	n.batches[b.ID] = true
	n.do("fetch", n.s.Fetch(n.now, b))
}

// event makes one that answers a filter, mostly.
func (n *noise) event(f nostr.Filter) *nostr.Event {
	ev := event(n.rng.IntN(200), time.Duration(n.rng.IntN(1500)-1400)*time.Second, "")
	if n.rng.IntN(3) == 0 { // in the same second as others
		ev.CreatedAt -= ev.CreatedAt % 300
	}
	if f.Until != nil && n.rng.IntN(8) > 0 {
		ev.CreatedAt = min(ev.CreatedAt, *f.Until)
	}
	if f.Since != nil && n.rng.IntN(8) > 0 {
		ev.CreatedAt = max(ev.CreatedAt, *f.Since)
	}
	pick := func(list []string) string { return list[n.rng.IntN(len(list))] }
	if len(f.IDs) > 0 {
		ev.ID = pick(f.IDs)
	}
	if len(f.Authors) > 0 {
		ev.PubKey = pick(f.Authors)
	}
	if len(f.Kinds) > 0 {
		ev.Kind = f.Kinds[n.rng.IntN(len(f.Kinds))]
	}
	for tag, list := range f.Tags {
		if n.rng.IntN(15) == 0 {
			tag = "x"
		}
		ev.Tags = nostr.Tags{{tag, pick(list)}}
	}
	switch n.rng.IntN(60) {
	case 0:
		ev.Kind++
	case 1: // nobody asked for it
		ev.ID, ev.Kind, ev.Tags = eventID(1_000_000).String(), 1, nil
	case 2:
		ev.Tags = nil
	}
	return ev
}

// answer says something to a request that is open, or was.
func (n *noise) answer() {
	subs := append(slices.Sorted(maps.Keys(n.open)), "r1", "l2", "n3", "made up", "")
	sub := subs[n.rng.IntN(len(subs)-4*n.rng.IntN(2))]
	r := n.open[sub]
	f := nostr.Filter{}
	if len(r.Filters) > 0 {
		f = r.Filters[n.rng.IntN(len(r.Filters))]
	}
	kind := n.rng.IntN(20)
	if r.Type == wire.TypeNegOpen && kind < 15 {
		kind = 17 + n.rng.IntN(5)/4
	}
	switch {
	case kind < 9:
		for range 1 + n.rng.IntN(3)*n.rng.IntN(12) {
			n.receive(eventMsg(sub, n.event(f)))
		}
		if n.rng.IntN(3) > 0 {
			break
		}
		fallthrough
	case kind < 14:
		n.receive(wire.Message{Type: wire.TypeEOSE, Sub: sub, Hint: wire.Hint(max(0, n.rng.IntN(8)-5))})
	case kind < 16:
		delete(n.open, sub)
		n.receive(closed(sub, n.phrase()))
	case kind < 17:
		n.receive(notice(n.phrase()))
	case kind < 18:
		n.negReply(sub, r)
	default:
		delete(n.open, sub)
		n.receive(wire.Message{Type: wire.TypeNegErr, Sub: sub, Text: n.phrase(), Max: n.rng.IntN(3) * n.rng.IntN(20)})
	}
}

func (n *noise) negReply(sub string, r wire.Request) {
	reply := []byte{0x61, 0, 0, byte(n.rng.IntN(4))}
	if r.Payload != nil && n.rng.IntN(8) > 0 {
		var err error
		reply, err = negentropy.Answer(n.set(), r.Payload, []int{200, 4096}[n.rng.IntN(2)])
		require.NoError(n.t, err)
	}
	n.receive(wire.Message{Type: wire.TypeNegMsg, Sub: sub, Payload: reply})
}

func (n *noise) set() *negentropy.Set {
	var events []*nostr.Event
	times := 1 + n.rng.IntN(2000)
	for i := range []int{3, 20, 50, 150}[n.rng.IntN(4)] {
		if n.rng.IntN(4) > 0 {
			events = append(events, event(i, -time.Duration(i*7919%times)*time.Second, ""))
		}
	}
	return setOf(events...)
}

func (n *noise) phrase() string { return noisePhrases[n.rng.IntN(len(noisePhrases))] }

func (n *noise) receive(m wire.Message) {
	n.do(fmt.Sprint("receive ", m.Type, m.Sub, m.Text), n.s.Receive(n.now, m))
}

// ours is what our side does, and what it answers.
func (n *noise) ours() {
	switch n.rng.IntN(14) {
	case 0, 1:
		n.next++
		fs := make([]nostr.Filter, 1+n.rng.IntN(6))
		for i := range fs {
			fs[i] = filters.Live(n.filter())
		}
		n.lives = append(n.lives, plan.LiveID(n.next))
		n.do("follow", n.s.Follow(n.now, plan.LiveID(n.next), standing.Of(fs...)))
	case 2:
		if len(n.lives) > 0 {
			n.do("unfollow", n.s.Unfollow(n.now, n.lives[n.rng.IntN(len(n.lives))]))
		}
	case 3:
		n.do("abandon", n.s.Abandon(n.now, plan.BatchID(n.rng.IntN(n.next+1))))
	case 4:
		n.do("forged", n.s.Forged(n.now, "bad signature"))
	case 5:
		n.s.Excuse(time.Duration(n.rng.IntN(5)) * time.Second)
	case 6:
		aside := slices.SortedFunc(maps.Keys(n.s.terms.aside), func(a, b relaylimits.Value) int {
			return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.Value, b.Value))
		})
		n.s.SetLimits(noiseTerms(n.rng), aside[:n.rng.IntN(len(aside)+1)])
	case 7:
		if subs := slices.Sorted(maps.Keys(n.open)); len(subs) > 0 {
			sub := subs[n.rng.IntN(len(subs))]
			delete(n.open, sub)
			n.do("unsent", n.s.Unsent(n.now, sub, 1<<9<<n.rng.IntN(7), "too large to be sent"))
		}
	case 10:
		n.receive(wire.Message{Type: wire.TypeAuth, Text: "challenge"})
	case 11:
		n.receive(wire.Message{Type: wire.TypeOK, ID: eventID(7777), Accepted: n.rng.IntN(2) == 0, Text: "so be it"})
	default:
		n.do("tick", n.s.Tick(n.now))
	}
}

// store answers what was asked of it, or of the key.
func (n *noise) store() {
	bad := n.rng.IntN(10) == 0
	switch {
	case n.signs && n.rng.IntN(3) > 0:
		n.signs = false
		if bad {
			n.do("signed", n.s.Signed(n.now, nil, errors.New("no key")))
			return
		}
		n.do("signed", n.s.Signed(n.now, event(7777, 0, ""), nil))
	case len(n.loads) > 0:
		a := n.loads[0]
		n.loads = n.loads[1:]
		switch {
		case bad:
			n.do("loaded", n.s.SetLoaded(n.now, a.Query, nil, errors.New("store failed")))
		case n.rng.IntN(20) == 0:
			n.do("loaded", n.s.SetLoaded(n.now, a.Query, nil, nil))
		default:
			n.s.Room([]int{0, 2, 10, 1000}[n.rng.IntN(4)])
			n.do("loaded", n.s.SetLoaded(n.now, a.Query, n.set(), nil))
		}
	case len(n.missing) > 0:
		a := n.missing[0]
		n.missing = n.missing[1:]
		if bad {
			n.do("checked", n.s.Checked(n.now, a.Query, nil, nil, errors.New("store failed")))
			return
		}
		need := a.IDs[:n.rng.IntN(len(a.IDs)+1)]
		half := (len(need) + 1) / 2
		n.do("checked", n.s.Checked(n.now, a.Query, need[:half], need[half:], nil))
	}
}

func (n *noise) input() {
	n.now = n.now.Add([]time.Duration{0, 0, 0, 100 * time.Millisecond, 2 * time.Second, 9 * time.Second}[n.rng.IntN(6)])
	switch k := n.rng.IntN(20); {
	case k < 1:
		n.fetch()
	case k < 3:
		n.ours()
	case k < 7:
		n.store()
	case k < 8:
		if at, ok := n.s.NextWake(); ok && at.After(n.now) {
			n.now = at
		}
		n.do("tick", n.s.Tick(n.now))
	default:
		n.answer()
	}
}

func (n *noise) do(what string, actions []Action) {
	live, historic, waiting := n.s.Open()
	wake, waits := n.s.NextWake()
	n.all = append(n.all, fmt.Sprint(clock(n.now), what, live, historic, waiting, n.s.Progress(), waits, clock(wake)))
	for _, a := range actions {
		text, err := json.Marshal(a)
		require.NoError(n.t, err)
		n.all = append(n.all, fmt.Sprintf("%T %s", a, text))
		n.perform(a)
	}
	if n.rng.IntN(10) == 0 {
		n.all = append(n.all, fmt.Sprint(n.s.Cursors()))
	}
	n.counted()
}

// counted compares what is counted of those that reconcile with what there is.
func (n *noise) counted() {
	h := n.s.history
	var is negTurns
	for _, q := range h.queries {
		is.granted += q.granted
		is.left += q.left
		if q.placed {
			is.active++
		}
	}
	require.Equal(n.t, []int{is.active, is.granted, is.left}, []int{h.reconciling.active, h.reconciling.granted, h.reconciling.left})
	require.LessOrEqual(n.t, is.active, h.reconciling.most)
	require.LessOrEqual(n.t, is.left, max(1000, 2*h.cfg.NegIDs), "no more than the one with most room may find")
}

func (n *noise) perform(a Action) {
	switch a := a.(type) {
	case Send:
		switch r := a.Request; r.Type {
		case wire.TypeReq, wire.TypeNegOpen:
			require.NotEmpty(n.t, r.Filters)
			require.NotContains(n.t, n.open, r.Sub)
			n.open[r.Sub] = r
		case wire.TypeNegSend:
			o := n.open[r.Sub]
			o.Payload = r.Payload
			n.open[r.Sub] = o
		case wire.TypeClose, wire.TypeNegClose:
			delete(n.open, r.Sub)
		}
	case LoadSet:
		n.loads = append(n.loads, a)
	case Missing:
		n.missing = append(n.missing, a)
	case Authenticate:
		n.signs = true
	case Learned:
		n.learned[a.Kind]++
	case Done:
		require.True(n.t, n.batches[a.Batch], "a batch ended twice")
		delete(n.batches, a.Batch)
		n.ended[a.Result]++
	}
}

// Whatever a relay answers to whatever was asked, the session takes it as it did before.
func TestNoise(t *testing.T) {
	ended, news := make(map[plan.Result]int), make(map[relaylimits.Kind]int)
	sums := goldentest.NewSums(t, "testdata/noise.sum")
	for seed := range uint64(30) {
		n := newNoise(t, seed)
		for range 700 {
			n.input()
		}
		sums.Equal(t, fmt.Sprint(seed), n.all)
		for r, c := range n.ended {
			ended[r] += c
		}
		for k, c := range n.learned {
			news[k] += c
		}
	}
	t.Log(ended, news)
	require.Subset(t, slices.Collect(maps.Keys(ended)), []plan.Result{plan.Complete, plan.Failed, plan.Refused})
	require.Len(t, news, 10, "everything that there is to be learned")
}
