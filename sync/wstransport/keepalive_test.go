package wstransport_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/wire"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// counter counts the frames of a client by their opcode.
type counter [16]atomic.Int64

// count reads frames until the connection ends, and answers pings if told to.
func (c *counter) count(p peer, answer bool) {
	for {
		op, payload, err := p.read()
		if err != nil {
			return
		}
		c[op].Add(1)
		if op == opPing && answer {
			_ = p.frame(fin|opPong, string(payload))
		}
	}
}

func TestPingsAreAnsweredBothWays(t *testing.T) {
	var frames counter
	u := rawServer(t, func(p peer) {
		go func() {
			for i := range 10 {
				_ = p.frame(fin|opPing, fmt.Sprint(i))
			}
		}()
		frames.count(p, true)
	})
	// Nobody calls Receive: with nothing to receive, pings get through all the same.
	c := dial(t, newTransport(t, quick), u)
	require.Eventually(t, func() bool { return frames[opPing].Load() > 60 && frames[opPong].Load() == 10 }, patience, time.Millisecond)
	require.NoError(t, c.Send(testContext(t), closeRequest), "the connection lives")
}

// A store that blocks for a while must not end connections. The answers to our pings then wait behind
// an unread message, and the relay still needs frames from us.
func TestSlowReceiverIsNotDisconnected(t *testing.T) {
	var frames counter
	u := rawServer(t, func(p peer) {
		for i := range 3 {
			_ = p.frame(fin|opText, fmt.Sprintf(`["NOTICE","%d"]`, i))
		}
		frames.count(p, true)
	})
	transport := newTransport(t, quick)
	c := dial(t, transport, u)
	// 60 intervals of 20 ms, with a timeout of a second.
	require.Eventually(t, func() bool { return frames[opPong].Load() >= 60 }, patience, time.Millisecond)
	assert.LessOrEqual(t, frames[opPing].Load(), int64(40), "pings that can't be answered")
	for i := range 3 {
		assert.Equal(t, fmt.Sprint(i), receive(t, c).Text)
	}
	// And once it is read from again, its silence counts again.
	before := frames[opPing].Load()
	require.Eventually(t, func() bool { return frames[opPing].Load() > before+3 }, patience, time.Millisecond)
	require.NoError(t, c.Send(testContext(t), closeRequest))
}

// Pings and pongs are written below the websocket library. They must never be inside a message, and
// messages never inside each other.
func TestControlFramesDoNotMixWithMessages(t *testing.T) {
	const requests = 200
	var frames counter
	bodies := make(chan int, requests)
	u := rawServer(t, func(p peer) {
		go func() {
			for range 500 { // fewer than would count as a flood
				_ = p.frame(fin|opPing, "now")
			}
		}()
		for {
			op, payload, err := p.read()
			if err != nil {
				return
			}
			frames[op].Add(1)
			switch op {
			case opPing:
				assert.Empty(t, payload)
			case opPong:
				assert.Contains(t, []string{"", "now"}, string(payload))
			case opText:
				m, err := wire.Parse(append([]byte(`["EVENT","",`), strings.TrimPrefix(string(payload), `["EVENT",`)...))
				if assert.NoError(t, err) {
					bodies <- len(m.Event.Content)
				}
			default:
				assert.Fail(t, "odd frame", "opcode %d", op)
			}
		}
	})
	transport := newTransport(t, func(c *wstransport.Config) { c.Fixed().PingInterval = 200 * time.Microsecond })
	c := dial(t, transport, u)
	hex64 := strings.Repeat("1", 64)
	for i := range requests {
		ev := &nostr.Event{ID: hex64, PubKey: hex64, Sig: hex64 + hex64, Content: strings.Repeat("x", i*997)}
		require.NoError(t, c.Send(testContext(t), wire.Request{Type: wire.TypePublish, Event: ev}))
	}
	for i := range requests {
		select {
		case n := <-bodies:
			assert.Equal(t, i*997, n)
		case <-testContext(t).Done():
			require.Fail(t, "what was sent does not arrive")
		}
	}
	assert.Positive(t, frames[opPing].Load())
}

// When Close returns, all goroutines have ended.
func TestCloseWaitsForItsGoroutines(t *testing.T) {
	u := rawServer(t, func(p peer) {
		_ = p.frame(fin|opText, `["NOTICE","x"]`)
		p.wait()
	})
	transport := newTransport(t, quick)
	stacks := make([]byte, 1<<20)
	for range 50 {
		require.NoError(t, dial(t, transport, u).Close())
		assert.NotContains(t, string(stacks[:runtime.Stack(stacks, true)]), "wstransport.(*conn)")
	}
}

func TestCloseUnblocksEverything(t *testing.T) {
	release := make(chan struct{})
	u := rawServer(t, func(peer) { <-release })
	defer close(release)
	for range 20 {
		c := dial(t, newTransport(t), u)
		done := make(chan error, 2)
		go func() { _, err := c.Receive(context.Background()); done <- err }()
		go func() {
			for {
				err := c.Send(context.Background(), wire.Request{Type: wire.TypePublish, Event: &nostr.Event{Content: strings.Repeat("x", 400_000)}})
				if err != nil {
					done <- err
					return
				}
			}
		}()
		start := time.Now()
		go func() { _ = c.Close() }()
		require.NoError(t, c.Close())
		assert.ErrorContains(t, <-done, "closed by us")
		assert.ErrorContains(t, <-done, "closed by us")
		assert.Less(t, time.Since(start), 4*time.Second, "it waited for the relay")
	}
}
