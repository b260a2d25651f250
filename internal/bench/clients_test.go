package main

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip77"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// client is one way to catch up. run returns when it believes to have everything,
// or an error; it may hang. All connections are cut soon afterwards.
type client struct {
	name   string
	relay  string // which one the other relay is
	theirs bool
	run    func(ctx context.Context, url string, s *store) error
}

func clients() []client {
	return []client{
		{"ours/nip77", cmdNIP77, false, runOurs},
		{"ours/pages", cmdPages, false, runOurs},
		{"gonostr/NegentropySync", cmdNIP77, true, runNegentropySync},
		{"gonostr/Paginator", cmdPages, true, runPaginator},
	}
}

// store is an empty memstore that notices when it has got as many events as there
// are.
type store struct {
	*memstore.Store
	left atomic.Int64
	full chan time.Time // one slot
}

func newStore(total int) *store {
	s := &store{Store: memstore.New(), full: make(chan time.Time, 1)}
	s.left.Store(int64(total))
	return s
}

func (s *store) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	out, err := s.Store.Save(ctx, events)
	for _, o := range out {
		if o.Result == graspsync.Stored && s.left.Add(-1) == 0 {
			s.full <- time.Now()
		}
	}
	return out, err
}

// batchWindow is short, since the default would be most of what is measured.
const batchWindow = 50 * time.Millisecond

// runOurs ends when the manager says that it is in sync, and has nothing left to do.
func runOurs(ctx context.Context, url string, s *store) (err error) {
	identity, err := nip34.ParseIdentity(ourHost)
	if err != nil {
		return err
	}
	relay, err := graspsync.ParseRelayURL(url)
	if err != nil {
		return err
	}
	dialer, err := egress.NewDialer(egress.Config{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPlaintext: true,
	})
	if err != nil {
		return err
	}
	transport, err := wstransport.New(wstransport.Config{Dialer: dialer})
	if err != nil {
		return err
	}
	m, err := relaysync.New(s, transport, identity, relaysync.Config{
		Bootstrap: []graspsync.RelayURL{relay}, AllowPlaintext: true, Times: relaysync.Times{BatchWindow: batchWindow},
	})
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
	}()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			if m.Status().Synced && s.left.Load() <= 0 {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// relayStore is a store as go-nostr takes one.
type relayStore struct{ *store }

var _ nostr.RelayStore = relayStore{}

func (s relayStore) Publish(ctx context.Context, ev nostr.Event) error {
	out, err := s.Save(ctx, []graspsync.Incoming{{Event: eventtest.Of(&ev)}})
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

func runNegentropySync(ctx context.Context, url string, s *store) error {
	return nip77.NegentropySync(ctx, relayStore{s}, url, nostr.Filter{}, nip77.Down)
}

func runPaginator(ctx context.Context, url string, s *store) error {
	pool := nostr.NewSimplePool(ctx)
	target := relayStore{s}
	for ev := range pool.PaginatorWithInterval(0)(ctx, []string{url}, nostr.Filter{}) {
		if err := target.Publish(ctx, *ev.Event); err != nil {
			return err
		}
	}
	return nil
}

// sample is what one catch-up took.
type sample struct {
	saved, done   time.Duration
	cpu, relayCPU time.Duration
	in, out       int64 // bytes from and to the relay
}

var (
	errHung       = errors.New("hung")
	errIncomplete = errors.New("ended without some event")
)

// catchUp runs a client from an empty store. An error wraps errHung or errIncomplete
// if it is to be tried again.
func catchUp(tb testing.TB, r *remote, c client, limit time.Duration) (sample, error) {
	tb.Helper()
	r.be(tb, c.relay)
	s := newStore(r.total)
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	result := make(chan error, 1)
	timer := time.NewTimer(limit)
	defer timer.Stop()

	var m sample
	start, used := time.Now(), cpuTime()
	go func() { result <- c.run(ctx, r.url(), s) }()
	var err error
	select {
	case err = <-result:
	case <-timer.C:
		return m, errHung
	}
	m.done, m.cpu = time.Since(start), cpuTime()-used
	m.in, m.out, m.relayCPU = r.usage(tb)
	cancel()
	if err != nil {
		return m, err
	}
	if s.Len() < r.total {
		return m, errIncomplete
	}
	m.saved = (<-s.full).Sub(start)
	r.check(tb, s)
	return m, nil
}

// check asserts that the store has the relay's events, unchanged, and no others.
func (r *remote) check(tb testing.TB, s *store) {
	tb.Helper()
	require.Equal(tb, r.total, s.Len())
	for ev, err := range s.Events(tb.Context(), nostr.Filter{}) {
		require.NoError(tb, err)
		require.True(tb, r.ids[ev.ID.String()], "foreign event %s", ev)
		require.True(tb, ev.CheckID(), "changed event %s", ev)
	}
}
