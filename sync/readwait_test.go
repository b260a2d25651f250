package sync_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// short is a Transport without memory: each message of a reconciliation waits for memory.
type short struct {
	*relaytest.Network
	says bool // Traffic reports the wait
}

func (s short) Dial(ctx context.Context, u graspsync.RelayURL) (relaysync.Conn, error) {
	c, err := s.Network.Dial(ctx, u)
	if err != nil {
		return nil, err
	}
	w := &shortConn{Conn: c}
	if s.says {
		return w, nil
	}
	return silent{w}, nil
}

type shortConn struct {
	relaysync.Conn
	began atomic.Int64 // of the running wait
	total atomic.Int64
}

// Receive implements [relaysync.Conn].
func (c *shortConn) Receive(ctx context.Context) (wire.Message, error) {
	m, err := c.Conn.Receive(ctx)
	if err == nil && m.Type == wire.TypeNegMsg {
		c.began.Store(time.Now().UnixNano())
		time.Sleep(40 * time.Second)
		c.began.Store(0)
		c.total.Add(int64(40 * time.Second))
	}
	return m, err
}

// silent is a connection that measures no traffic.
type silent struct{ relaysync.Conn }

// Traffic implements [relaysync.Conn].
func (silent) Traffic() relaysync.Traffic { return relaysync.Traffic{} }

// Traffic implements [relaysync.Conn].
func (c *shortConn) Traffic() relaysync.Traffic {
	sum := time.Duration(c.total.Load())
	if began := c.began.Load(); began != 0 {
		sum += time.Duration(time.Now().UnixNano() - began)
	}
	return relaysync.Traffic{ReadWaited: sum}
}

// A relay answered in time while there was no memory to read its answer. It counted as a relay
// without NIP-77 for four hours.
func TestWaitingForMemoryIsNotTheRelaysDoing(t *testing.T) {
	for _, says := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			net := relaytest.NewNetwork()
			a := net.Add("wss://a.example", relaytest.Behavior{Negentropy: relaytest.NegOn})
			owner := relaytest.NewCheapKey("owner")
			issue := owner.Issue(at(time.Hour), owner.Ref("repo"), "x")
			a.Publish(issue)
			r, _ := hostedOver(t, net, short{net, says}, relaysync.Config{}, "a.example")
			defer r.stop()
			after(10 * time.Minute)
			assert.True(t, r.has(issue))
			assert.Equal(t, says, r.relay("wss://a.example").Learned["no_negentropy"] == 0, "a relay that does not answer is taken for one without NIP-77: %v", !says)
		})
	}
}
