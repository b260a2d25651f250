package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/memstore"
)

// The other relays.
const (
	alpha   = iota // NIP-77
	bravo          // neither NIP-77 nor more than 100 events at once
	charlie        // NIP-77, down at first
	delta          // cut off in the middle
	peers
)

var peerNames = [peers]string{"alpha", "bravo", "charlie", "delta"}

var peerTraits = [peers]string{"NIP-77", "no NIP-77, cap 100", "NIP-77, down at first", "no NIP-77, cut twice"}

// peer is a khatru relay with its events in memory.
type peer struct {
	name   string
	addr   string // host:port
	relay  *khatru.Relay
	store  *memstore.Store
	server *http.Server
	cuts   cutter
}

// newPeer reserves an address.
func newPeer(i int) (*peer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("reserving an address: %w", err)
	}
	p := &peer{name: peerNames[i], addr: l.Addr().String(), store: memstore.New(), relay: khatru.NewRelay()}
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("reserving an address: %w", err)
	}
	p.relay.Log = log.New(io.Discard, "", 0)
	p.relay.Info.Name = p.name
	most := 500
	switch i {
	case alpha, charlie:
		p.relay.Negentropy = true
	case bravo:
		most = 100
	case delta:
		p.cuts.after, p.cuts.left = 300_000, 2
	}
	p.relay.StoreEvent = append(p.relay.StoreEvent, p.save)
	p.relay.ReplaceEvent = append(p.relay.ReplaceEvent, p.save)
	p.relay.QueryEvents = append(p.relay.QueryEvents, p.query(most))
	p.server = &http.Server{Handler: p.relay, ReadHeaderTimeout: 5 * time.Second}
	return p, nil
}

// listen lets the relay be reached.
func (p *peer) listen() error {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	go p.server.Serve(&cutListener{l, &p.cuts})
	return nil
}

func (p *peer) load(events []*nostr.Event) error {
	for _, ev := range events {
		if err := p.save(context.Background(), ev); err != nil {
			return err
		}
	}
	return nil
}

func (p *peer) save(ctx context.Context, ev *nostr.Event) error {
	out, err := p.store.Save(ctx, []graspsync.Incoming{{Event: ev}})
	if err != nil {
		return err
	}
	return out[0].Err
}

// query answers as relays do: newest first, and no more than most events.
func (p *peer) query(most int) func(context.Context, nostr.Filter) (chan *nostr.Event, error) {
	return func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
		limit := most
		if f.Limit > 0 {
			limit = min(limit, f.Limit)
		}
		if eventstore.IsNegentropySession(ctx) {
			limit = 1 << 30
		}
		f.Limit, f.LimitZero = 0, false
		var found []*nostr.Event
		for ev, err := range p.store.Events(ctx, f) {
			if err != nil {
				return nil, err
			}
			found = append(found, ev)
		}
		slices.SortFunc(found, func(a, b *nostr.Event) int {
			return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.ID, b.ID))
		})
		found = found[:min(limit, len(found))]
		ch := make(chan *nostr.Event, len(found))
		for _, ev := range found {
			ch <- ev
		}
		close(ch)
		return ch, nil
	}
}

// cutter breaks connections that have sent so many bytes, a few times.
type cutter struct {
	after int64
	left  int32
}

type cutListener struct {
	net.Listener
	cuts *cutter
}

func (l *cutListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil || l.cuts.after == 0 {
		return c, err
	}
	return &cutConn{Conn: c, cuts: l.cuts}, nil
}

type cutConn struct {
	net.Conn
	cuts *cutter
	sent atomic.Int64
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.sent.Add(int64(len(b))) > c.cuts.after && atomic.AddInt32(&c.cuts.left, -1) >= 0 {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}
