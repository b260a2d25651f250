package gitfetch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch/internal/upload"
)

// Errors of a fetch that a caller can act upon.
var (
	// ErrNotFound: the server has no such repository.
	ErrNotFound = upload.ErrNotFound
	// ErrAuth: the server wants credentials, which are never given.
	ErrAuth = upload.ErrAuth
	// ErrFormat: the repositories hash their objects differently.
	ErrFormat = errors.New("repositories have different object formats")
	// ErrSlow: less came than Config.MinRate over Config.RateWindow.
	ErrSlow = errors.New("server is too slow")
	// ErrIncomplete: a server sent objects without others that they need.
	ErrIncomplete = errors.New("server does not have all that an object needs")
	// ErrUnwanted: a server sent objects, and nothing of what it was asked for.
	ErrUnwanted = errors.New("server sent nothing that was asked for")
	// ErrDisk: less than Config.MinFreeDisk is free.
	ErrDisk = errors.New("not enough free disk")
)

// MissingError is returned, wrapped, when a server says that it does not serve an
// object.
type MissingError = upload.MissingError

// LimitError is returned, wrapped, when a server goes beyond a limit.
type LimitError = upload.LimitError

// Fetcher fetches from servers into bare repositories. It is made by [New] and may
// be used concurrently, but for one repository only under its lock.
type Fetcher struct {
	cfg      Config
	git      string
	version  string
	http     *http.Client
	client   *upload.Client
	children *slots
	copies   copies        // of objects that another repository of ours has
	unshared copies        // of packs that another one has as well
	fetching chan struct{} // and one for each fetch that waits for a server
	long     chan struct{} // and one for each of them that takes longer than Timeout
	epoch    string        // in the names of quarantines: whose they are
	names    atomic.Uint64
	free     func(dir string) (uint64, error) // of the disk
	files    files

	maintaining chan struct{} // a slot for each repository that is maintained
	mu          sync.Mutex
	// guarded by mu
	upkept map[string]bool             // their folders
	parts  map[string][]nip34.ObjectID // what was promoted to a repository, and no ref has yet

	addresses *addresses

	// For tests, nil otherwise: what was given to the disk, what is about to appear
	// in a repository, which pack was made there, which child is about to start.
	synced  func(path string)
	placed  func(path string)
	packed  func(name string)
	started func(cmd *exec.Cmd)
}

var (
	_ purgatory.GitFetcher = (*Fetcher)(nil)
	_ purgatory.Quarantine = (*Quarantine)(nil)
)

// New returns a Fetcher. The error wraps [ErrConfig] and names every field that
// can't be used, or [ErrGit] if git is missing or too old.
func New(ctx context.Context, cfg Config) (*Fetcher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	version, build, err := checkVersion(ctx, cfg.Git, versionWithin)
	if err != nil {
		return nil, err
	}
	if weakHash(build) {
		cfg.Logger.Warn("git was built with a SHA-1 that does not detect collisions", "version", version)
	}
	f := &Fetcher{
		cfg: cfg, git: cfg.Git, version: version,
		http:     cfg.Dialer.HTTPClient(0),
		children: newSlots(cfg.MaxChildren),
		fetching: make(chan struct{}, cfg.MaxFetches),
		long:     make(chan struct{}, max(1, cfg.MaxFetches/4)),
		epoch:    newEpoch(),

		addresses: &addresses{most: cfg.MaxAddressDay},

		maintaining: make(chan struct{}, maxUpkeep), upkept: make(map[string]bool), parts: make(map[string][]nip34.ObjectID),

		copies: copies{most: maxCopies}, unshared: copies{most: maxCopies},

		free:  disk.Free,
		files: osFiles{},
	}
	f.client = &upload.Client{
		HTTP: f.http, UserAgent: cfg.UserAgent, Answered: cfg.Dialer.Proven,
		Limits: upload.Limits{
			AdvertBytes: cfg.fixed.MaxAdvertBytes, AdvertRefs: cfg.fixed.MaxAdvertRefs,
			PackBytes: cfg.MaxPackBytes, PackObjects: cfg.fixed.MaxPackObjects,
		},
	}
	return f, nil
}

// GitVersion is what git says of itself.
func (f *Fetcher) GitVersion() string { return f.version }

// Close ends idle connections.
func (f *Fetcher) Close() { f.http.CloseIdleConnections() }

// maxRequests is how many requests one fetch makes, redirects and all.
const maxRequests = 4

