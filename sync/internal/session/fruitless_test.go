package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// asker asks for one page after the other, as the plan does again and again.
type asker struct {
	t    *testing.T
	s    *Session
	now  time.Time
	next plan.BatchID
}

func newAsker(t *testing.T, auth bool) *asker {
	c := defaults()
	c.Auth, c.Limits.NoNegentropy = auth, true
	return &asker{t: t, s: New(c), now: start}
}

// asks returns the requests for so many pages, sent at once.
func (a *asker) asks(pages int) (out []wire.Request) {
	for range pages {
		a.next++
		b := batchOf(a.next, plan.History, tagging(fmt.Sprint(a.next)))
		b.Deadline = a.now.Add(24 * time.Hour)
		out = append(out, sent(a.t, a.s.Fetch(a.now, b)))
		a.now = a.now.Add(2 * time.Second)
		a.s.Tick(a.now)
	}
	return out
}

// waits has the time for answers pass, and returns whether the connection ends.
func (a *asker) waits() []Hangup {
	a.now = a.now.Add(2 * time.Minute)
	return only[Hangup](a.s.Tick(a.now))
}

// Three requests in a row to which nothing is said are a connection that hangs; those that are
// under way together are one, and whatever is said ends the row.
func TestHangingConnection(t *testing.T) {
	a := newAsker(t, false)
	says := func(m wire.Message) func() { return func() { require.Empty(t, only[Hangup](a.s.Receive(a.now, m))) } }
	for _, said := range []func(){
		says(notice("good morning")), says(eose("r77")), says(closed("r1", "too late")), says(wire.Message{Type: wire.TypeAuth, Text: "x"}),
	} {
		for range 2 {
			a.asks(4)
			require.Empty(t, a.waits())
		}
		said()
	}
	for range 2 {
		a.asks(1)
		require.Empty(t, a.waits())
	}
	a.asks(1)
	require.Equal(t, []Hangup{{Reason: "requests get no answer", Hung: true}}, a.waits())
}

// What was asked for before something was heard is no part of the row, and neither is a NEG-OPEN.
func TestNotHanging(t *testing.T) {
	a := newAsker(t, false)
	for range 6 {
		a.asks(1)
		a.now = a.now.Add(time.Second)
		a.s.Receive(a.now, notice("wait a minute"))
		require.Empty(t, a.waits())
	}
	c := defaults()
	s, now := New(c), start
	for i := range 5 {
		s.SetLimits(c.Limits, nil) // it is believed no more that there is no NIP-77
		s.Fetch(now, batchOf(plan.BatchID(i+1), plan.History, tagging(fmt.Sprint(i))))
		r := sent(t, s.SetLoaded(now, QueryID(s.requests.next), setOf(), nil))
		require.Equal(t, wire.TypeNegOpen, r.Type)
		now = now.Add(c.FirstNeg)
		page := only[Send](s.Tick(now))
		require.Equal(t, wire.TypeReq, page[len(page)-1].Request.Type)
		require.Empty(t, only[Hangup](s.Receive(now, eose(page[len(page)-1].Request.Sub))))
		now = now.Add(time.Minute)
	}
}

// A connection on which all is refused for three hours is given up, whatever the words, unless
// they are about how much is asked. One answer is enough to keep it.
func TestUselessConnection(t *testing.T) {
	for text, ends := range map[string]bool{
		"error: database is closed": true, "restricted: not you": true, "blocked: go away": true,
		"rate-limited: slow down": false, "auth-required: we have no key": false,
	} {
		for _, answered := range []bool{false, true} {
			a := newAsker(t, false)
			var over []Hangup
			for round := range 5 {
				a.next++
				b := batchOf(a.next, plan.History, tagging(fmt.Sprint(a.next)))
				b.Deadline = a.now.Add(24 * time.Hour)
				actions := append(a.s.Tick(a.now), a.s.Fetch(a.now, b)...)
				sends := only[Send](actions)
				over = append(over, only[Hangup](actions)...)
				for i := 0; i < len(sends); i++ { // and what is made of them
					r := sends[i].Request
					if r.Type != wire.TypeReq {
						continue
					}
					m := closed(r.Sub, text)
					if answered && round == 2 {
						m = eose(r.Sub)
					}
					actions = a.s.Receive(a.now, m)
					sends = append(sends, only[Send](actions)...)
					over = append(over, only[Hangup](actions)...)
				}
				a.now = a.now.Add(50 * time.Minute)
			}
			assert.Equal(t, ends && !answered, len(over) > 0, "%s %v", text, answered)
			for _, h := range over {
				require.False(t, h.Hung)
			}
		}
	}
}
