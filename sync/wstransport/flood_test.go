package wstransport_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/wire"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// Ten relays send compressed junk over real sockets without end. Each is disconnected at its limit,
// and memory does not grow.
func TestPromiseP22_CompressedFlood(t *testing.T) {
	racetest.Amounts(t)
	const relays, each = 10, 100 << 20
	kinds := []string{
		`["NOTICE","` + strings.Repeat("junk ", 200_000) + `"]`,
		`["OK","` + strings.Repeat("0", 64) + `",true,"` + strings.Repeat("x", 60_000) + `"]`,
		`["EVENT","nobody asked",{` + strings.Repeat(" ", 100_000) + `}]`, // malformed
		`["NOTICE","` + strings.Repeat("s", 2_000) + `"]`,
	}
	var bootstrap []graspsync.RelayURL
	var sent [relays]atomic.Int64
	for i := range relays {
		junk := []byte(kinds[i%len(kinds)])
		u := wsServer(t, &websocket.AcceptOptions{CompressionMode: websocket.CompressionContextTakeover}, func(ctx context.Context, ws *websocket.Conn) {
			var reading sync.WaitGroup
			defer reading.Wait()
			defer ws.CloseNow()
			reading.Go(func() {
				for {
					if _, _, err := ws.Read(ctx); err != nil {
						return
					}
				}
			})
			for sent[i].Load() < each && ws.Write(ctx, websocket.MessageText, junk) == nil {
				sent[i].Add(int64(len(junk)))
			}
		})
		bootstrap = append(bootstrap, u)
	}
	identity, err := nip34.ParseIdentity("us.example")
	require.NoError(t, err)
	transport := newTransport(t)
	var read atomic.Int64
	m, err := relaysync.New(memstore.New(), counting{transport, &read}, identity, relaysync.Config{
		Bootstrap: bootstrap, AllowPlaintext: true,
	})
	require.NoError(t, err)
	base, peak := liveHeap(), int64(0)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		_ = m.Run(ctx)
	}()
	require.Eventually(t, func() bool {
		peak = max(peak, liveHeap())
		cut := 0
		for _, r := range m.Status().Relays {
			if r.Disconnects > 0 {
				cut++
			}
		}
		return cut == relays
	}, 3*time.Minute, 50*time.Millisecond)
	cancel()
	<-ended
	s := m.Status()
	assert.Empty(t, s.Events.Panics)
	assert.Zero(t, transport.Panics())
	assert.Positive(t, s.Events.Dropped["unproductive"])
	// An allowance each, and what was on its way when it was used up.
	assert.LessOrEqual(t, read.Load(), int64(relays*(10<<20)))
	for _, r := range s.Relays {
		assert.True(t, r.NextAttempt.IsZero() || r.NextAttempt.After(began.Add(4*time.Second)), "%s", r.URL)
	}
	assert.Less(t, (peak-base)>>20, int64(96))
}

// counting counts the bytes of received and dropped messages.
type counting struct {
	*wstransport.Transport
	read *atomic.Int64
}

func (c counting) Dial(ctx context.Context, u graspsync.RelayURL) (relaysync.Conn, error) {
	conn, err := c.Transport.Dial(ctx, u)
	return countedConn{conn, c.read}, err
}

type countedConn struct {
	relaysync.Conn
	read *atomic.Int64
}

func (c countedConn) Receive(ctx context.Context) (wire.Message, error) {
	m, err := c.Conn.Receive(ctx)
	c.read.Add(int64(m.Size))
	if err != nil {
		c.read.Add(int64(c.Traffic().DroppedBytes))
	}
	return m, err
}
