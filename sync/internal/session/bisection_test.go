package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/standing"
	"github.com/graspsync/graspsync/sync/wire"
)

// refuser is a relay without events that refuses requests by CLOSED.
type refuser struct {
	s      *Session
	refuse func(wire.Request) string
	reqs   []wire.Request
	other  []Action // all except requests
}

// play answers until no request is open.
func (r *refuser) play(t *testing.T, actions []Action) {
	t.Helper()
	for len(actions) > 0 {
		require.Less(t, len(r.reqs), 2000)
		a := actions[0]
		actions = actions[1:]
		send, ok := a.(Send)
		if !ok {
			r.other = append(r.other, a)
			continue
		}
		if send.Request.Type != wire.TypeReq {
			continue
		}
		r.reqs = append(r.reqs, send.Request)
		m := eose(send.Request.Sub)
		if text := r.refuse(send.Request); text != "" {
			m = closed(send.Request.Sub, text)
		}
		actions = append(actions, r.s.Receive(start, m)...)
	}
}

func (r *refuser) probes() (n int) {
	for _, req := range r.reqs {
		if strings.HasPrefix(req.Sub, "p") {
			n++
		}
	}
	return n
}

func newRefuser(refuse func(wire.Request) string) *refuser {
	c := defaults()
	c.Limits.NoNegentropy = true
	return &refuser{s: New(c), refuse: refuse}
}

// refuseValues refuses filters with a value that begins with "BAD".
func refuseValues(r wire.Request) string {
	for _, f := range r.Filters {
		lists := [][]string{f.IDs, f.Authors}
		for _, values := range f.Tags {
			lists = append(lists, values)
		}
		for _, values := range lists {
			if slices.ContainsFunc(values, func(v string) bool { return strings.HasPrefix(v, "BAD") }) {
				return "bad req: " + fmt.Sprint(lists)
			}
		}
	}
	return ""
}

// values returns n values, of which those with the indexes bad are refused.
func values(n int, bad ...int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("30617:%064d:%d", 1, i)
	}
	for _, i := range bad {
		out[i] = fmt.Sprint("BAD", i)
	}
	return out
}

// All refused values of any list are found, and no others, live or historic, with a logarithmic
// number of probes.
func TestTrialFindsThePoison(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rng.IntN(100)
		var bad []int
		for range 1 + rng.IntN(3) {
			if i := rng.IntN(n); !slices.Contains(bad, i) {
				bad = append(bad, i)
			}
		}
		list := []string{"a", "q", filters.ListAuthors, filters.ListIDs}[rng.IntN(4)]
		f := nostr.Filter{}
		switch vs := values(n, bad...); list {
		case filters.ListAuthors:
			f.Authors = vs
		case filters.ListIDs:
			f.IDs = vs
		default:
			f.Tags = nostr.TagMap{list: vs}
		}
		r := newRefuser(refuseValues)
		live := rng.IntN(2) == 0
		if live {
			r.play(t, r.s.Follow(start, 1, standing.Of(filters.Live(filters.Layer1()), filters.Live(f))))
		} else {
			r.play(t, r.s.Fetch(start, batchOf(1, plan.History, f)))
			assert.Equal(t, plan.Gaps, one[Done](t, r.other).Result)
		}
		want := make(map[relaylimits.Value]struct{})
		for _, i := range bad {
			want[relaylimits.Value{Tag: list, Value: fmt.Sprint("BAD", i)}] = struct{}{}
		}
		require.Equal(t, want, r.s.terms.aside, "seed %d", seed)
		require.Len(t, only[SetAside](r.other), len(bad))
		require.LessOrEqual(t, r.probes(), 4+len(bad)*2*7)
		last := r.reqs[len(r.reqs)-1]
		require.Empty(t, refuseValues(last))
		if n > len(bad) {
			f := last.Filters[len(last.Filters)-1]
			_, left := filters.Longest(f, false)
			require.Equal(t, n-len(bad), left)
		}
		require.Nil(t, r.s.requests.bisected)
		require.Empty(t, r.s.requests.suspended)
	}
}

