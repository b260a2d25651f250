package main

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip77"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/cputime"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// client is a way to catch up. run returns when the client reports the end, or an error. It may
// hang. All connections are cut soon after run returns.
type client struct {
	name   string
	relay  string // "nip77" or "pages"
	theirs bool
	run    func(ctx context.Context, a *attempt) error
}

var (
	oursNIP77 = client{"ours by NIP-77", "nip77", false, runOurs}
	oursPages = client{"ours by pages", "pages", false, runOurs}
	theirSync = client{"NegentropySync", "nip77", true, runNegentropySync}
	theirWalk = client{"PaginatorWithInterval", "pages", true, runPaginator}

	ourClients   = []client{oursNIP77, oursPages}
	theirClients = []client{theirSync, theirWalk}
)

// names is a transport that maps the relay URL in events to the current address of the relay.
type names struct {
	relaysync.Transport
	name, at graspsync.RelayURL
	dialed   func() // called for each dial
}

// Dial implements [relaysync.Transport].
func (n *names) Dial(ctx context.Context, relay graspsync.RelayURL) (relaysync.Conn, error) {
	n.dialed()
	if relay != n.name {
		return nil, relaysync.ErrForbidden
	}
	return n.Transport.Dial(ctx, n.at)
}

func newNames(url string, dialed func()) (*names, graspsync.RelayURL, error) {
	dialer, err := egress.NewDialer(egress.Config{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPlaintext: true,
	})
	if err != nil {
		return nil, graspsync.RelayURL{}, err
	}
	transport, err := wstransport.New(wstransport.Config{Dialer: dialer})
	if err != nil {
		return nil, graspsync.RelayURL{}, err
	}
	name, err := graspsync.ParseRelayURL(relayName)
	if err != nil {
		return nil, graspsync.RelayURL{}, err
	}
	at, err := graspsync.ParseRelayURL(url)
	return &names{transport, name, at, dialed}, name, err
}

// batchWindow is short, because the default wait before each layer would dominate the measured
// time.
const batchWindow = 50 * time.Millisecond

// asNew describes batchWindow in tables.
const asNew = "; BatchWindow is 50 ms, all else as New has it"

// runOurs returns when the manager is in sync and has no more work.
func runOurs(ctx context.Context, a *attempt) error {
	identity, err := nip34.ParseIdentity(ourHost)
	if err != nil {
		return err
	}
	var read atomic.Int64
	used := cputime.Used()
	transport, relay, err := newNames(a.url, func() { read.CompareAndSwap(0, int64(cputime.Used()-used)) })
	if err != nil {
		return err
	}
	cfg := relaysync.Config{Bootstrap: []graspsync.RelayURL{relay}, BatchWindow: batchWindow}
	var last batches
	if a.resync {
		cfg.Observe = last.observe
	}
	m, err := relaysync.New(a.store, transport, identity, cfg)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Run(running)
	}()
	defer func() {
		stop()
		<-ended
		a.read = time.Duration(read.Load())
	}()
	inSync := func() bool {
		s := m.Status()
		return s.Synced && a.store.left.Load() <= 0 && s.Repos == a.data.repos && s.Roots == a.data.roots
	}
	if err := eventually(ctx, inSync); err != nil || !a.resync {
		return err
	}
	used = cputime.Used()
	if err := m.Resync(ctx, relay); err != nil {
		return err
	}
	confirmed := last.n.Load()
	err = eventually(ctx, func() bool {
		return last.n.Load() > confirmed && time.Since(time.Unix(0, last.at.Load())) > quiet && inSync()
	})
	a.pass = time.Duration(last.used.Load()) - used
	return err
}

// quiet is the time without a finished batch after which no more batches are expected.
const quiet = time.Second

// batches are the number of finished batches, and time and used CPU time at the end of the last
// one.
type batches struct{ n, at, used atomic.Int64 }

func (b *batches) observe(o relaysync.Observation) {
	if o.Is == relaysync.BatchConfirmed {
		b.used.Store(int64(cputime.Used()))
		b.at.Store(time.Now().UnixNano())
		b.n.Add(1)
	}
}

func eventually(ctx context.Context, so func() bool) error {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			if so() {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// relayStore adapts a store to go-nostr.
type relayStore struct{ *store }

var _ nostr.RelayStore = relayStore{}

func (s relayStore) Publish(ctx context.Context, ev nostr.Event) error {
	parsed, err := graspsync.ParseEvent(&ev)
	if err != nil {
		return err
	}
	out, err := s.Save(ctx, []graspsync.Incoming{{Event: parsed}})
	if err != nil {
		return err
	}
	return out[0].Err
}

func (s relayStore) QuerySync(ctx context.Context, f nostr.Filter) (found []*nostr.Event, err error) {
	for ev, err := range s.Events(ctx, f) {
		if err != nil {
			return nil, err
		}
		found = append(found, ev.Event)
	}
	return found, nil
}

func (s relayStore) QueryEvents(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	found, err := s.QuerySync(ctx, f)
	if err != nil {
		return nil, err
	}
	ch := make(chan *nostr.Event, len(found))
	for _, ev := range found {
		ch <- ev
	}
	close(ch)
	return ch, nil
}

func runNegentropySync(ctx context.Context, a *attempt) error {
	return nip77.NegentropySync(ctx, relayStore{a.store}, a.url, nostr.Filter{}, nip77.Down)
}

func runPaginator(ctx context.Context, a *attempt) error {
	pool := nostr.NewSimplePool(ctx)
	target := relayStore{a.store}
	for ev := range pool.PaginatorWithInterval(0)(ctx, []string{a.url}, nostr.Filter{}) {
		if err := target.Publish(ctx, *ev.Event); err != nil {
			return err
		}
	}
	return nil
}
