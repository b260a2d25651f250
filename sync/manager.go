package sync

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/ownfeed"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// ErrNotReady is returned by Judge as long as it is not known what the Store holds.
var ErrNotReady = errors.New("the store has not been read yet")

// ErrRunning is returned by a second call of Run.
var ErrRunning = errors.New("already run")

// SyncManager keeps one relay in sync. Make one with [New]. All methods may be
// called concurrently.
type SyncManager struct {
	// set by New, read-only
	cfg       Config
	store     Store
	transport Transport
	identity  nip34.Identity
	index     *index
	feed      *feed
	ingest    *ingest
	sets      *sets
	health    *health.RelayHealthTracker
	report    *report
	inbox     mailbox[any]
	remember  *remember
	own       ownFeed
	ended     chan struct{} // closed when Run ends
	readable  chan struct{} // closed when ready

	ran      atomic.Bool
	ready    atomic.Bool // the Store was read once
	wg       sync.WaitGroup
	snapshot atomic.Pointer[Status]

	loop loop // owned by Run
}

// New returns a manager for the relay that is reached as identity and keeps its
// events in store. It starts nothing. The error wraps [ErrConfig] and names every
// argument and field that can't be used.
func New(store Store, transport Transport, identity nip34.Identity, cfg Config) (*SyncManager, error) {
	cfg = cfg.withDefaults()
	var errs []error
	if store == nil {
		errs = append(errs, errors.New("store is nil"))
	}
	if transport == nil {
		errs = append(errs, errors.New("transport is nil"))
	}
	if identity.IsZero() {
		errs = append(errs, errors.New("identity is empty: nothing could list us"))
	}
	for _, u := range cfg.Bootstrap {
		if !u.IsZero() && (identity.IsRelay(u) || u == cfg.OwnRelay) {
			errs = append(errs, fmt.Errorf("Bootstrap names our own relay, %s", u))
		}
	}
	if err := cfg.validate(); err != nil {
		errs = append(errs, err)
	}
	tracker, err := health.NewTracker(cfg.Health)
	if err != nil {
		errs = append(errs, fmt.Errorf("Health: %w", err))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrConfig, errors.Join(errs...))
	}
	if cfg.OwnTransport == nil {
		cfg.OwnTransport = transport
	}
	if cfg.Policy == nil {
		cfg.Policy = NewGRASPPolicy(identity)
	}
	m := &SyncManager{
		cfg: cfg, store: store, transport: transport, identity: identity,
		health: tracker, report: newReport(cfg), inbox: newMailbox[any](), ended: make(chan struct{}), readable: make(chan struct{}),
	}
	m.index = newIndex(store, cfg.Policy.Lists, identity, m.report.counters)
	m.feed = newFeed(m.index, cfg.fixed.FeedQueue, cfg.fixed.MaxAuthors)
	m.ingest = newIngest(cfg, store, cfg.Policy, m.index, m.feed, m.report, func(relay graspsync.RelayURL, ids []graspsync.EventID) {
		m.post(planInput{plan.Named{Relay: relay, IDs: ids}})
	})
	m.sets = newSets(store, cfg.Policy, cfg.fixed.MaxSet, m.ingest.absent, m.report.counters)
	m.remember = newRemember(&m.cfg, tracker, m.ingest.absent, transport, m.report)
	m.snapshot.Store(&Status{})
	return m, nil
}

// Run syncs until ctx ends. It first reads from the Store what there is to sync,
// trying again while that fails. It returns the cause of ctx's end; [ErrRunning]
// if it was called before.
func (m *SyncManager) Run(ctx context.Context) error {
	if m.ran.Swap(true) {
		return ErrRunning
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.wg.Go(func() { m.ingest.run(ctx) })
	m.wg.Go(func() { m.report.run(ctx) })
	m.wg.Go(func() { m.followOwn(ctx) })
	end := m.remember.start(ctx)
	m.followHeld(ctx)
	m.loop = newLoop(m)
	m.loop.run(ctx)
	m.wg.Wait()
	m.loop.keepAll()
	end()
	close(m.ended)
	return context.Cause(ctx)
}

// followHeld begins to follow what the Policy has held since before our start.
func (m *SyncManager) followHeld(ctx context.Context) {
	holder, ok := m.ingest.policy.(AnnouncementHolder)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Times.StoreTimeout)
	defer cancel()
	err := func() (err error) {
		defer m.report.recovered(&err, "policy")
		for a, err := range holder.HeldAnnouncements(ctx) {
			if err != nil {
				return err
			}
			m.feed.hold(a)
		}
		return nil
	}()
	if err != nil {
		m.cfg.Logger.Warn("held announcements could not be read", keyErr, err)
	}
}