// Filters that are refused with any values are removed from a live subscription. The other filters
// are followed.
func TestTrialLeavesOutFilters(t *testing.T) {
	const disliked = 666
	refuse := func(r wire.Request) string {
		for _, f := range r.Filters {
			if slices.Contains(f.Kinds, disliked) {
				return "bad req: no"
			}
		}
		return ""
	}
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var fs, want []nostr.Filter
		for i := range 1 + rng.IntN(6) {
			f := nostr.Filter{Kinds: []int{1000 + i}}
			if rng.IntN(2) == 0 {
				f.Tags = nostr.TagMap{"e": values(1 + rng.IntN(5))}
			}
			if f = filters.Live(f); rng.IntN(3) == 0 {
				f.Kinds[0] = disliked
			} else {
				want = append(want, f)
			}
			fs = append(fs, f)
		}
		r := newRefuser(refuse)
		r.play(t, r.s.Follow(start, 1, standing.Of(fs...)))
		require.Empty(t, r.s.terms.aside)
		require.Nil(t, r.s.requests.bisected)
		if len(want) == 0 {
			require.Equal(t, LiveClosed{Live: 1, Reason: "bad req: no", Why: wire.RefusalBadRequest}, one[LiveClosed](t, r.other))
			continue
		}
		require.Empty(t, only[LiveClosed](r.other))
		require.Equal(t, want, r.reqs[len(r.reqs)-1].Filters, "seed %d", seed)
	}
}

// A value set aside under one tag is tried first under another tag.
func TestTrialBeginsWithWhatIsKnown(t *testing.T) {
	r := newRefuser(refuseValues)
	for _, tag := range []string{"a", "A", "q"} {
		before := r.probes()
		r.play(t, r.s.Fetch(start, batchOf(1, plan.History, nostr.Filter{Tags: nostr.TagMap{tag: values(100, 7, 70)}})))
		if tag != "a" {
			require.Equal(t, 3, r.probes()-before)
		}
	}
	require.Len(t, r.s.terms.aside, 6)
	// Another bad value beside it is also found.
	r.play(t, r.s.Fetch(start, batchOf(1, plan.History, nostr.Filter{Tags: nostr.TagMap{"d": values(100, 7, 50)}})))
	require.Contains(t, r.s.terms.aside, relaylimits.Value{Tag: "d", Value: "BAD50"})
	require.Contains(t, r.s.terms.aside, relaylimits.Value{Tag: "d", Value: "BAD7"})
	// Known bad values alone need no probes.
	r.play(t, r.s.Fetch(start, batchOf(1, plan.History, nostr.Filter{Tags: nostr.TagMap{"x": values(8, 7)[7:]}})))
	require.Contains(t, r.s.terms.aside, relaylimits.Value{Tag: "x", Value: "BAD7"})
}

// The number of probes is limited. Results until then are kept.
func TestTrialIsBounded(t *testing.T) {
	all := make([]int, 100)
	for i := range all {
		all[i] = i
	}
	f := nostr.Filter{Tags: nostr.TagMap{"a": values(100, all[1:]...)}}
	r := newRefuser(refuseValues)
	r.play(t, r.s.Fetch(start, batchOf(1, plan.History, f)))
	require.Equal(t, 64, r.probes())
	require.Equal(t, plan.Failed, one[Done](t, r.other).Result)
	found := len(r.s.terms.aside)
	require.Greater(t, found, 20)
	for range 10 {
		r.play(t, r.s.Fetch(start, batchOf(1, plan.History, f)))
	}
	require.Len(t, r.s.terms.aside, 99)

	// The number of values set aside is limited.
	for i := range 2 * relaylimits.MaxAside {
		r.s.terms.setAside(relaylimits.Value{Tag: "a", Value: fmt.Sprint(i)})
	}
	require.Len(t, r.s.terms.aside, 1_000)
	r.other = nil
	r.play(t, r.s.Fetch(start, batchOf(1, plan.History, nostr.Filter{Tags: nostr.TagMap{"a": {"BAD", "good"}}})))
	require.Equal(t, plan.Refused, one[Done](t, r.other).Result)
}

