package session

import (
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/standing"
	"github.com/graspsync/graspsync/sync/wire"
)

// hangingUp has a relay hang up over some requests, one connection after the other, and returns
// the session to which it does not any more, and how often it hung up.
func hangingUp(t *testing.T, over func(wire.Request) bool, begin func(*Session) []Action) (s *Session, actions []Action, cuts int) {
	t.Helper()
	var known relaylimits.Observed
	for cuts = 0; cuts < 100; cuts++ {
		c := defaults()
		c.Suspects = known.Suspects(start)
		s = New(c)
		todo, hungUp := begin(s), false
		actions = nil
		for len(todo) > 0 && !hungUp {
			a := todo[0]
			todo = todo[1:]
			actions = append(actions, a)
			switch a := a.(type) {
			case Taken:
				known.Took(a.Form, start)
			case LoadSet:
				todo = append(todo, s.SetLoaded(start, a.Query, setOf(), nil)...)
			case Send:
				switch r := a.Request; {
				case r.Type != wire.TypeReq && r.Type != wire.TypeNegOpen:
				case over(r):
					known.HungUp(s.Unanswered(start.Add(-time.Second)), start, time.Hour)
					hungUp = true
				case r.Type == wire.TypeReq:
					todo = append(todo, s.Receive(start, eose(r.Sub))...)
				}
			}
		}
		if !hungUp {
			return s, actions, cuts
		}
	}
	t.Fatal("it is asked the same for ever")
	return nil, nil, 0
}

// What a relay hangs up over is found as what it refuses with words is, over as many connections
// as that takes, and the next connection knows it.
func TestHangUpsAreBisected(t *testing.T) {
	many := []nostr.Filter{filters.Live(filters.Layer1()), filters.Live(tagging("x")), filters.Live(tagging("y"))}
	follow := func(s *Session) []Action { return s.Follow(start, 1, standing.Of(many...)) }
	any := func(is func(nostr.Filter) bool) func(wire.Request) bool {
		return func(r wire.Request) bool {
			for _, f := range r.Filters {
				if is(f) {
					return true
				}
			}
			return false
		}
	}
	for name, c := range map[string]struct {
		over func(wire.Request) bool
		kind relaylimits.Kind
	}{
		"limit 0":         {any(func(f nostr.Filter) bool { return f.LimitZero }), relaylimits.NoLimitZero},
		"no kinds":        {any(kindless), relaylimits.NeedsKinds},
		"notes":           {any(asksForNotes), relaylimits.NoNotes},
		"several filters": {func(r wire.Request) bool { return len(r.Filters) > 1 }, relaylimits.MaxFilters},
	} {
		t.Run(name, func(t *testing.T) {
			s, actions, cuts := hangingUp(t, c.over, follow)
			require.Equal(t, c.kind, one[Learned](t, actions).Kind)
			require.Less(t, cuts, 12)
			live, _, waiting := s.Open()
			require.Positive(t, live)
			require.Zero(t, waiting)
		})
	}

	// One value, and it is set aside.
	_, actions, _ := hangingUp(t, any(func(f nostr.Filter) bool { return len(f.Tags["e"]) > 0 && f.Tags["e"][0] == "y" }), follow)
	require.Equal(t, relaylimits.Value{Tag: "e", Value: "y"}, one[SetAside](t, actions).Value)
	require.Empty(t, only[Learned](actions))

	// A form that is refused whatever its values, of history: it is not to be had, and what has
	// other values need not be tried.
	fetch := func(s *Session) []Action {
		b := batchOf(1, plan.History, tagging("x"), tagging("z"), nostr.Filter{Kinds: []int{1}})
		for i := range b.Queries {
			b.Queries[i].NoNegentropy = true
		}
		return s.Fetch(start, b)
	}
	_, actions, cuts := hangingUp(t, any(func(f nostr.Filter) bool { return len(f.Tags["e"]) > 0 }), fetch)
	require.Equal(t, plan.Refused, one[Done](t, actions).Result)
	require.Less(t, cuts, 8)
}

