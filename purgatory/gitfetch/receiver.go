package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch/internal/upload"
	"github.com/graspsync/graspsync/purgatory/internal/fsck"
)

// receiver has packs sent by servers: into a file, few at a time, and within limits of bytes
// and time. It is safe for concurrent use.
type receiver struct {
	// set by newReceiver, read-only
	cfg    Config
	faults fsck.Rules
	client *upload.Client
	disk   *storage
	came   *limit.Daily[string] // bytes, by client address

	fetching *limit.Slots // places of fetches that wait for a server
}

func newReceiver(cfg Config, faults fsck.Rules, client *http.Client, disk *storage) *receiver {
	return &receiver{
		cfg: cfg, faults: faults, disk: disk, came: limit.NewDaily[string](maxRemembered),
		client: &upload.Client{
			HTTP: client, UserAgent: cfg.UserAgent, Answered: cfg.Dialer.Proven,
			Limits: upload.Limits{
				AdvertBytes: cfg.fixed.MaxAdvertBytes, AdvertRefs: cfg.fixed.MaxAdvertRefs,
				PackBytes: cfg.MaxPackBytes, PackObjects: cfg.MaxPackObjects,
			},
		},
		fetching: halves(cfg.MaxFetches),
	}
}

// maxRemembered is the number of addresses, and of owners, whose bytes of a day are counted.
const maxRemembered = 50_000

// peer learns which address a request goes to.
type peer struct{ addr atomic.Value }

// trace makes requests of a context report the address that they go to.
func (p *peer) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		if at, err := netip.ParseAddrPort(c.Conn.RemoteAddr().String()); err == nil {
			p.addr.Store(limit.Client(at.Addr()).ID)
		}
	}})
}

// address returns the IPv4 address, or the /64 of an IPv6 address, because that may be one host; empty if
// there was no connection.
func (p *peer) address() string {
	at, _ := p.addr.Load().(string)
	return at
}

// maxRequests is how many requests one fetch makes, redirects and all.
const maxRequests = 4

// allow gives a fetch its time, which ends it when it is over: Timeout, and more if enough comes. done must be
// called once.
func (r *receiver) allow(m *meter, end context.CancelCauseFunc) (done func()) {
	m.clock = newClock(r.cfg.fixed.Timeout, func(took time.Duration) time.Duration {
		more := r.cfg.earned(m.n.Load()) - took
		if more < time.Second { // it would come to nothing
			end(fmt.Errorf("%w: %w", purgatory.ErrSlow, &LimitError{Limit: "seconds", Most: int64(took / time.Second)}))
			return 0
		}
		return more
	})
	return m.clock.end
}

// receive writes the pack that a server sends for a repository to a file.
func (r *receiver) receive(ctx context.Context, dir string, to *spool, from graspsync.CloneURL, wants, haves []nip34.ObjectID, format nip34.ObjectFormat, m *meter) error {
	place, err := r.fetching.Acquire(ctx, limit.Stranger{ID: ownerOf(dir)}, 1)
	if err != nil {
		return fmt.Errorf("waiting to ask a server: %w", err)
	}
	defer place.Release()
	m.clock.run()
	defer m.clock.stop()
	var p peer
	ctx = p.trace(ctx)
	defer func() {
		if at := p.address(); at != "" {
			r.came.Add(at, m.n.Load())
		}
	}()
	server, err := r.client.Discover(ctx, from, m)
	if err != nil {
		return err
	}
	if r.came.Today(p.address()).Units >= r.cfg.MaxAddressDay {
		return &LimitError{Limit: "bytes of one address a day", Most: r.cfg.MaxAddressDay}
	}
	if server.Format != format {
		return fmt.Errorf("%w: %s, ours %s", ErrFormat, server.Format, format)
	}
	left := slices.DeleteFunc(slices.Clone(wants), func(id nip34.ObjectID) bool { return !server.Serves(id) })
	if len(left) == 0 {
		return &MissingError{ID: wants[0]}
	}
	requests := maxRequests - server.Requests
	if requests <= 0 {
		return &LimitError{Limit: "requests", Most: maxRequests}
	}
	return r.ask(ctx, to, server, left, haves, requests, m)
}

// ask asks a server for a pack, and again without an object that it says it does
// not serve. If it may lack more of them than it can be asked for one by one, it is
// asked for its tips instead, and for those of them that are wanted.
func (r *receiver) ask(ctx context.Context, to *spool, s *upload.Server, left, haves []nip34.ObjectID, requests int, m *meter) error {
	for {
		err := r.client.Fetch(ctx, s, left, haves, to, m)
		requests--
		var missing *MissingError
		if !errors.As(err, &missing) || !slices.Contains(left, missing.ID) {
			return err
		}
		if err := to.empty(); err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(id nip34.ObjectID) bool { return id == missing.ID })
		if len(left) > requests && requests > 1 && s.Version == 2 {
			if err := r.client.ListTips(ctx, s, m); err != nil {
				return err
			}
			requests--
			left = slices.DeleteFunc(left, func(id nip34.ObjectID) bool { _, ok := s.Tips[id]; return !ok })
		}
		if len(left) == 0 || requests == 0 {
			return err
		}
	}
}

// cause prefers why a context was ended over that it was.
func cause(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if why := context.Cause(ctx); !errors.Is(err, why) {
		return fmt.Errorf("%w (%w)", why, err)
	}
	return err
}

// watch ends a transfer that is too slow, or that fills the disk.
func (r *receiver) watch(ctx context.Context, end context.CancelCauseFunc, m *meter, dir string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		rate := time.NewTicker(max(r.cfg.fixed.RateWindow/rateSteps, 1))
		defer rate.Stop()
		disk := time.NewTicker(diskPeriod)
		defer disk.Stop()
		seen := rater{least: float64(r.cfg.fixed.MinRate) * r.cfg.fixed.RateWindow.Seconds()}
		for {
			select {
			case <-rate.C:
				if n, slow := seen.step(m.n.Load(), m.waiting.Load()); slow {
					end(fmt.Errorf("%w: %d bytes in %v", ErrSlow, n, r.cfg.fixed.RateWindow))
					return
				}
			case <-disk.C:
				if err := r.disk.check(dir); err != nil {
					end(err)
					return
				}
			case <-done:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// The disk is looked at every second, the rate this often in each window.
const (
	diskPeriod = time.Second
	rateSteps  = 6
)