// Concurrently refused requests are bisected one after the other, without repeating probes for the
// same result.
func TestTrialsInTurn(t *testing.T) {
	r := newRefuser(refuseValues)
	s := r.s
	var reqs []wire.Request
	for _, a := range only[Send](s.Fetch(start, batchOf(1, plan.History, tagging("BAD1"), tagging("BAD1"), tagging("BAD2")))) {
		reqs = append(reqs, a.Request)
	}
	for len(reqs) < 3 { // each opens after the first event of the previous one
		ev := event(1, 0, reqs[len(reqs)-1].Filters[0].Tags["e"][0])
		for _, a := range only[Send](s.Receive(start, eventMsg(reqs[len(reqs)-1].Sub, ev))) {
			reqs = append(reqs, a.Request)
		}
	}
	// They had begun, so their filters are not the cause.
	for _, req := range reqs[:2] {
		s.Receive(start, closed(req.Sub, "bad req: no"))
	}
	require.Nil(t, s.requests.bisected)
	s.Abandon(start, 1)

	// These had not: they open late, before the first answer.
	s.Fetch(start.Add(time.Minute), batchOf(2, plan.History, tagging("BAD1"), tagging("BAD1"), tagging("BAD2")))
	s.Tick(start.Add(time.Minute + 2*time.Second))
	s.Tick(start.Add(time.Minute + 4*time.Second))
	var subs []string
	for _, x := range s.subsOfBatch(2) {
		subs = append(subs, x.id)
	}
	require.Len(t, subs, 3)
	var actions []Action
	for _, sub := range subs {
		actions = append(actions, s.Receive(start.Add(time.Minute+5*time.Second), closed(sub, "bad req: no"))...)
	}
	require.Len(t, s.requests.suspended, 3)
	r.play(t, actions)
	require.Empty(t, s.requests.suspended)
	require.Len(t, only[SetAside](r.other), 2)
	require.Equal(t, plan.Gaps, one[Done](t, r.other).Result)
	require.Equal(t, 2*2, r.probes()) // each request again, and its form
}

// subsOfBatch returns the open requests of a batch in order.
func (s *Session) subsOfBatch(id plan.BatchID) (out []*request) {
	for _, q := range s.history.queriesOf(s.history.batches[id]) {
		out = append(out, s.requests.requestsOf(q)...)
	}
	return out
}