// NEG-OPEN is refused as such, after the second time: pages tell whether it was the filter.
func TestHangUpsOverNegOpen(t *testing.T) {
	for range 2 {
		_, actions, cuts := hangingUp(t, func(r wire.Request) bool { return r.Type == wire.TypeNegOpen }, func(s *Session) []Action {
			return s.Fetch(start, batchOf(1, plan.History, tagging("x"), tagging("y")))
		})
		require.Equal(t, 2, cuts)
		require.Equal(t, relaylimits.NoNegentropy, one[Learned](t, actions).Kind)
		require.Equal(t, plan.Complete, one[Done](t, actions).Result)
	}
}

// What may be why a relay hung up is asked for alone, and what was answered is not why.
func TestSuspectsAreAskedForAlone(t *testing.T) {
	two := func(s *Session) []Action {
		return append(s.Follow(start, 1, standing.Of(filters.Live(tagging("x")))), s.Follow(start, 2, standing.Of(filters.Live(tagging("y"))))...)
	}
	s := New(defaults())
	first := sent(t, two(s))
	sent(t, s.Tick(start.Add(2*time.Second))) // the first has no answer yet
	unanswered := s.Unanswered(start.Add(-time.Second))
	require.Len(t, unanswered, 2)
	require.Len(t, s.Unanswered(start.Add(time.Second)), 1, "of those that were sent since then")
	s.Receive(start, eose(first.Sub))
	require.Len(t, s.Unanswered(start.Add(-time.Second)), 1)

	c := defaults()
	c.Suspects = make(map[relaylimits.Form]bool)
	for _, of := range unanswered {
		for _, f := range of.Own {
			c.Suspects[f] = false
		}
	}
	s = New(c)
	first = sent(t, two(s))
	require.Empty(t, s.Tick(start.Add(time.Minute)))
	actions := s.Receive(start.Add(time.Minute), eose(first.Sub))
	require.Len(t, only[Taken](actions), 2, "the request and its shape")
	require.Len(t, only[Send](actions), 1)

	// Unless that has expired.
	s = New(c)
	s.Suspect(nil)
	two(s)
	sent(t, s.Tick(start.Add(2*time.Second)))
}

// A relay that has answered nothing refuses us, whatever the form: it is asked all the same, so
// that it is seen to hang up, or not to.
func TestHangUpsOverEverything(t *testing.T) {
	var known relaylimits.Observed
	follow := func(s *Session) []Action { return s.Follow(start, 1, standing.Of(filters.Live(tagging("x")))) }
	for range 30 {
		c := defaults()
		c.Suspects = known.Suspects(start)
		s := New(c)
		actions := follow(s)
		require.Len(t, only[Send](actions), 1)
		require.Empty(t, only[LiveClosed](actions))
		known.HungUp(s.Unanswered(start.Add(-time.Second)), start, time.Hour)
	}
	c := defaults()
	c.Suspects = known.Suspects(start)
	s := New(c)
	require.NotEmpty(t, only[Taken](s.Receive(start, eose(sent(t, follow(s)).Sub))))
	live, _, waiting := s.Open()
	require.Equal(t, []int{1, 0}, []int{live, waiting})
}

// What was believed to be refused, and is taken when it is tried, was refused by what was believed
// and tried again, without end: it is asked for.
func TestFalseSuspectIsAskedFor(t *testing.T) {
	follow := func(s *Session) []Action { return s.Follow(start, 1, standing.Of(filters.Live(tagging("x")))) }
	page := func(s *Session) []Action {
		b := batchOf(1, plan.History, tagging("x"))
		b.Queries[0].NoNegentropy = true
		return s.Fetch(start, b)
	}
	for _, begin := range []func(*Session) []Action{follow, page} {
		var known relaylimits.Observed
		for range 2 {
			s := New(defaults())
			begin(s)
			known.HungUp(s.Unanswered(start.Add(-time.Second)), start, time.Hour)
		}
		c := defaults()
		c.Suspects = known.Suspects(start)
		s := New(c)
		probe := sent(t, begin(s))
		require.Equal(t, byte('p'), probe.Sub[0])
		sends := only[Send](s.Receive(start, eose(probe.Sub)))
		asked := sends[len(sends)-1].Request
		require.NotEqual(t, byte('p'), asked.Sub[0])
		actions := s.Receive(start, eose(asked.Sub))
		require.NotEmpty(t, only[Taken](actions))
		for _, a := range only[Send](actions) {
			require.NotEqual(t, wire.TypeReq, a.Request.Type)
		}
		require.Nil(t, s.requests.bisected)
		require.Empty(t, s.requests.suspended)
	}
}
