package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
	"github.com/graspsync/graspsync/sync/wstransport"
)

const liveEvents = 40

// publishLive publishes comments on the other relays, one after the other, and
// measures how long each takes until a client of our relay has it.
func publishLive(ctx context.Context, h *hub, addrs []string, us string) ([]time.Duration, error) {
	dialer, err := egress.NewDialer(egress.Config{Allow: loopback, AllowPlaintext: true, Own: []netip.AddrPort{}})
	if err != nil {
		return nil, err
	}
	transport, err := wstransport.New(wstransport.Config{Dialer: dialer})
	if err != nil {
		return nil, err
	}
	connect := func(addr string) (relaysync.Conn, error) {
		u, err := graspsync.ParseRelayURL("ws://" + addr)
		if err != nil {
			return nil, err
		}
		return transport.Dial(ctx, u)
	}
	client, err := connect(us)
	if err != nil {
		return nil, fmt.Errorf("connecting to our relay: %w", err)
	}
	defer client.Close()
	follow := nostr.Filter{Kinds: []int{kindComment}, LimitZero: true}
	if err := client.Send(ctx, wire.Request{Type: wire.TypeReq, Sub: "live", Filters: []nostr.Filter{follow}}); err != nil {
		return nil, err
	}
	if err := awaitLive(ctx, client, ""); err != nil {
		return nil, err
	}
	conns := make([]relaysync.Conn, len(addrs))
	for i, a := range addrs {
		if conns[i], err = connect(a); err != nil {
			return nil, fmt.Errorf("connecting to %s: %w", peerNames[i], err)
		}
		defer conns[i].Close()
	}
	var took []time.Duration
	for n := range liveEvents {
		root := h.issues[h.rng.IntN(len(h.issues))]
		at := root.peers[n%len(root.peers)]
		d := h.about(root, h.someone(), kindComment, 0, true, []int{at})
		d.event.CreatedAt = nostr.Now()
		d.event.Content = fmt.Sprintf("live comment %d", n)
		resolve(&d.event, map[string]string{placeholder(root): root.event.ID})
		if err := d.event.Sign(d.author.secret); err != nil {
			return nil, err
		}
		start := time.Now()
		if err := conns[at].Send(ctx, wire.Request{Type: wire.TypePublish, Event: &d.event}); err != nil {
			return nil, err
		}
		if err := awaitLive(ctx, client, d.event.ID); err != nil {
			return nil, fmt.Errorf("live comment %d, published on %s, did not arrive: %w", n, peerNames[at], err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took, nil
}

// awaitLive waits for the event with an id, or for EOSE if that is empty.
func awaitLive(ctx context.Context, c relaysync.Conn, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		m, err := c.Receive(ctx)
		if err != nil {
			return err
		}
		if (m.Type == wire.TypeEOSE && id == "") || (m.Type == wire.TypeEvent && m.Event.ID == id) {
			return nil
		}
	}
}