// If a batch or subscription ends, its bisection ends and the next begins.
func TestTrialOfTheDead(t *testing.T) {
	begin := func() (*Session, wire.Request) {
		s := newRefuser(nil).s
		r := sent(t, s.Fetch(start, batchOf(1, plan.History, tagging("x"))))
		return s, sent(t, s.Receive(start, closed(r.Sub, "bad req: no")))
	}
	s, probe := begin()
	actions := s.Abandon(start, 1)
	assert.Equal(t, wire.Request{Type: wire.TypeClose, Sub: probe.Sub}, sent(t, actions))
	assert.Nil(t, s.requests.bisected)

	s, _ = begin()
	s.Excuse(time.Hour)
	late := start.Add(30 * time.Minute)
	assert.Equal(t, plan.Failed, one[Done](t, s.Tick(late)).Result)
	assert.Nil(t, s.requests.bisected)
	assert.Empty(t, s.requests.subs)

	s, probe = begin()
	assert.Equal(t, "no answer in time", one[Done](t, s.Tick(start.Add(2*time.Minute))).Report.Err)
	assert.Nil(t, s.requests.bisected)
	assert.Empty(t, s.Receive(late, closed(probe.Sub, "late")))

	for _, text := range []string{"error: database", "auth-required: who?", "error: too many concurrent REQs"} {
		s, probe = begin()
		assert.Equal(t, text, one[Done](t, s.Receive(start, closed(probe.Sub, text))).Report.Err)
		assert.Nil(t, s.requests.bisected)
	}

	s, probe = begin()
	s.Receive(start, closed(probe.Sub, "rate-limited: slow down"))
	again := sent(t, s.Tick(start.Add(65*time.Second)))
	assert.NotEqual(t, probe.Sub, again.Sub)
	assert.Equal(t, probe.Filters, again.Filters)

	s, probe = begin()
	actions = s.Unsent(start, probe.Sub, 100_000, "too large")
	assert.Equal(t, relaylimits.MaxMessage, one[Learned](t, actions).Kind)
	assert.Equal(t, plan.Failed, one[Done](t, actions).Result)

	// An abandoned batch restarts in no form.
	s = newRefuser(nil).s
	req := sent(t, s.Fetch(start, batchOf(1, plan.History, tagging("x"), tagging("y"))))
	other := sent(t, s.Tick(start.Add(2*time.Second)))
	s.Receive(start.Add(3*time.Second), closed(req.Sub, "bad req: no"))
	s.Receive(start.Add(3*time.Second), closed(other.Sub, "bad req: no"))
	require.Len(t, s.requests.suspended, 2)
	s.SetLimits(relaylimits.Limits{NoNegentropy: true, Requests: relaylimits.Requests{NeedsKinds: true}}, nil)
	s.Abandon(start.Add(3*time.Second), 1)
	assert.Equal(t, Progress{}, s.Progress())
	assert.Empty(t, s.requests.waiting)

	// The live subscription is no longer wanted.
	s = newRefuser(nil).s
	live := sent(t, s.Follow(start, 1, standing.Of(filters.Live(tagging("x")))))
	s.Follow(start, 2, standing.Of(filters.Live(tagging("y"))))
	s.Receive(start, closed(live.Sub, "bad req: no"))
	actions = s.Unfollow(start, 1)
	assert.Nil(t, s.requests.bisected)
	require.Len(t, only[Send](actions), 2)
	assert.Equal(t, []string{"y"}, only[Send](actions)[1].Request.Filters[0].Tags["e"])
}

// A live subscription refused after a later request is repaired. The plan opens it again because
// events may have been missed.
func TestTrialOfTheLate(t *testing.T) {
	r := newRefuser(refuseValues)
	live := sent(t, r.s.Follow(start, 1, standing.Of(filters.Live(tagging("BAD")))))
	r.s.Fetch(start, batchOf(1, plan.History, tagging("u")))
	history := sent(t, r.s.Tick(start.Add(2*time.Second)))
	r.s.Receive(start.Add(2*time.Second), wire.Message{Type: wire.TypeEOSE, Sub: history.Sub, Hint: wire.HintFinish})
	r.play(t, r.s.Receive(start, closed(live.Sub, "bad req: no")))
	require.Equal(t, wire.RefusalOther, one[LiveClosed](t, r.other).Why)
	require.Contains(t, r.s.terms.aside, relaylimits.Value{Tag: "e", Value: "BAD"})

	r = newRefuser(nil)
	live = sent(t, r.s.Follow(start, 2, standing.Of(filters.Live(tagging("v")))))
	r.s.Receive(start, eose(live.Sub))
	closedLive := one[LiveClosed](t, r.s.Receive(start, closed(live.Sub, "bad req: I changed my mind")))
	require.Equal(t, wire.RefusalOther, closedLive.Why)
}

