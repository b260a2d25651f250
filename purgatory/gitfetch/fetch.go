package gitfetch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http/httptrace"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch/internal/upload"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/fsck"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

const (
	maxAddresses = 50_000
	userAgent    = "git/2.39 graspsync"
	// maxRequests is the maximum number of requests of a fetch, including redirects.
	maxRequests = 4
)

var errNothing = errors.New("no objects requested")

// Fetch implements [purgatory.GitFetcher]. It makes at most four requests.
func (f *Fetcher) Fetch(ctx context.Context, request purgatory.FetchRequest) error {
	if len(request.Want) == 0 {
		return errNothing
	}
	q := &Quarantine{f: f, dir: request.Dir, name: filepath.Base(request.Quarantine)}
	if err := f.disk.check(q.dir, 0); err != nil {
		return err
	}
	before, err := q.content()
	if err != nil {
		return err
	}
	err = q.fetch(ctx, request.From, request.Want, &upload.Meter{Total: request.Received})
	if err == nil {
		err = q.useful(ctx, request.Want)
	}
	if err != nil {
		err = errors.Join(classified(err, request.From), q.restore(before))
	}
	return err
}

// fetch fetches a pack into a file, and then indexes it into the quarantine, so that a slow server
// does not occupy a git child.
func (q *Quarantine) fetch(ctx context.Context, from graspsync.CloneURL, wants []nip34.ObjectID, m *upload.Meter) error {
	format, err := barerepo.Format(q.f.disk.files, q.dir)
	if err != nil {
		return err
	}
	haves, err := q.f.haves(ctx, q.dir)
	if err != nil {
		return err
	}
	pack, err := newSpool(q.f.disk.files, filepath.Join(q.Folder(), "spool-"+rand.Text()))
	if err != nil {
		return err
	}
	defer func() { _ = pack.Close() }() // it is unlinked
	place, err := q.f.fetching.Acquire(ctx, limit.Stranger{ID: ownerOf(q.dir)}, 1)
	if err != nil {
		return fmt.Errorf("waiting for a fetch slot: %w", err)
	}
	err = q.f.within(ctx, m, q.dir, func(ctx context.Context) error { return q.f.receive(ctx, pack, from, wants, haves, format, m) })
	place.Release()
	if err != nil {
		return err
	}
	release, err := q.f.git.acquire(ctx, q.dir)
	if err != nil {
		return err
	}
	defer release()
	return q.f.within(ctx, m, q.dir, func(ctx context.Context) error { return q.index(ctx, pack) })
}

func (f *Fetcher) receive(ctx context.Context, to *os.File, from graspsync.CloneURL, wants, haves []nip34.ObjectID, format nip34.ObjectFormat, m *upload.Meter) error {
	var peer string // IPv4 address of the server, or its IPv6 /64, because one host may own a /64
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		if at, err := netip.ParseAddrPort(c.Conn.RemoteAddr().String()); err == nil {
			peer = limit.Client(at.Addr()).ID
		}
	}})
	defer func() {
		if peer != "" {
			f.received.Add(peer, m.Bytes.Load())
		}
	}()
	server, err := f.client.Discover(ctx, from, m)
	if err != nil {
		return err
	}
	requests := maxRequests - server.Requests
	left := slices.DeleteFunc(slices.Clone(wants), func(id nip34.ObjectID) bool { return !server.Serves(id) })
	switch {
	case f.received.Today(peer).Units >= f.cfg.MaxAddressDay:
		return &LimitError{Limit: "bytes of one address a day", Most: f.cfg.MaxAddressDay}
	case server.Format != format:
		return fmt.Errorf("%w: %s, ours %s", ErrFormat, server.Format, format)
	case len(left) == 0:
		return &MissingError{ID: wants[0]}
	case requests <= 0:
		return &LimitError{Limit: "requests", Most: maxRequests}
	}
	return f.ask(ctx, to, server, left, haves, requests, m)
}

