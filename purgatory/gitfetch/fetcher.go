package gitfetch

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	// ErrSlow: less than 1 KiB a second came for 30 s.
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
	git      *program
	disk     *storage
	objects  *objectReader
	refs     *refStore
	parts    parts
	version  string
	http     *http.Client
	client   *upload.Client
	copies   copies        // of objects that another repository of ours has
	unshared copies        // of packs that another one has as well
	fetching chan struct{} // and one for each fetch that waits for a server
	long     chan struct{} // and one for each of them that takes longer than Timeout
	epoch    string        // in the names of quarantines: whose they are
	names    atomic.Uint64

	maintaining chan struct{} // a slot for each repository that is maintained
	mu          sync.Mutex
	// guarded by mu
	upkept map[string]bool // their folders

	addresses *addresses

	packed func(name string) // for tests, nil otherwise: which pack was made
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
	git := &program{path: cfg.Git, memory: cfg.MaxMemory, children: newSlots(cfg.MaxChildren)}
	storage := &storage{files: osFiles{}, free: disk.Free, least: cfg.MinFreeDisk}
	reader := &objectReader{git: git, disk: storage}
	f := &Fetcher{
		cfg: cfg, version: version,
		git: git, disk: storage, objects: reader,
		refs:     &refStore{git: git, disk: storage, objects: reader},
		parts:    parts{of: make(map[string][]nip34.ObjectID)},
		http:     cfg.Dialer.HTTPClient(0),
		fetching: make(chan struct{}, cfg.MaxFetches),
		long:     make(chan struct{}, max(1, cfg.MaxFetches/4)),
		epoch:    newEpoch(),

		addresses: &addresses{most: cfg.MaxAddressDay},

		maintaining: make(chan struct{}, maxUpkeep), upkept: make(map[string]bool),

		copies: copies{most: maxCopies}, unshared: copies{most: maxCopies},
	}
	f.client = &upload.Client{
		HTTP: f.http, UserAgent: cfg.UserAgent, Answered: cfg.Dialer.Proven,
		Limits: upload.Limits{
			AdvertBytes: cfg.fixed.MaxAdvertBytes, AdvertRefs: cfg.fixed.MaxAdvertRefs,
			PackBytes: cfg.MaxPackBytes, PackObjects: cfg.MaxPackObjects,
		},
	}
	return f, nil
}

// GitVersion is what git says of itself.
func (f *Fetcher) GitVersion() string { return f.version }

// Close ends idle connections.
func (f *Fetcher) Close() { f.http.CloseIdleConnections() }

// Collector returns the metrics: which git is run. The caller registers it on a registry
// of its own. namespace goes before their names, without an underscore.
func (f *Fetcher) Collector(namespace string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: "git", Name: "info",
		Help:        "Always 1; the version of git that is run is the label.",
		ConstLabels: prometheus.Labels{"version": graspsync.Printable(strings.TrimPrefix(f.version, "git version "))},
	}, func() float64 { return 1 })
}

// Probe implements [purgatory.GitFetcher]. The stamp is of the packs and their marks, and of
// the folders of loose objects.
func (f *Fetcher) Probe(ctx context.Context, dir string, ids []nip34.ObjectID) (map[nip34.ObjectID]purgatory.ObjectKind, string, error) {
	stamp, err := stampOf(f.disk.files, dir)
	if err != nil {
		return nil, "", fmt.Errorf("looking for objects: %w", err)
	}
	if len(ids) == 0 {
		return nil, stamp, nil
	}
	kinds, err := f.objects.kinds(ctx, dir, nil, ids)
	return kinds, stamp, err
}

// Missing implements [purgatory.GitFetcher]. To have a commit is not to have its
// history: what can be reached is walked. What is there and no ref has is kept from
// garbage collection until Cleanup: refs are moved by what we say here.
func (f *Fetcher) Missing(ctx context.Context, dir string, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	kept, err := f.objects.kept(dir, len(ids[0].String())/2)
	if err != nil {
		return nil, fmt.Errorf("looking for objects: %w", err)
	}
	missing, unheld, err := f.objects.missing(ctx, dir, nil, ids, kept)
	if err != nil || unheld == 0 {
		return missing, err
	}
	q, err := f.newQuarantine(dir)
	if err != nil {
		return nil, err
	}
	q.complete = without(ids, missing)
	if err := q.Promote(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("keeping objects: %w", err), q.Discard())
	}
	return missing, nil
}

// Quarantine implements [purgatory.GitFetcher].
func (f *Fetcher) Quarantine(_ context.Context, dir string) (purgatory.Quarantine, error) {
	return f.newQuarantine(dir)
}