// Requests that exceed the message size and cannot be made smaller.
func TestUnsent(t *testing.T) {
	c := defaults()
	c.Limits.NoNegentropy, c.Limits.MaxMessage = true, 1<<10
	s := New(c)
	r := sent(t, s.Fetch(start, batchOf(1, plan.History, tagging("x"))))
	require.Equal(t, plan.Refused, one[Done](t, s.Unsent(start, r.Sub, 2000, "too large")).Result)
	require.Empty(t, s.Unsent(start, r.Sub, 2000, "too large"))

	// Ids are sent in smaller chunks.
	c.Limits.NoNegentropy = false
	s = New(c)
	load := one[LoadSet](t, s.Fetch(start, batchOf(1, plan.History, tagging("x"))))
	neg := sent(t, s.SetLoaded(start, load.Query, setOf(), nil))
	missing := one[Missing](t, s.Receive(start, negReply(t, neg, event(1, 0, "x"), event(2, 0, "x"))))
	r = sent(t, s.Checked(start, missing.Query, missing.IDs, nil, nil))
	require.Len(t, r.Filters[0].IDs, 2)
	r = sent(t, s.Unsent(start, r.Sub, 2000, "too large"))
	require.Len(t, r.Filters[0].IDs, 1)
	require.Equal(t, plan.Refused, one[Done](t, s.Unsent(start, r.Sub, 2000, "too large")).Result)

	// A value too large for any message is left out and leaves a gap.
	s = New(c)
	require.Equal(t, plan.Gaps, one[Done](t, s.Fetch(start, batchOf(1, plan.History, tagging(strings.Repeat("x", 2000))))).Result)
	require.Empty(t, s.Follow(start, 1, standing.Of(filters.Live(tagging(strings.Repeat("x", 2000))))))
	require.Empty(t, s.Unfollow(start, 1))
	actions := s.Fetch(start, batchOf(2, plan.History, taggingAny("y,"+strings.Repeat("x", 2000))))
	rest := one[LoadSet](t, actions)
	require.Equal(t, []string{"y"}, rest.Filter.Tags["e"])
	r = sent(t, s.SetLoaded(start, rest.Query, nil, nil))
	require.Equal(t, plan.Gaps, one[Done](t, s.Receive(start, eose(r.Sub))).Result)
}

// The set is loaded again if its filter has changed.
func TestSetOfAnOldFilter(t *testing.T) {
	s := New(defaults())
	load := one[LoadSet](t, s.Fetch(start, batchOf(1, plan.History, taggingAny("u,v"))))
	s.SetLimits(relaylimits.Limits{Requests: relaylimits.Requests{MaxValues: 1, MaxSubscriptions: 40}}, nil)
	again := only[LoadSet](s.SetLoaded(start, load.Query, setOf(), nil))
	require.Len(t, again, 2)
	require.Equal(t, []string{"u"}, again[0].Filter.Tags["e"])
	require.Equal(t, []string{"v"}, again[1].Filter.Tags["e"])
	for _, l := range again {
		s.SetLoaded(start, l.Query, nil, nil)
	}
	require.Len(t, s.history.batches[1].parts[0], 2)
}

// A refused filter without values is removed from a live subscription. Its other filters are
// followed.
func TestTrialLeavesOutWhatHasNoValues(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}, {2, 1, 0}} {
		fs := []nostr.Filter{filters.Live(filters.Layer1()), filters.Live(tagging("x")), filters.Live(tagging("y"))}
		asked := make([]nostr.Filter, 3)
		for i, j := range order {
			asked[i] = fs[j]
		}
		r := newRefuser(func(req wire.Request) string {
			if slices.ContainsFunc(req.Filters, func(f nostr.Filter) bool { return len(f.Tags) == 0 }) {
				return "invalid: no"
			}
			return ""
		})
		r.play(t, r.s.Follow(start, 1, standing.Of(asked...)))
		require.Empty(t, only[LiveClosed](r.other))
		last := r.reqs[len(r.reqs)-1]
		require.Equal(t, byte('l'), last.Sub[0])
		require.Len(t, last.Filters, 2)
		for _, f := range last.Filters {
			require.NotEmpty(t, f.Tags)
		}
		live, _, _ := r.s.Open()
		require.Equal(t, 1, live)
	}
}
