package sync_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

var errWire = errors.New("cable pulled")

// breaking is a Transport in which the call with a given number of a method fails, counted over all
// connections.
type breaking struct {
	*relaytest.Network
	method string
	call   int
	how    func() error // panics, or returns an error

	mu    sync.Mutex
	calls map[string]int // guarded by mu
}

// fault applies the failure to a call of a method.
func (b *breaking) fault(method string) error {
	b.mu.Lock()
	b.calls[method]++
	now := method == b.method && b.calls[method] == b.call
	b.mu.Unlock()
	if now {
		return b.how()
	}
	return nil
}

func (b *breaking) count(method string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[method]
}

// Dial implements [relaysync.Transport].
func (b *breaking) Dial(ctx context.Context, u graspsync.RelayURL) (relaysync.Conn, error) {
	if err := b.fault("Dial"); err != nil {
		if errors.Is(err, errNothing) {
			return nil, nil
		}
		return nil, err
	}
	c, err := b.Network.Dial(ctx, u)
	if err != nil {
		return nil, err
	}
	known := make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() { close(known) })
	return &breakingConn{Conn: c, b: b, known: known}, nil
}

// errNothing stands for a Transport that returns neither a connection nor an error.
var errNothing = errors.New("nothing")

// breakingConn is a connection that receives the relay's NIP-11 document after a while.
type breakingConn struct {
	relaysync.Conn
	b     *breaking
	known chan struct{}
}

func (c *breakingConn) Receive(ctx context.Context) (wire.Message, error) {
	if err := c.b.fault("Receive"); err != nil {
		return wire.Message{}, err
	}
	return c.Conn.Receive(ctx)
}

func (c *breakingConn) Send(ctx context.Context, r wire.Request) error {
	if err := c.b.fault("Send"); err != nil {
		return err
	}
	return c.Conn.Send(ctx, r)
}

func (c *breakingConn) Close() error {
	closing := c.Conn.Close()
	return errors.Join(c.b.fault("Close"), closing)
}

func (c *breakingConn) Info() wire.Info {
	_ = c.b.fault("Info")
	return c.Conn.Info()
}

func (c *breakingConn) InfoKnown() <-chan struct{} {
	_ = c.b.fault("InfoKnown")
	return c.known
}

func (c *breakingConn) Traffic() relaysync.Traffic {
	_ = c.b.fault("Traffic")
	return c.Conn.Traffic()
}

// A failure or panic of any call of a Transport or connection ends this connection only. It is
// counted, logged and observed, the connection is closed, and the next connection fetches the
// missing events.
func TestEachFaultOfATransport(t *testing.T) {
	racetest.Amounts(t)
	play := func(t *testing.T, method string, call int, panics bool, how func() error) (calls int) {
		bubble(t, func(t *testing.T) {
			net := relaytest.NewNetwork()
			a := net.Add("wss://a.example", relaytest.Behavior{})
			tr := &breaking{Network: net, method: method, call: call, how: how, calls: make(map[string]int)}
			log := newCapture()
			r, owner := hostedOver(t, net, tr, relaysync.Config{Logger: log.logger()}, "a.example")
			var issues []*nostr.Event
			for i := range 3 {
				issues = append(issues, owner.Issue(at(time.Duration(i+1)*time.Hour), owner.Ref("repo"), fmt.Sprint(i)))
			}
			a.Publish(issues...)
			after(3 * time.Minute)
			live := owner.Issue(at(0), owner.Ref("repo"), "live")
			a.Publish(live)
			after(time.Minute)
			if method == "Close" {
				a.Cut()
			}
			after(30 * time.Minute)
			for _, ev := range append(issues, live) {
				require.True(t, r.has(ev))
			}
			s, status := r.relay("wss://a.example"), r.manager.Status()
			require.Equal(t, "live", s.Phase)
			require.Equal(t, s.Wanted, s.Confirmed)
			require.Equal(t, 1, a.Open())
			calls = tr.count(method)
			if call == 0 {
				r.stop()
				return
			}
			require.GreaterOrEqual(t, calls, call)
			lines := len(log.find("panic"))
			if panics {
				require.EqualValues(t, 1, status.Events.Panics["connection"])
				require.Equal(t, 1, lines)
			} else {
				require.Empty(t, status.Events.Panics)
				require.Zero(t, lines)
			}
			switch {
			case method == "Close" && !panics:
				told := log.find("closing a connection failed")
				require.Len(t, told, 1)
				require.Contains(t, told[0].attrs["error"], errWire.Error())
			case method == "Close": // the connection had ended for another reason
			default:
				told := append(log.find("connection failed"), log.find("connection lost")...)
				require.Len(t, told, 1, "it is one relay's failure, once")
				want := "cable pulled"
				switch {
				case panics:
					want = "internal error: cable pulled"
				case errors.Is(how(), errNothing):
					want = "no connection"
				}
				require.Contains(t, told[0].attrs["error"], want)
				require.Empty(t, s.LastError, "it is past")
			}
			tr.mu.Lock()
			tr.how = func() error { return nil }
			tr.mu.Unlock()
			r.end()
		})
		return calls
	}
	fails := func() error { return errWire }
	breaks := func() error { panic(errWire) }
	for _, method := range []string{"Dial", "Receive", "Send", "Close", "Info", "InfoKnown", "Traffic"} {
		calls := max(1, play(t, method, 0, false, nil))
		for call := 1; call <= min(calls, 6); call++ {
			t.Run(fmt.Sprintf("%s %d panics", method, call), func(t *testing.T) { play(t, method, call, true, breaks) })
			if method == "Dial" || method == "Receive" || method == "Send" || method == "Close" {
				t.Run(fmt.Sprintf("%s %d fails", method, call), func(t *testing.T) { play(t, method, call, false, fails) })
			}
		}
	}
	t.Run("Dial gives nothing", func(t *testing.T) { play(t, "Dial", 1, false, func() error { return errNothing }) })
}
