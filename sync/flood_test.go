package sync_test

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

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// junk returns the i-th message of a flood. sub is the first requested subscription.
type junk func(sub string, i int) wire.Message

// flooding is a Network in which some relays send without end.
type flooding struct {
	*relaytest.Network
	junk  map[string]junk // by host
	sent  map[string]*atomic.Int64
	most  int64 // bytes that each relay sends
	panic func(host, where string) bool
}

func (f *flooding) Dial(ctx context.Context, u graspsync.RelayURL) (relaysync.Conn, error) {
	host := u.HostPort().Host
	if f.panic != nil && f.panic(host, "dial") {
		panic("dial")
	}
	c, err := f.Network.Dial(ctx, u)
	if err != nil {
		return nil, err
	}
	return &floodConn{Conn: c, f: f, host: host, sub: make(chan string, 1)}, nil
}

type floodConn struct {
	relaysync.Conn
	f    *flooding
	host string
	sub  chan string
	of   string
	i    int
}

func (c *floodConn) check(where string) {
	if c.f.panic != nil && c.f.panic(c.host, where) {
		panic(where)
	}
}

func (c *floodConn) Send(ctx context.Context, r wire.Request) error {
	c.check("send")
	if r.Type == wire.TypeReq {
		select {
		case c.sub <- r.Sub:
		default:
		}
	}
	return c.Conn.Send(ctx, r)
}

func (c *floodConn) Close() error {
	c.check("close")
	return c.Conn.Close()
}

func (c *floodConn) Info() wire.Info {
	c.check("info")
	return c.Conn.Info()
}

func (c *floodConn) Receive(ctx context.Context) (wire.Message, error) {
	c.check("receive")
	next := c.f.junk[c.host]
	sent := c.f.sent[c.host]
	if next == nil || sent.Load() >= c.f.most {
		return c.Conn.Receive(ctx)
	}
	if c.of == "" {
		select {
		case c.of = <-c.sub:
		case <-ctx.Done():
			return wire.Message{}, ctx.Err()
		}
	}
	if ctx.Err() != nil {
		return wire.Message{}, ctx.Err()
	}
	c.i++
	m := next(c.of, c.i)
	sent.Add(int64(m.Size))
	return m, nil
}

// startFlood is start with a flooding network.
func startFlood(t *testing.T, net *flooding, hosts ...string) (*rig, *relaytest.Key) {
	t.Helper()
	return startFloodWith(t, net, relaysync.Config{}, hosts...)
}

func startFloodWith(t *testing.T, net *flooding, cfg relaysync.Config, hosts ...string) (*rig, *relaytest.Key) {
	t.Helper()
	cfg.Verifier = relaytest.CheapVerifier{}
	owner := relaytest.NewCheapKey("owner")
	r := &rig{t: t, store: memstore.New(), net: net.Network}
	r.save(owner.Hosted(at(24*time.Hour), "repo", append([]string{us}, hosts...)...))
	identity, err := nip34.ParseIdentity(us)
	require.NoError(t, err)
	r.manager, err = relaysync.New(r.store, net, identity, cfg)
	require.NoError(t, err)
	r.run()
	return r, owner
}

// floodKinds are the kinds of floods. Valid events are announcements, because those of all owners
// are requested.
func floodKinds(t *testing.T) map[string]junk {
	t.Helper()
	key := relaytest.NewCheapKey("stranger")
	pad := strings.Repeat("x", 900)
	same := key.Hosted(at(time.Hour), "same", "elsewhere.example")
	event := func(sub string, ev *nostr.Event) wire.Message {
		return wire.Message{Type: wire.TypeEvent, Sub: sub, Event: eventtest.Of(ev), Size: 1000}
	}
	return map[string]junk{
		"notices": func(string, int) wire.Message { return wire.Message{Type: wire.TypeNotice, Text: pad, Size: 1000} },
		"oks":     func(string, int) wire.Message { return wire.Message{Type: wire.TypeOK, Text: pad, Size: 1000} },
		"eose":    func(string, int) wire.Message { return wire.Message{Type: wire.TypeEOSE, Sub: "no", Size: 1000} },
		"closed": func(string, int) wire.Message {
			return wire.Message{Type: wire.TypeClosed, Sub: "no", Text: pad, Size: 1000}
		},
		"neg-err": func(string, int) wire.Message {
			return wire.Message{Type: wire.TypeNegErr, Sub: "no", Text: pad, Size: 1000}
		},
		"repeats":    func(sub string, _ int) wire.Message { return event(sub, same) },
		"unasked":    func(_ string, i int) wire.Message { return event(fmt.Sprint("no", i), same) },
		"other kind": func(sub string, i int) wire.Message { return event(sub, key.Event(at(time.Hour), 1, fmt.Sprint(i))) },
		"bad ids": func(sub string, i int) wire.Message {
			ev := *same
			ev.ID = fmt.Sprintf("%064x", i)
			return event(sub, &ev)
		},
		"bad sigs": func(sub string, i int) wire.Message {
			ev := *same
			ev.Sig = fmt.Sprintf("%0128x", i)
			return event(sub, &ev)
		},
	}
}

// R13: ten relays send a gigabyte of useless messages.
func TestPromiseP22_Flood(t *testing.T) {
	most := int64(100 << 20)
	if testing.Short() {
		most = 10 << 20
	}
	bubble(t, func(t *testing.T) {
		net := &flooding{Network: relaytest.NewNetwork(), junk: map[string]junk{}, sent: map[string]*atomic.Int64{}, most: most}
		hosts := []string{"honest.example"}
		honest := net.Add("wss://honest.example", relaytest.Behavior{})
		for name, j := range floodKinds(t) {
			host := strings.ReplaceAll(name, " ", "-") + ".example"
			hosts = append(hosts, host)
			net.Add("wss://"+host, relaytest.Behavior{})
			net.junk[host], net.sent[host] = j, new(atomic.Int64)
		}
		r, owner := startFlood(t, net, hosts...)
		defer r.stop()
		issue := owner.Issue(at(time.Hour), owner.Ref("repo"), "x")
		honest.Publish(issue)
		after(20 * time.Second)
		require.True(t, r.has(issue), "the honest relay is not held up")
		for host, sent := range net.sent {
			assert.LessOrEqual(t, sent.Load(), int64(8<<20+128<<10), "%s before it was cut", host)
		}
		s := r.manager.Status()
		assert.LessOrEqual(t, s.Events.Verified, uint64(2000*len(net.sent)))
		assert.LessOrEqual(t, s.Events.Forged, uint64(2100+relaysync.VerifyBatch*runtime.GOMAXPROCS(0)),
			"a hundred ids, the signatures that a relay may cost us, and those that were being checked when these were used up")
		assert.Positive(t, s.Events.Dropped["unproductive"])
		after(48 * time.Hour)
		var total int64
		for host, sent := range net.sent {
			dials := len(net.Relay(relayURL(t, "wss://"+host)).Dials())
			total += sent.Load()
			assert.LessOrEqual(t, dials, 48, "%s: an hour at least between two attempts", host)
		}
		assert.Len(t, honest.Dials(), 1)
		t.Logf("10 relays sent %d MiB of %d in 48 h; %d verified, %d forged",
			total>>20, int64(len(net.sent))*most>>20, r.manager.Status().Events.Verified, r.manager.Status().Events.Forged)
		require.Zero(t, r.manager.Status().Events.Panics["connection"])
	})
}
