package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// Only an OK for our sent answer decides. An OK at another time or for another event is ignored.
func TestVerdictOnOurAnswerOnly(t *testing.T) {
	ok := func(n int, accepted bool) wire.Message {
		return wire.Message{Type: wire.TypeOK, ID: eventID(n), Accepted: accepted, Text: "no"}
	}
	c := defaults()
	c.Auth, c.Limits.NoNegentropy = true, true
	for _, accepted := range []bool{false, true} {
		s := New(c)
		stays := func(want authState) {
			t.Helper()
			for _, n := range []int{77, 78} {
				if n == 78 || want != authSent {
					require.Empty(t, s.Receive(start, ok(n, accepted)))
					require.Equal(t, want, s.requests.auth.state)
				}
			}
		}
		stays(authNone)
		r := sent(t, s.Fetch(start, batchOf(1, plan.History, tagging("x"))))
		s.Receive(start, closed(r.Sub, "auth-required: who are you?"))
		stays(authWanted)
		s.Receive(start, wire.Message{Type: wire.TypeAuth, Text: "abc"})
		stays(authSigning)
		s.Signed(start, event(77, 0, ""), nil)
		stays(authSent)
		actions := s.Receive(start, ok(77, accepted))
		if !accepted {
			require.Equal(t, authRefused, s.requests.auth.state)
			require.Equal(t, plan.Refused, one[Done](t, actions).Result)
			stays(authRefused)
			continue
		}
		require.Equal(t, authAccepted, s.requests.auth.state)
		require.Equal(t, r.Filters, sent(t, actions).Filters)
		stays(authAccepted)
	}
}

// After the relay refused our key, requests refused for lack of authentication are not repeated,
// even those sent before.
func TestRefusedKeyIsNotTriedAgain(t *testing.T) {
	c := defaults()
	c.Auth, c.Limits.NoNegentropy = true, true
	s := New(c)
	first := sent(t, s.Fetch(start, batchOf(1, plan.History, tagging("x"))))
	second := sent(t, append(s.Fetch(start, batchOf(2, plan.History, tagging("y"))), s.Tick(start.Add(2*time.Second))...))
	s.Receive(start, wire.Message{Type: wire.TypeAuth, Text: "abc"})
	s.Receive(start, closed(first.Sub, "auth-required: who are you?"))
	s.Signed(start, event(77, 0, ""), nil)
	actions := s.Receive(start, wire.Message{Type: wire.TypeOK, ID: eventID(77), Text: "restricted: not you"})
	require.Equal(t, plan.BatchID(1), one[Done](t, actions).Batch)
	actions = s.Receive(start, closed(second.Sub, "auth-required: who are you?"))
	require.Equal(t, plan.Refused, one[Done](t, actions).Result)
	require.Empty(t, only[Send](actions))
}