// Stored reports an event that a client submitted and that our relay has stored:
// the own feed. It never blocks. Events that we saved ourselves need not, but may
// be reported; so may superseded ones.
func (m *SyncManager) Stored(event *nostr.Event) {
	if id, err := graspsync.ParseEventID(event.ID); err == nil {
		m.ingest.count(id, event)
	}
	m.feed.stored(event)
	m.ingest.fulfil(event)
}

// Removed reports an event that our relay has removed other than by storing a
// deletion or a newer version: by moderation, by expiry, or because what a [Policy]
// held will not be released. It never blocks. The event does not come back through
// sync as long as its id is remembered.
func (m *SyncManager) Removed(event *nostr.Event) {
	if id, err := graspsync.ParseEventID(event.ID); err == nil {
		m.ingest.holds.get(id, true)
	}
	m.ingest.removed(event)
	m.feed.removed(event)
	m.ingest.withdrawn(event)
}

// Postponed reports an event that the [Policy] has held, and holds no more for want of room.
// It never blocks. The event is kept and judged again like what is [graspsync.Later]; after a few times
// only its id is, and a later daily pass brings it.
func (m *SyncManager) Postponed(event *nostr.Event) {
	if id, err := graspsync.ParseEventID(event.ID); err == nil {
		m.ingest.displaced(event, id)
	}
	m.feed.removed(event)
	m.ingest.withdrawn(event)
}

// HeldFrom returns where an event came from that the [Policy] holds, a direct submission
// if nothing is known of it. After a restart the relay is not known any more.
func (m *SyncManager) HeldFrom(id graspsync.EventID) graspsync.Source {
	return m.ingest.heldFrom(id, false).source
}

// NotReleased reports an event that the [Policy] has held and released, and that the Store
// would not have: it is superseded, deleted or refused. That is counted, once more for
// each report, and what the Store refuses is logged. It never blocks. [SyncManager.Removed]
// then says that nobody holds it any more.
func (m *SyncManager) NotReleased(event *nostr.Event, o graspsync.Outcome) {
	if o.Result != graspsync.Superseded && o.Result != graspsync.Deleted && o.Result != graspsync.Refused {
		return
	}
	id, err := graspsync.ParseEventID(event.ID)
	if err != nil {
		return
	}
	src := m.HeldFrom(id)
	m.report.outcome(src.Kind, o.Result)
	m.report.observe(EventRejected{ID: id, Source: src, Reason: "released and " + o.Result.String()})
	if o.Result == graspsync.Refused {
		m.cfg.Logger.Warn("an event that was held is refused by the store", keyEvent, id.String(), keyErr, o.Err)
	}
}

// Held reports an event that the [Policy] holds, where it was not just asked: one that
// has waited before and does again. It never blocks. The states of an announcement
// that is held are followed.
func (m *SyncManager) Held(event *nostr.Event) {
	if event.Kind == graspsync.KindAnnouncement {
		if a, err := nip34.ParseAnnouncement(event); err == nil && m.index.listed(a) {
			m.feed.hold(a)
		}
	}
	m.ingest.announced(event)
	m.ingest.wakeFor(m.ingest.fulfilsHeld(event))
}

// Ready is closed once Run has read the Store: from then on Judge can judge.
func (m *SyncManager) Ready() <-chan struct{} { return m.readable }

