package relaytest

import (
	"context"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

// checkEnds ends a connection in each way while each method blocks.
func checkEnds(s *suite) {
	for end, of := range map[string]func(c relaysync.Conn, cancel func()){
		"Close":       func(c relaysync.Conn, _ func()) { assert.NoError(s, c.Close()) },
		"the relay":   func(relaysync.Conn, func()) { s.relay.Cut() },
		"its context": func(_ relaysync.Conn, cancel func()) { cancel() },
	} {
		for method, call := range map[string]func(context.Context, relaysync.Conn) (wait func() error){"Receive": s.receiving, "Send": s.flood} {
			ctx, cancel := context.WithCancel(s.ctx)
			c := s.dial()
			s.eventually("not connected", func() bool { return s.relay.Open() == 1 })
			wait := call(ctx, c)
			of(c, cancel)
			err := wait()
			cancel()
			require.Error(s, err, "%s after the end by %s", method, end)
			if end != "its context" {
				require.ErrorIs(s, err, relaysync.ErrClosed, "%s after the end by %s", method, end)
			}
			_, err = c.Receive(s.ctx)
			require.Error(s, err, "the first error is final")
			s.eventually("Send goes on after the end", func() bool { return c.Send(s.ctx, reqAll("x")) != nil })
			for range 2 {
				require.NoError(s, c.Close())
			}
			s.relay.Update(func(b *Behavior) { b.StopReading = false })
			s.eventually("the relay still sees the connection", func() bool { return s.relay.Open() == 0 })
		}
	}
}

// receiving calls Receive in the background.
func (s *suite) receiving(ctx context.Context, c relaysync.Conn) (wait func() error) {
	return s.background(func() error { _, err := c.Receive(ctx); return err })
}

// stalls waits until a count has not changed for 300 ms, and returns it.
func (s *suite) stalls(what string, count func() int) (last int) {
	since := time.Now()
	s.eventually(what, func() bool {
		if now := count(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
	return last
}

// flood sends until a call blocks. wait returns the error of that call.
func (s *suite) flood(ctx context.Context, c relaysync.Conn) (wait func() error) {
	s.relay.Update(func(b *Behavior) { b.StopReading = true })
	big := NewCheapKey("flood").Event(1, 1, strings.Repeat("x", 200<<10))
	var sent atomic.Int64
	wait = s.background(func() (err error) {
		for ; err == nil; sent.Add(1) {
			err = c.Send(ctx, wire.Request{Type: wire.TypePublish, Event: big})
		}
		return err
	})
	s.stalls("Send never blocks", func() int { return int(sent.Load()) })
	return wait
}

// checkTold calls the accessors of a connection while another goroutine blocks in Receive, after
// InfoKnown, and after Close.
func checkTold(s *suite) {
	c := s.dial()
	wait := s.receiving(s.ctx, c)
	before := c.Traffic()
	known := s.background(func() error { <-c.InfoKnown(); return nil })
	require.NoError(s, known())
	info := c.Info()
	require.NoError(s, c.Close())
	require.ErrorIs(s, wait(), relaysync.ErrClosed)
	<-c.InfoKnown()
	assert.Equal(s, info, c.Info(), "it does not change any more")
	after := c.Traffic()
	assert.Equal(s, before.RemoteAddr, after.RemoteAddr, "it does not change")
	assert.GreaterOrEqual(s, after.DroppedBytes, before.DroppedBytes)
	assert.GreaterOrEqual(s, after.ReadWaited, before.ReadWaited)
}

func checkDialContext(s *suite) {
	s.relay.Update(func(b *Behavior) { b.NoAnswer = true })
	canceled, cancel := context.WithCancel(s.ctx)
	defer cancel()
	late, cancelLate := context.WithTimeout(s.ctx, 50*time.Millisecond)
	defer cancelLate()
	for _, ctx := range []context.Context{canceled, late} {
		wait := s.background(func() error { _, err := s.transport.Dial(ctx, s.url); return err })
		cancel()
		err := wait()
		assert.ErrorIs(s, err, ctx.Err())
		assert.Error(s, err)
	}
}

func checkDialDown(s *suite) {
	s.relay.SetDown(true)
	c, err := s.transport.Dial(s.ctx, s.url)
	require.Error(s, err)
	assert.Nil(s, c)
	s.relay.SetDown(false)
	s.dial()
}

func checkDialContextOver(s *suite) {
	ctx, cancel := context.WithCancel(s.ctx)
	c, err := s.transport.Dial(ctx, s.url)
	cancel()
	require.NoError(s, err)
	defer func() { assert.NoError(s, c.Close()) }()
	s.send(c, reqAll("x"))
	assert.Equal(s, wire.TypeEOSE, s.receive(c).Type)
}

func checkDials(s *suite) {
	const n = 8
	waits := make([]func() error, n)
	for i := range waits {
		waits[i] = s.background(func() error {
			c, err := s.transport.Dial(s.ctx, s.url)
			if err != nil {
				return err
			}
			err = c.Send(s.ctx, reqAll("x"))
			_, received := c.Receive(s.ctx)
			return errors.Join(err, received, c.Close())
		})
	}
	for _, wait := range waits {
		assert.NoError(s, wait())
	}
	s.eventually("connections stay open", func() bool { return s.relay.Open() == 0 })
}

func checkTooLarge(s *suite) {
	s.relay.Update(func(b *Behavior) { b.Info.MaxMessageLength = 10_000 })
	c := s.dial()
	s.eventually("what the relay says of itself is not known", func() bool {
		return c.Info().MaxMessageLength == 10_000
	})
	big := NewCheapKey("large").Event(1, 1, strings.Repeat("x", 10_000))
	err := c.Send(s.ctx, wire.Request{Type: wire.TypePublish, Event: big})
	require.ErrorIs(s, err, relaysync.ErrMessageTooLarge)
	s.send(c, reqAll("x"))
	assert.Equal(s, wire.TypeEOSE, s.receive(c).Type, "the connection took harm")
	for _, r := range s.relay.Requests() {
		assert.NotEqual(s, wire.TypePublish, r.Type, "it was sent all the same")
	}
}

func checkBackPressure(s *suite) {
	key := NewCheapKey("pressure")
	// 19 MB of incompressible data, more than socket buffers hold.
	const n, size = 48, 300_000
	random := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, size)
	for i := range n {
		_, _ = random.Read(noise) // never fails
		s.relay.Publish(key.Event(nostr.Timestamp(i), 1, base64.StdEncoding.EncodeToString(noise)))
	}
	c := s.dial()
	s.send(c, reqAll("x"))
	s.eventually("the request did not arrive", func() bool { return len(s.relay.Requests()) == 1 })
	last := s.stalls("the relay never stops sending", func() int { return s.relay.Traffic().EventsSent })
	assert.Less(s, last, n, "all was read though nobody received")
	for i := n - 1; i >= 0; i-- {
		m := s.receive(c)
		require.Equal(s, wire.TypeEvent, m.Type)
		require.Equal(s, nostr.Timestamp(i), m.Event.CreatedAt)
	}
	assert.Equal(s, wire.TypeEOSE, s.receive(c).Type)
}
