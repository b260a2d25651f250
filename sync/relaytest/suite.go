package relaytest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

// Setup returns a Transport to test, a relay, and the URL by which the Transport connects to it.
// Package relayserver serves a relay on a real socket.
type Setup func(t *testing.T) (relaysync.Transport, graspsync.RelayURL, *Relay)

// patience is the maximum time for an operation that should be immediate.
const patience = time.Minute

// RunTransport tests a Transport. It does not work in a bubble of testing/synctest. Check for
// leaked goroutines with goleak in TestMain.
func RunTransport(t *testing.T, setup Setup) {
	t.Helper()
	for _, check := range []struct {
		name string
		run  func(s *suite)
	}{
		{"messages come in order", checkOrder},
		{"every kind of message", checkMessages},
		{"every kind of request", checkRequests},
		{"live events", checkLive},
		{"messages belong to the caller", checkOwnership},
		{"malformed messages are dropped", checkMalformed},
		{"what is known is not read", checkSkim},
		{"a connection ends", checkEnds},
		{"what a connection tells of itself", checkTold},
		{"dial ends with its context", checkDialContext},
		{"dial of a relay that is down", checkDialDown},
		{"dial context bounds only the dial", checkDialContextOver},
		{"concurrent dials", checkDials},
		{"too large a message", checkTooLarge},
		{"back-pressure", checkBackPressure},
	} {
		t.Run(check.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			t.Cleanup(cancel)
			s := &suite{T: t, ctx: ctx}
			s.transport, s.url, s.relay = setup(t)
			check.run(s)
		})
	}
}

type suite struct {
	*testing.T
	ctx       context.Context //nolint:containedctx // of one check, as T is
	transport relaysync.Transport
	url       graspsync.RelayURL
	relay     *Relay
}

func (s *suite) dial() relaysync.Conn {
	s.Helper()
	c, err := s.transport.Dial(s.ctx, s.url)
	require.NoError(s, err, "dial")
	s.Cleanup(func() { assert.NoError(s, c.Close(), "close") })
	return c
}

func (s *suite) send(c relaysync.Conn, req wire.Request) {
	s.Helper()
	require.NoError(s, c.Send(s.ctx, req), "send")
}

func (s *suite) receive(c relaysync.Conn) wire.Message {
	s.Helper()
	m, err := c.Receive(s.ctx)
	require.NoError(s, err, "receive")
	return m
}

// background runs f and returns a function that waits for its error.
func (s *suite) background(f func() error) (wait func() error) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return func() error {
		s.Helper()
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case err := <-done:
			return err
		case <-timer.C:
			require.Fail(s, "blocked for too long")
			return nil
		}
	}
}

func (s *suite) eventually(what string, f func() bool) {
	s.Helper()
	require.Eventually(s, f, patience, 2*time.Millisecond, what)
}