// ask requests a pack, again without each object that the server reports missing. If more objects
// are left than requests, only tips of the server are requested.
func (f *Fetcher) ask(ctx context.Context, to *os.File, s *upload.Server, left, haves []nip34.ObjectID, requests int, m *upload.Meter) error {
	for {
		err := f.client.Fetch(ctx, s, left, haves, to, m)
		requests--
		var missing *MissingError
		if !errors.As(err, &missing) || !slices.Contains(left, missing.ID) {
			return err
		}
		if err := empty(to); err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(id nip34.ObjectID) bool { return id == missing.ID })
		if len(left) > requests && requests > 1 && s.Version == 2 {
			if err := f.client.ListTips(ctx, s, m); err != nil {
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

// within calls do, and ends its context if it is too slow, takes too long or fills the disk.
func (f *Fetcher) within(ctx context.Context, m *upload.Meter, dir string, do func(context.Context) error) error {
	ctx, stop := f.watch(ctx, m, dir)
	defer stop()
	err := do(ctx)
	if why := context.Cause(ctx); err != nil && why != nil && !errors.Is(err, why) {
		err = fmt.Errorf("%w (%w)", why, err)
	}
	return err
}

func (f *Fetcher) watch(ctx context.Context, m *upload.Meter, dir string) (_ context.Context, stop func()) {
	ctx, end := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		period := max(min(time.Second, f.cfg.fixed.RateWindow/6), 1)
		tick := time.NewTicker(period)
		defer tick.Stop()
		began := time.Now()
		var seen []int64 // bytes at each tick while the server sends
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			bytes, took := m.Bytes.Load(), time.Since(began)
			if seen = append(seen, bytes); !m.Sending.Load() {
				seen = nil
			}
			err := f.disk.check(dir, 0)
			if took >= f.cfg.earned(bytes) {
				err = fmt.Errorf("%w: %w", purgatory.ErrSlow, &LimitError{Limit: "seconds", Most: int64(took / time.Second)})
			}
			if len(seen) > int(f.cfg.fixed.RateWindow/period) {
				if n := bytes - seen[0]; float64(n) < float64(f.cfg.fixed.MinRate)*f.cfg.fixed.RateWindow.Seconds() {
					err = fmt.Errorf("%w: %d bytes in %v", ErrSlow, n, f.cfg.fixed.RateWindow)
				}
				seen = seen[1:]
			}
			if err != nil {
				end(err)
				return
			}
		}
	}()
	return ctx, func() {
		end(nil)
		<-ended
	}
}

// newSpool creates an unlinked file for a received pack, of which nothing is left after a crash.
func newSpool(on files, path string) (*os.File, error) {
	file, err := on.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating a pack file: %w", err)
	}
	if err := on.Remove(path); err != nil {
		return nil, fmt.Errorf("creating a pack file: %w", errors.Join(err, file.Close()))
	}
	return file, nil
}

func empty(spool *os.File) error {
	_, err := spool.Seek(0, io.SeekStart)
	if err = errors.Join(err, spool.Truncate(0)); err != nil {
		return fmt.Errorf("truncating a pack file: %w", err)
	}
	return nil
}

// index indexes a pack by the rules of package fsck. The caller holds a slot for a child.
func (q *Quarantine) index(ctx context.Context, pack *os.File) error {
	memory, most := q.f.git.Memory.Part, q.f.cfg.MaxPackBytes
	_, err := q.f.faults.Index(pack, 0, most, q.name, func(c gitrun.Child) error {
		if c.Dir = q.dir; c.Args[0] == fsck.Command {
			c.Limits.Memory = memory
		}
		_, err := q.f.git.runNow(ctx, c)
		return err
	})
	var failed *gitrun.Error
	switch {
	case !errors.As(err, &failed):
	case strings.Contains(failed.Stderr, "did not receive expected object"), strings.Contains(failed.Stderr, "unresolved delta"):
		return fmt.Errorf("%w: %w", ErrIncomplete, err)
	case gitrun.OutOfMemory(failed.Stderr):
		return fmt.Errorf("%w: %w", &LimitError{Limit: "memory of git", Most: memory}, err)
	case strings.Contains(failed.Stderr, "pack exceeds maximum allowed size"):
		return fmt.Errorf("%w: %w", &LimitError{Limit: "pack bytes", Most: most}, err)
	}
	return err
}

// useful returns ErrUnwanted if no wanted object has come, because servers must not fill quarantines.
func (q *Quarantine) useful(ctx context.Context, ids []nip34.ObjectID) error {
	kinds, err := q.f.kinds(ctx, q.dir, gitrun.Only(q.name), ids)
	if err != nil || len(kinds) > 0 {
		return err
	}
	missing, err := q.Missing(ctx, ids)
	if err == nil && len(missing) == len(ids) {
		err = ErrUnwanted
	}
	return err
}