// Judge asks the Policy about an event that a client submits, with our view of
// what there is. Its id and signature must have been verified. Until Run has read
// the Store once it returns [ErrNotReady].
func (m *SyncManager) Judge(ctx context.Context, event *nostr.Event) (graspsync.Verdict, error) {
	if !m.ready.Load() {
		return graspsync.Verdict{}, ErrNotReady
	}
	in := graspsync.Incoming{Event: event}
	v, err := m.ingest.verdict(ctx, in)
	if err == nil && v.Decision == graspsync.Accept && m.ingest.expired(event) {
		v = reject(reasonExpired)
	}
	switch {
	case err != nil:
	case v.Decision == graspsync.Hold:
		if id, err := graspsync.ParseEventID(event.ID); err == nil {
			m.ingest.holds.add(id, heldEvent{})
		}
		m.Held(event)
	case v.Decision == graspsync.Reject, v.Decision == graspsync.Later:
		m.report.reject(v.Reason)
		m.ingest.say("event rejected", in, keyReason, graspsync.Printable(v.Reason))
	case v.Decision == graspsync.Depend:
		m.report.reject(reasonDepends)
		m.ingest.say("event rejected", in, keyReason, reasonDepends)
	}
	return v, err
}

// Status returns what is known of all relays, as of at most a second ago while
// anything happens (or what twenty snapshots take, with very many relays), and a minute
// while nothing does. Its own time and those for which relays have been up and down are
// of now. Before Run it is empty, after it what it was at the end.
func (m *SyncManager) Status() Status {
	s := m.snapshot.Load()
	now := s.at(time.Now())
	if now != s {
		m.snapshot.CompareAndSwap(s, now) // so that it is not made for everybody who asks
	}
	return *now
}

func (m *SyncManager) post(msg any) { m.inbox.put(msg) }

// What connections tell the loop.
type (
	connected struct {
		conn   *conn
		limits plan.Limits
		info   wire.Info
		place  netip.Prefix
	}
	dialFailed struct {
		conn *conn
		err  error
	}
	lost struct {
		conn    *conn
		err     error
		cursors map[plan.BatchID][]plan.Cursor
		aliveAt time.Time
	}
	batchDone struct {
		conn *conn
		*fetching
		done session.Done
	}
	rateLimited struct {
		conn   *conn
		until  time.Time
		reason string
		log    bool
	}
	planInput struct{ in plan.Input }
	asked     struct{ answer func(l *loop) }
	scanned   struct{ err error }
)

func (m *SyncManager) planConfig() plan.Config {
	t := m.cfg.fixed
	return plan.Config{
		Salt:     m.remember.salt,
		MaxDials: m.cfg.Limits.MaxDials, DialEvery: t.DialEvery, MaxConnections: m.cfg.Limits.MaxConnections,
		MaxRelays: m.cfg.Limits.MaxRelays, MaxRoots: m.cfg.Limits.MaxRootsPerRepo,
		MaxAuthors: t.MaxAuthors, AuthorsPerPass: t.AuthorsPerPass,
		MaxBatches: m.cfg.fixed.MaxBatches, RebuildFilters: t.RebuildFilters,
		NarrowLayer1: m.cfg.NarrowLayer1,
		BatchTimeout: m.cfg.fixed.BatchTimeout, Overlap: m.cfg.fixed.Overlap, QuickReconnect: m.cfg.fixed.QuickReconnect,
		DailyMin: m.cfg.Times.DailyMin, DailyMax: m.cfg.Times.DailyMax,
		RetryBase: m.cfg.fixed.RetryBase, RetryMax: m.cfg.fixed.RetryMax,
		PollEvery: t.PollEvery, PollFilters: 20, MaxNamed: 10_000, NamedIDs: t.IDsPerRequest, RotateRoots: m.cfg.Limits.MaxRootsPerRepo,
	}
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }

// reasonDepends counts what a client submitted and what depends on something that is
// not here.
const reasonDepends = "blocked: what it belongs to is not here"

// The keys of log records.
const (
	keyRelay   = "relay"
	keyErr     = "error"
	keyReason  = "reason"
	keyEvent   = "event"
	keyAttempt = "attempt"
	keyBackoff = "backoff"
	keyItems   = "items"
)

// followOwn reads our own relay, and follows it until ctx ends, if it is a separate
// process.
func (m *SyncManager) followOwn(ctx context.Context) {
	if m.cfg.OwnRelay.IsZero() {
		return
	}
	m.own.update(func(s *OwnFeedStatus) { s.URL = m.cfg.OwnRelay })
	select { // what came before the first scan would be lost to it
	case <-m.readable:
	case <-ctx.Done():
		return
	}
	f := ownfeed.New(ownfeed.Config{
		Overlap: m.cfg.fixed.Overlap, Recheck: ownRecheck, Idle: m.cfg.fixed.IdleTimeout, Total: m.cfg.fixed.TotalTimeout,
		PageLimit: m.cfg.fixed.PageLimit, MaxPage: m.cfg.fixed.MaxPage,
	})
	backoff := ownBackoff
	for {
		began := time.Now()
		err := m.converseOwn(ctx, f)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= ownHeld {
			backoff = ownBackoff
		}
		m.ownLost(err, backoff)
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return
		}
		backoff = min(2*backoff, ownBackoffMax)
	}
}