// Fetch implements [purgatory.Quarantine]. It makes at most four requests. Objects
// that the server does not serve are left out. After an error the quarantine has
// what it had before.
func (q *Quarantine) Fetch(ctx context.Context, from graspsync.URL, ids []nip34.ObjectID) (int64, error) {
	if len(ids) == 0 {
		return 0, errNothing
	}
	f := q.f
	if err := f.checkDisk(q.dir); err != nil {
		return 0, err
	}
	before, err := q.content()
	if err != nil {
		return 0, err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	m := &meter{}
	defer f.allow(m, end)()
	stop := f.watch(ctx, end, m, q.dir)
	err = f.fetch(ctx, q, from, ids, m)
	if err == nil {
		err = q.useful(ctx, before, ids)
	}
	err = cause(ctx, err)
	stop()
	if err != nil {
		err = errors.Join(classified(err, from), q.restore(before))
	}
	return m.n.Load(), err
}

// allow gives a fetch its time, which ends it when it is over: Timeout, and more if enough
// comes and not too many others take long. done must be called once.
func (f *Fetcher) allow(m *meter, end context.CancelCauseFunc) (done func()) {
	long := false
	m.clock = newClock(f.cfg.Timeout, func(took time.Duration) time.Duration {
		more := f.cfg.earned(m.n.Load()) - took
		if more < time.Second { // it would come to nothing
			end(&LimitError{Limit: "seconds", Most: int64(took / time.Second)})
			return 0
		}
		if !long {
			select {
			case f.long <- struct{}{}:
				long = true
			default:
				end(errCrowded)
				return 0
			}
		}
		return more
	})
	return func() {
		m.clock.end()
		if long {
			<-f.long
		}
	}
}

var errNothing = errors.New("nothing was asked for")

// errCrowded ends a fetch that would take long while others do. It is not the server's
// fault, and it may be asked again.
var errCrowded = errors.New("too many fetches take long")

// classified adds what the error means to those who do not know us. A server is broken
// by what holds for all its repositories: that one is missing, or redirected to another
// server that is broken, is what any stranger can have it say.
func classified(err error, from graspsync.URL) error {
	var dns *net.DNSError
	var missing *MissingError
	var limit *LimitError
	var cert *tls.CertificateVerificationError
	var busy *upload.BusyError
	switch {
	case errors.As(err, &busy):
		if at, perr := graspsync.ParseURL(busy.At.String(), graspsync.HTTPSchemes); perr == nil && at.HostPort == from.HostPort {
			return fmt.Errorf("%w: %w", &purgatory.BusyError{After: busy.After}, err)
		}
	case errors.As(err, &missing), errors.Is(err, ErrIncomplete), errors.Is(err, ErrUnwanted), errors.Is(err, ErrNotFound),
		errors.Is(err, ErrAuth):
		return fmt.Errorf("%w: %w", purgatory.ErrNotServed, err)
	case errors.As(err, &limit):
		return fmt.Errorf("%w: %w", purgatory.ErrLimit, err)
	case elsewhere(err, from):
	case errors.As(err, &dns) && dns.IsNotFound, errors.As(err, &cert),
		errors.Is(err, egress.ErrAddress), errors.Is(err, egress.ErrOwn), errors.Is(err, egress.ErrPlaintext):
		return fmt.Errorf("%w: %w", purgatory.ErrBroken, err)
	}
	return err
}

// elsewhere reports whether a request failed at another server than it was made to.
func elsewhere(err error, from graspsync.URL) bool {
	if errors.Is(err, egress.ErrRedirect) {
		return true
	}
	var failed *url.Error
	if !errors.As(err, &failed) {
		return false
	}
	at, err := graspsync.ParseURL(failed.URL, graspsync.HTTPSchemes)
	return err != nil || at.HostPort != from.HostPort
}

// fetch has what a server sends in the quarantine. Waiting for others is not the
// server's fault, and its time does not count: neither until it may be asked, nor until
// git may run. What a server sends is gathered before git is run: however slow it is,
// it keeps no child from others.
func (f *Fetcher) fetch(ctx context.Context, q *Quarantine, from graspsync.URL, wants []nip34.ObjectID, m *meter) error {
	haves, format, err := f.tips(ctx, q.dir)
	if err != nil {
		return err
	}
	if parts := f.promoted(q.dir); len(parts) > 0 {
		there, _, err := f.present(ctx, q.dir, nil, parts) // it may have been made anew
		if err != nil {
			return err
		}
		haves = append(haves, there...)
	}
	pack, err := newSpool(f.files, filepath.Join(q.path(), fmt.Sprintf("spool-%d", f.names.Add(1))))
	if err != nil {
		return err
	}
	defer pack.close()
	if err := f.receive(ctx, pack, from, wants, haves, format, m); err != nil {
		return err
	}
	release, err := f.children.acquire(ctx, q.dir, true)
	if err != nil {
		return err
	}
	defer release()
	m.clock.run()
	return f.index(ctx, q, pack)
}

// A repository that comes in parts has the earlier ones before a ref does: servers are told
// of so many of them, for so many repositories.
const (
	maxParts     = 64
	maxPartsDirs = 256
)

// took notes what was promoted, with all that it needs. It is kept from garbage collection
// until letGo.
func (f *Fetcher) took(dir string, ids []nip34.ObjectID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.parts[dir]; !known && len(f.parts) >= maxPartsDirs {
		for other := range f.parts { // any: what is not told of is sent again
			delete(f.parts, other)
			break
		}
	}
	all := append(f.parts[dir], ids...)
	f.parts[dir] = slices.Clone(all[max(0, len(all)-maxParts):])
}

func (f *Fetcher) letGo(dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.parts, dir)
}

func (f *Fetcher) promoted(dir string) []nip34.ObjectID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.parts[dir])
}

// receive has a pack in a file, or an error.
func (f *Fetcher) receive(ctx context.Context, to *spool, from graspsync.URL, wants, haves []nip34.ObjectID, format nip34.ObjectFormat, m *meter) error {
	release, err := acquire(ctx, f.fetching)
	if err != nil {
		return err
	}
	defer release()
	m.clock.run()
	defer m.clock.stop()
	var p peer
	ctx = p.trace(ctx)
	defer func() { f.addresses.add(p.address(), m.n.Load(), time.Now()) }()
	server, err := f.client.Discover(ctx, from, m)
	if err != nil {
		return err
	}
	if err := f.addresses.check(p.address(), time.Now()); err != nil {
		return err
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
	return f.ask(ctx, to, server, left, haves, requests, m)
}

// ask asks a server for a pack, and again without an object that it says it does
// not serve. If it may lack more of them than it can be asked for one by one, it is
// asked for its tips instead, and for those of them that are wanted.
func (f *Fetcher) ask(ctx context.Context, to *spool, s *upload.Server, left, haves []nip34.ObjectID, requests int, m *meter) error {
	for {
		err := f.client.Fetch(ctx, s, left, haves, to, m)
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