func (f *Fetcher) newQuarantine(dir string) (*Quarantine, error) {
	if err := f.sweep(dir); err != nil { // or a crash loop would fill the disk
		return nil, err
	}
	q := &Quarantine{f: f, dir: dir, name: fmt.Sprintf("%s%s-%d", quarantinePrefix, f.epoch, f.names.Add(1))}
	for _, p := range []string{q.path(), q.packs()} {
		if err := f.disk.files.Mkdir(p, 0o700); err != nil {
			return nil, fmt.Errorf("making a quarantine: %w", errors.Join(err, q.Discard()))
		}
	}
	return q, nil
}

func newEpoch() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// sweep removes the quarantines that earlier processes left in a repository.
func (f *Fetcher) sweep(dir string) error {
	entries, err := f.disk.files.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("sweeping quarantines: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), quarantinePrefix) && !strings.HasPrefix(e.Name(), quarantinePrefix+f.epoch) {
			errs = append(errs, f.disk.files.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Take implements [purgatory.GitFetcher]. What lies there was indexed and checked when it
// came; what it needs is walked as after a fetch.
func (f *Fetcher) Take(ctx context.Context, dir, from string, ids []nip34.ObjectID) error {
	q, err := f.newQuarantine(dir)
	if err != nil {
		return err
	}
	q.exact = true
	if err := q.take(ctx, from, ids); err != nil {
		return errors.Join(fmt.Errorf("taking objects: %w", err), q.Discard())
	}
	if err := q.Promote(ctx); err != nil {
		return errors.Join(fmt.Errorf("taking objects: %w", err), q.Discard())
	}
	return nil
}

// Cleanup implements [purgatory.GitFetcher]. It is called when nothing has gone wrong as well:
// young locks may be those of an operator.
func (f *Fetcher) Cleanup(_ context.Context, dir string) error {
	_, err := unlock(f.disk.files, dir, staleAfter, staleAfter)
	f.parts.letGo(dir)
	if err := errors.Join(err, f.sweep(dir), sweepObjects(f.disk.files, dir, time.Now()), release(f.disk.files, dir)); err != nil {
		return fmt.Errorf("tidying a repository: %w", err)
	}
	return nil
}

// Repair implements [purgatory.GitFetcher]. Locks of refs are nobody's, since we have that of
// the repository; but who packs refs, as an operator may, has no other one than that of
// packed-refs, for a moment. To take it away would lose refs: it is given that moment.
func (f *Fetcher) Repair(ctx context.Context, dir string) error {
	if info, err := os.Lstat(filepath.Join(dir, "packed-refs.lock")); err == nil {
		select {
		case <-time.After(packingMost - time.Since(info.ModTime())):
		case <-ctx.Done():
			return fmt.Errorf("mending a repository: %w", context.Cause(ctx))
		}
	}
	_, err := unlock(f.disk.files, dir, 0, packingMost)
	if err := errors.Join(err, f.sweep(dir), sweepObjects(f.disk.files, dir, time.Now())); err != nil {
		return fmt.Errorf("mending a repository: %w", err)
	}
	return nil
}

// packingMost is how long it takes at most to pack refs: twice as long as git waits for it.
const packingMost = 2 * time.Second

// Maintain implements [purgatory.GitFetcher]. New packs are made beside the old ones,
// without the lock; under it those go that are not needed any more, after what was named
// since that only they have was packed as well.
func (f *Fetcher) Maintain(ctx context.Context, how purgatory.Maintenance) (purgatory.Maintained, error) {
	release, err := acquire(ctx, f.maintaining)
	if err != nil {
		return purgatory.Maintained{}, err
	}
	defer release()
	u := &upkeep{f: f, how: how, now: time.Now()}
	if err := u.run(ctx); err != nil {
		return u.done, fmt.Errorf("maintaining a repository: %w", err)
	}
	return u.done, nil
}

// enterUpkeep notes that a repository is maintained: two at once would take each
// other's work for what was there before.
func (f *Fetcher) enterUpkeep(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.upkept[dir] {
		return fmt.Errorf("%w: it is being maintained", purgatory.ErrInUse)
	}
	f.upkept[dir] = true
	return nil
}

func (f *Fetcher) leaveUpkeep(dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.upkept, dir)
}

// Weigh implements [purgatory.GitFetcher].
func (f *Fetcher) Weigh(ctx context.Context, dir string, id nip34.ObjectID, but []nip34.ObjectID) (int64, error) {
	return f.objects.weigh(ctx, dir, id, but)
}

// Format returns how a repository hashes its objects.
func (f *Fetcher) Format(ctx context.Context, dir string) (nip34.ObjectFormat, error) {
	return f.objects.format(ctx, dir)
}

// Refs implements [purgatory.GitFetcher].
func (f *Fetcher) Refs(ctx context.Context, dir string) (purgatory.Refs, error) {
	return f.refs.read(ctx, dir)
}

// UpdateRefs implements [purgatory.GitFetcher].
func (f *Fetcher) UpdateRefs(ctx context.Context, dir string, changes []purgatory.RefChange, head nip34.RefName) error {
	return f.refs.align(ctx, dir, changes, head)
}

// maxRequests is how many requests one fetch makes, redirects and all.
const maxRequests = 4

// allow gives a fetch its time, which ends it when it is over: Timeout, and more if enough
// comes and not too many others take long. done must be called once.
func (f *Fetcher) allow(m *meter, end context.CancelCauseFunc) (done func()) {
	long := false
	m.clock = newClock(f.cfg.fixed.Timeout, func(took time.Duration) time.Duration {
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

// errCrowded ends a fetch that would take long while others do. It is not the server's
// fault, and it may be asked again.
var errCrowded = errors.New("too many fetches take long")

// classified adds what the error means to those who do not know us. A server is broken
// by what holds for all its repositories: that one is missing, or redirected to another
// server that is broken, is what any stranger can have it say.
func classified(err error, from graspsync.CloneURL) error {
	var dns *net.DNSError
	var missing *MissingError
	var limit *LimitError
	var cert *tls.CertificateVerificationError
	var busy *upload.BusyError
	switch {
	case errors.As(err, &busy):
		if at, perr := graspsync.ParseCloneURL(busy.At.String()); perr == nil && at.HostPort() == from.HostPort() {
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
func elsewhere(err error, from graspsync.CloneURL) bool {
	if errors.Is(err, egress.ErrRedirect) {
		return true
	}
	var failed *url.Error
	if !errors.As(err, &failed) {
		return false
	}
	at, err := graspsync.ParseCloneURL(failed.URL)
	return err != nil || at.HostPort() != from.HostPort()
}

// fetch has what a server sends in the quarantine. Waiting for others is not the
// server's fault, and its time does not count: neither until it may be asked, nor until
// git may run. What a server sends is gathered before git is run: however slow it is,
// it keeps no child from others.
func (f *Fetcher) fetch(ctx context.Context, q *Quarantine, from graspsync.CloneURL, wants []nip34.ObjectID, m *meter) error {
	haves, format, err := f.objects.tips(ctx, q.dir)
	if err != nil {
		return err
	}
	if parts := f.parts.promoted(q.dir); len(parts) > 0 {
		there, _, err := f.objects.present(ctx, q.dir, nil, parts) // it may have been made anew
		if err != nil {
			return err
		}
		haves = append(haves, there...)
	}
	pack, err := newSpool(f.disk.files, filepath.Join(q.path(), fmt.Sprintf("spool-%d", f.names.Add(1))))
	if err != nil {
		return err
	}
	defer pack.close()
	if err := f.receive(ctx, pack, from, wants, haves, format, m); err != nil {
		return err
	}
	release, err := f.git.children.acquire(ctx, q.dir, true)
	if err != nil {
		return err
	}
	defer release()
	m.clock.run()
	return q.index(ctx, pack)
}

// receive has a pack in a file, or an error.
func (f *Fetcher) receive(ctx context.Context, to *spool, from graspsync.CloneURL, wants, haves []nip34.ObjectID, format nip34.ObjectFormat, m *meter) error {
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

// watch ends a transfer that is too slow, or that fills the disk.
func (f *Fetcher) watch(ctx context.Context, end context.CancelCauseFunc, m *meter, dir string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		rate := time.NewTicker(max(f.cfg.fixed.RateWindow/rateSteps, 1))
		defer rate.Stop()
		disk := time.NewTicker(diskPeriod)
		defer disk.Stop()
		r := rater{least: float64(f.cfg.fixed.MinRate) * f.cfg.fixed.RateWindow.Seconds()}
		for {
			select {
			case <-rate.C:
				if n, slow := r.step(m.n.Load(), m.waiting.Load()); slow {
					end(fmt.Errorf("%w: %d bytes in %v", ErrSlow, n, f.cfg.fixed.RateWindow))
					return
				}
			case <-disk.C:
				if err := f.disk.check(dir); err != nil {
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