func (m *SyncManager) ownLost(err error, backoff time.Duration) {
	text := graspsync.Printable(err.Error())
	m.own.update(func(s *OwnFeedStatus) {
		s.Losses++
		s.Connected, s.LastError = false, text
	})
	m.cfg.Logger.Warn("own feed ended", keyRelay, m.cfg.OwnRelay.String(), keyErr, text, keyBackoff, backoff)
	m.report.observe(OwnFeedLost{Err: err, Backoff: backoff})
}

// converseOwn is one connection to our own relay.
func (m *SyncManager) converseOwn(ctx context.Context, f *ownfeed.Feed) error {
	c, err := m.dialOwn(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		stop()
		_ = c.Close() // it has ended, or we want it to
		wg.Wait()
	}()
	own := &ownConn{m: m, conn: c, feed: f}
	defer func() { f.Lost(own.alive) }()
	messages, failed := make(chan wire.Message), make(chan error, 1)
	wg.Go(func() { failed <- receiveAll(ctx, c, messages) })
	return own.converse(ctx, messages, failed)
}

func (m *SyncManager) dialOwn(ctx context.Context) (c Conn, err error) {
	defer m.report.recovered(&err, "transport")
	ctx, stop := context.WithTimeout(ctx, m.cfg.Times.ConnectTimeout)
	defer stop()
	c, err = m.cfg.OwnTransport.Dial(ctx, m.cfg.OwnRelay)
	if err == nil && c == nil {
		err = errNoConn
	}
	return c, err
}

// ownEvent takes in an event of our own relay. Whether one that was read is a new
// one nobody knows, so only live ones are counted as submitted.
func (m *SyncManager) ownEvent(ev *nostr.Event, live bool) {
	if live {
		m.Stored(ev)
		return
	}
	m.feed.stored(ev)
	m.ingest.fulfil(ev)
}

func (m *SyncManager) ownRead(r ownfeed.Result) {
	m.own.update(func(s *OwnFeedStatus) {
		s.Readings++
		s.Complete, s.LastError = true, ""
	})
	m.cfg.Logger.Debug("own relay was read", keyRelay, m.cfg.OwnRelay.String(), "events", r.Events)
	if r.Gaps > 0 {
		m.report.drop("own_feed_seconds", r.Gaps)
		m.cfg.Logger.Warn("own relay has seconds that hold more than a page", keyRelay, m.cfg.OwnRelay.String(), "full_seconds", r.Gaps)
	}
	m.report.observe(OwnFeedRead{Events: r.Events})
}

// Collector returns the metrics of the manager, computed from its Status when they
// are asked for. The caller registers it on a registry of its own; a relay that is
// forgotten leaves no series behind.
func (m *SyncManager) Collector() prometheus.Collector { return newCollector(m) }

// RepoStatus returns what is known of one repository. It asks Run, so it waits for
// it to be called, and then the Store: about as long as reading the stamps of the
// repository's events. The error is that of ctx or the Store, [ErrNotRunning], or
// wraps [ErrUnknownRepo].
func (m *SyncManager) RepoStatus(ctx context.Context, ref graspsync.RepoRef) (RepoStatus, error) {
	var s RepoStatus
	known := false
	err := m.ask(ctx, func(l *loop) {
		var p plan.RepoStatus
		if p, known = l.plan.RepoStatus(ref); known {
			s = l.repoStatus(p)
		}
	})
	if err != nil {
		return RepoStatus{}, fmt.Errorf("asking about %s: %w", ref, err)
	}
	if !known {
		return RepoStatus{}, fmt.Errorf("%w: %s", ErrUnknownRepo, ref)
	}
	if policy, can := m.cfg.Policy.(Authorizer); can {
		if a := policy.Authority(ref, m.index); a != nil {
			s.Authority = strings.Split(strings.TrimSpace(a.String()), "\n")
		}
	}
	roots := m.index.rootsOf(ref)
	if s.Ours, err = m.count(ctx, append(filters.Repos([]graspsync.RepoRef{ref}), filters.Roots(roots)...)); err != nil {
		return RepoStatus{}, fmt.Errorf("counting the events of %s: %w", ref, err)
	}
	for i := range s.Relays {
		r := &s.Relays[i]
		if r.ComparedAt.IsZero() {
			continue
		}
		r.Coverage = 1
		if s.Ours > 0 {
			r.Coverage = max(0, 1-float64(r.Lacks)/float64(s.Ours))
		}
	}
	return s, nil
}

