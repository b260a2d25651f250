package sync

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/learned"
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
	counters  *counters
	inbox     mailbox[any]
	remember  *remember
	observer  *observer
	says      says
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
		health: tracker, counters: &counters{}, inbox: newMailbox[any](), ended: make(chan struct{}), readable: make(chan struct{}),
	}
	m.index = newIndex(store, cfg.Policy.Lists)
	m.feed = newFeed(m.index, cfg.fixed.FeedQueue, cfg.fixed.MaxAuthors)
	m.sets = newSets(store, cfg.Policy, cfg.fixed.MaxSet)
	m.ingest = newIngest(cfg, store, cfg.Policy, m.index, m.feed, m.counters)
	m.index.us, m.sets.absent = identity, m.ingest.absent
	m.index.counters, m.sets.counters = m.counters, m.counters
	m.ingest.refetch = func(relay graspsync.RelayURL, ids []graspsync.EventID) {
		m.post(planInput{plan.Named{Relay: relay, IDs: ids}})
	}
	m.remember = newRemember(m)
	m.observer = newObserver(cfg, m.counters)
	m.counters.observer, m.ingest.observer = m.observer, m.observer
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
	m.wg.Go(func() { m.observer.run(ctx) })
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
		defer m.counters.recovered(&err, "policy")
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
	m.counters.outcome(src.Kind, o.Result)
	m.observe(EventRejected{ID: id, Source: src, Reason: "released and " + o.Result.String()})
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
		m.counters.reject(v.Reason)
		m.ingest.say("event rejected", in, keyReason, graspsync.Printable(v.Reason))
	case v.Decision == graspsync.Depend:
		m.counters.reject(reasonDepends)
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

// limitsOf turns a NIP-11 document into limits.
func (m *SyncManager) limitsOf(info wire.Info) plan.Limits {
	t := m.cfg.fixed
	l := plan.Limits{MaxMessage: t.MessageSize, MaxFilters: t.Filters, MaxSubscriptions: t.Subscriptions}
	if n := info.MaxMessageLength; n > 0 {
		l.MaxMessage = min(max(n, leastSaid), mostSaid)
	}
	if n := info.MaxFilters; n > 0 {
		l.MaxFilters = min(n, mostFilters)
	}
	if n := info.MaxSubscriptions; n > 0 {
		l.MaxSubscriptions = min(max(n, leastSubscriptions), mostSubscriptions)
	}
	return l
}

func (m *SyncManager) sessionConfig(stats *relayStats, terms session.Terms, limits plan.Limits, info wire.Info) session.Config {
	now, t := time.Now(), m.cfg.fixed
	facts, aside := stats.learned(now)
	c := session.Config{
		Historic: limits.Historic(), Reconciling: 2,
		PageLimit: t.PageLimit, MaxPage: t.MaxPage, IDChunk: t.IDsPerRequest,
		NegFrame: min(t.NegentropyFrame, limits.MaxMessage/4), NegRounds: t.NegentropyRounds, NegIDs: t.NegentropyIDs,
		Terms: terms, SetAside: aside, PageSize: facts.Value(learned.PageSize, now),
		Auth:        m.cfg.Signer != nil,
		OpenTimeout: t.OpenTimeout,
		FirstNeg:    t.NegentropyFirst, NegTimeout: t.NegentropyTimeout,
		FirstAnswer: t.FirstAnswer, IdleTimeout: m.cfg.fixed.IdleTimeout, TotalTimeout: m.cfg.fixed.TotalTimeout,
		Cooldown: m.cfg.Health.RateLimit, Cooled: stats.lastCooled(), GapAge: t.GapAge, MaxStrikes: t.Strikes,
	}
	c.IDChunk = min(c.IDChunk, (limits.MaxMessage-200)/67) // of 64 digits, quotes and a comma
	if terms.MaxValues > 0 {
		c.IDChunk = min(c.IDChunk, terms.MaxValues)
	}
	if n := info.MaxLimit; n > 0 {
		c.PageLimit = min(n, 2*t.PageLimit)
		c.IDChunk = min(n, c.IDChunk)
	}
	return c
}

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