// Repositories yields what is known of each repository, in the order of their
// addresses. What RepoStatus says about time and errors holds for each of them; after an
// error nothing follows. One that is given up meanwhile is left out.
func (m *SyncManager) Repositories(ctx context.Context) iter.Seq2[RepoStatus, error] {
	return func(yield func(RepoStatus, error) bool) {
		var refs []graspsync.RepoRef
		if err := m.ask(ctx, func(l *loop) { refs = l.plan.Refs() }); err != nil {
			yield(RepoStatus{}, fmt.Errorf("asking for the repositories: %w", err))
			return
		}
		for _, ref := range refs {
			s, err := m.RepoStatus(ctx, ref)
			if errors.Is(err, ErrUnknownRepo) {
				continue
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// ask has the loop answer a question.
func (m *SyncManager) ask(ctx context.Context, question func(l *loop)) error {
	select {
	case <-m.ended:
		return ErrNotRunning
	default:
	}
	answered := make(chan struct{})
	m.post(asked{func(l *loop) {
		question(l)
		close(answered)
	}})
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		// What the question writes to must be left alone: the loop may be at it.
		return context.Cause(ctx)
	case <-m.ended:
		return ErrNotRunning
	}
}

// count counts the stored events that match any of the filters, each once.
func (m *SyncManager) count(ctx context.Context, fs []nostr.Filter) (n int, err error) {
	defer m.report.recovered(&err, "store")
	seen := make(map[graspsync.EventID]struct{})
	for _, f := range fs {
		for st, err := range m.store.Stamps(ctx, f) {
			if err != nil {
				return 0, err
			}
			if len(seen) >= m.cfg.fixed.MaxSet {
				return len(seen), nil
			}
			seen[st.ID] = struct{}{}
		}
	}
	return len(seen), nil
}

func (m *SyncManager) newTargets() *targets {
	return &targets{
		index: m.index, most: m.cfg.Limits.MaxRelaysPerRepo, usable: m.usable,
		given: make(map[string][]*nip34.Announcement),
		rules: make(map[string]func(owner graspsync.PubKey) ([]nip34.Target, int)),
	}
}

// usable reports whether a relay is none of ours, and one that may be connected to.
func (m *SyncManager) usable(u graspsync.RelayURL) bool {
	return !m.ours(u) && !m.tooPlain(u)
}

func (m *SyncManager) ours(u graspsync.RelayURL) bool {
	return m.identity.IsRelay(u) || u == m.cfg.OwnRelay
}

func (m *SyncManager) tooPlain(u graspsync.RelayURL) bool {
	return u.Plaintext() && !m.cfg.AllowPlaintext
}

func (m *SyncManager) descend(ctx context.Context, of map[graspsync.RepoRef]struct{}) (err error) {
	defer m.report.recovered(&err, "store")
	return m.index.descend(ctx, of, m.feed.descends)
}

// standing is what is known from before a restart of all relays.
func (m *SyncManager) standing() []plan.Standing {
	var out []plan.Standing
	for u, s := range m.health.All() {
		if s.KnownGood || s.Useful {
			out = append(out, plan.Standing{Relay: u, Good: s.KnownGood, UsefulAt: s.UsefulAt})
		}
	}
	return out
}

// connEnv returns what a connection needs of the rest.
func (m *SyncManager) connEnv() *connEnv {
	return &connEnv{
		cfg: &m.cfg, transport: m.transport, index: m.index, ingest: m.ingest, sets: m.sets, report: m.report,
		remember: m.remember, inbox: &m.inbox, wg: &m.wg,
	}
}
