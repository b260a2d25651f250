package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/index"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// ErrNotReady is returned by Judge before the Store has been read.
var ErrNotReady = errors.New("the store is still being read")

// ErrRunning is returned by a second call of Run.
var ErrRunning = errors.New("already run")

// SyncManager keeps one relay in sync, see [New]. All methods may be called concurrently.
type SyncManager struct {
	// set by New, read-only
	cfg          *Config
	identity     nip34.Identity
	store        Store
	transport    Transport
	health       *health.RelayHealthTracker
	index        *index.Index
	self         *selfSubscriber
	ingest       *ingest
	sets         *negentropySets
	telemetry    *telemetry
	persistence  *persistence
	own          *ownFeed
	submissions  mailbox[graspsync.Event] // events of NotifyStored that are not applied yet
	applying     sync.Mutex               // held while submissions are applied
	unproductive *limit.Rate              // useless bytes of each relay host
	loop         *loop

	ready    chan struct{}          // closed when the Store was read
	ended    chan struct{}          // closed when Run ends
	inbox    mailbox[loopMessage]   // of the loop
	wg       sync.WaitGroup         // of all goroutines that end with Run
	snapshot atomic.Pointer[Status] // written by the loop
	// ends the last search for replies; a later one replaces it
	endSearch atomic.Pointer[context.CancelFunc]

	ran atomic.Bool
}

// New returns a manager for the relay with this identity and event store. It starts nothing. The
// error wraps [ErrConfig] and lists all invalid arguments and fields.
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
	if cfg.Rules != nil {
		cfg.Policy = WithRules(cfg.Policy, cfg.Rules)
	}
	t := newTelemetry(cfg)
	x := index.New(cfg.Policy.Lists, identity, t.panickedIn)
	m := &SyncManager{
		cfg: &cfg, identity: identity, store: store, transport: transport, health: tracker, index: x, telemetry: t,
		unproductive: newUnproductive(&cfg.constants),
		ready:        make(chan struct{}), ended: make(chan struct{}), inbox: newMailbox[loopMessage](), submissions: newMailbox[graspsync.Event](),
	}
	m.self = newSelfSubscriber(m)
	m.ingest = newIngest(m)
	m.persistence = newPersistence(&cfg, identity, tracker, m.ingest.rejected, transport, t)
	m.own = &ownFeed{m: m}
	m.sets = &negentropySets{m: m, places: make(chan struct{}, setLoads), loaded: make(map[string]func() (*negentropy.Set, error))}
	m.loop = newLoop(m)
	m.snapshot.Store(&Status{Unread: true})
	return m, nil
}

func (m *SyncManager) refetch(relay graspsync.RelayURL, ids []graspsync.EventID) {
	m.inbox.put(planInput{plan.Named{Relay: relay, IDs: ids}})
}

func (m *SyncManager) isReady() bool {
	select {
	case <-m.ready:
		return true
	default:
		return false
	}
}

// endsWithin is the maximum time until Run returns if all calls of the embedder obey their context.
const endsWithin = 5 * time.Second

// Run syncs until ctx ends. It returns the cause of the end of ctx, or [ErrRunning] if it was
// called before.
func (m *SyncManager) Run(ctx context.Context) error {
	if m.ran.Swap(true) {
		return ErrRunning
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.wg.Go(func() { m.ingest.run(ctx) })
	m.wg.Go(func() { m.telemetry.run(ctx) })
	m.wg.Go(func() { m.own.run(ctx) })
	m.wg.Go(func() { m.applyAll(ctx) })
	end := m.persistence.start(ctx)
	m.followHeld(ctx)
	m.loop.run(ctx)
	late := time.AfterFunc(endsWithin, func() {
		m.cfg.Logger.Warn("Run waits for a call of Store, Policy or observer that ignores its ended context")
	})
	m.wg.Wait()
	late.Stop()
	m.loop.saveAll()
	end()
	close(m.ended)
	return context.Cause(ctx)
}

func (m *SyncManager) followHeld(ctx context.Context) {
	if m.cfg.Holder == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.constants.StoreTimeout)
	defer cancel()
	err := func() (err error) {
		defer m.telemetry.recovered(&err, "policy")
		for a, err := range m.cfg.Holder.HeldAnnouncements(ctx) {
			if err != nil {
				return err
			}
			m.self.hold(a)
		}
		return nil
	}()
	if err != nil {
		m.cfg.Logger.Warn("reading held announcements failed", keyErr, err)
	}
}

// NotifyStored reports an event that a client submitted and the relay has stored. It blocks only
// while 256 earlier events wait. Later calls of other methods see the event.
func (m *SyncManager) NotifyStored(event graspsync.Event) {
	if event.IsZero() {
		return
	}
	m.ingest.count(event) // now, because the Holder may forget the origin of the event
	if m.submissions.put(event) >= maxSubmissions {
		m.apply()
	}
}

// maxSubmissions is the number of waiting events from which NotifyStored applies them itself.
const maxSubmissions = 256

// apply applies the submitted events in order. It recovers panics.
func (m *SyncManager) apply() {
	m.applying.Lock()
	defer m.applying.Unlock()
	for _, event := range m.submissions.take() {
		m.telemetry.stored(event)
		m.index.Contain(func() { m.applyStored(event) })
	}
}

func (m *SyncManager) applyAll(ctx context.Context) {
	for {
		select {
		case <-m.submissions.wake:
			m.apply()
		case <-ctx.Done():
			return
		}
	}
}

// applyStored applies an event that our relay has stored, from any source.
func (m *SyncManager) applyStored(ev graspsync.Event) {
	m.self.stored(ev)
	m.ingest.wakeForStored(ev)
}

// NotifyRemoved reports an event that the relay has removed without storing a deletion or a newer
// version: by moderation, by expiry, or because a held event will not be released. It may block
// until earlier events of [SyncManager.NotifyStored] are processed. Sync does not fetch the event
// again while its id is remembered.
func (m *SyncManager) NotifyRemoved(event graspsync.Event) {
	if event.IsZero() {
		return
	}
	m.apply() // the event may have been stored just before
	m.ingest.inflight.heldNote(event.ID, true)
	m.ingest.removed(event)
	m.telemetry.record(graspsync.Incoming{Event: event}, EventState{Is: IsRemoved})
	m.telemetry.logEvent("event removed", graspsync.Incoming{Event: event})
	m.self.removed(event)
	m.ingest.holdEnded(event)
}

// NotifySuperseded records for [SyncManager.EventState] that the Store replaced or deleted an
// event. It does not block.
func (m *SyncManager) NotifySuperseded(event graspsync.Event) {
	if !event.IsZero() {
		m.telemetry.record(graspsync.Incoming{Event: event}, EventState{Is: IsGone})
	}
}

// NotifyDeferred reports that the [Policy] dropped a held event for lack of room. It blocks like
// NotifyRemoved. The event is judged again like one with [graspsync.Later]. After a few times only
// its id is kept.
func (m *SyncManager) NotifyDeferred(event graspsync.Event) {
	if event.IsZero() {
		return
	}
	m.apply()
	m.ingest.displaced(event)
	m.self.removed(event)
	m.ingest.holdEnded(event)
}

// HeldFrom returns the source of a held event, or a direct submission if it is unknown.
func (m *SyncManager) HeldFrom(id graspsync.EventID) graspsync.Source {
	return m.ingest.heldFrom(id, false).Incoming.Source
}

// NotifyHeld reports an event that the [Policy] holds again without a call of Judge. It blocks like
// [SyncManager.NotifyRemoved].
func (m *SyncManager) NotifyHeld(event graspsync.Event) {
	if event.IsZero() {
		return
	}
	m.apply()
	m.ingest.wakeFor(m.ingest.followHeld(event))
}

// Ready returns a channel that is closed when Run has read the Store and Judge can be called.
func (m *SyncManager) Ready() <-chan struct{} { return m.ready }

// Judge calls the Policy for an event that a client submits. The caller must have verified its id
// and signature. Judge returns [ErrNotReady] until Run has read the Store.
//
// After [graspsync.Accept] store the event, call NotifyStored and answer OK true (NIP-01). After
// [graspsync.Hold] answer true without storing the event. After any other decision answer false
// with [graspsync.Verdict.Message].
func (m *SyncManager) Judge(ctx context.Context, event graspsync.Event) (graspsync.Verdict, error) {
	if event.IsZero() {
		return graspsync.Verdict{}, fmt.Errorf("judging an event: %w: none", graspsync.ErrEvent)
	}
	if !m.isReady() {
		return graspsync.Verdict{}, ErrNotReady
	}
	m.apply() // the event may refer to an event that was just stored
	in := graspsync.Incoming{Event: event}
	v, err := m.ingest.verdict(ctx, in)
	switch {
	case err != nil:
	case v.Decision == graspsync.Accept:
		m.telemetry.logEvent("event accepted", in)
	case v.Decision == graspsync.Hold:
		m.telemetry.logEvent("event held", in, "by", "the policy")
		m.ingest.inflight.addHeld(pending.Note{ID: event.ID})
		m.NotifyHeld(event)
	case v.Decision == graspsync.Reject:
		m.telemetry.refuse(in, IsRejected, v)
	case v.Decision == graspsync.Later:
		m.telemetry.refuse(in, IsPostponed, v)
	case v.Decision == graspsync.Depend:
		if v.Reason = reasonDepends; v.Detail == "" && len(v.DependsOn) > 0 {
			v.Detail = "want " + m.describe(v.DependsOn)
		}
		m.telemetry.refuse(in, IsRejected, v)
	}
	return v, err
}

// describe describes the dependencies of an event for its author.
func (m *SyncManager) describe(deps []graspsync.Dependency) string {
	for _, d := range deps {
		if d.Kind == graspsync.AwaitRepo {
			ref := graspsync.RepoRef{Owner: d.Author, Identifier: d.Text}
			return "an announcement of " + graspsync.Printable(nip34.NPub(ref.Owner)+"/"+ref.Identifier) + " that lists " + m.identity.RelayURL() + " and " + m.identity.CloneURL(ref)
		}
	}
	return waitedFor(deps)
}

// NotifyRefused reports an event of a client that the relay itself refused, with the text of its
// answer. It never blocks.
func (m *SyncManager) NotifyRefused(event graspsync.Event, reason string) {
	if event.IsZero() {
		return
	}
	in := graspsync.Incoming{Event: event}
	reason = graspsync.Printable(reason)
	if blocked, _ := m.cfg.blocks(event); blocked != "" {
		m.telemetry.reject(blocked)
		m.telemetry.record(in, EventState{Is: IsRejected, Reason: blocked})
	} else {
		m.telemetry.reject(reasonByRelay)
		m.telemetry.record(in, EventState{Is: IsRefused, Detail: reason})
	}
	m.telemetry.logEvent("event refused", in, keyReason, reason)
}

// Status returns the state of all relays, during activity at most a second old (longer with very many
// relays), otherwise at most a minute. Before Run it is empty. After Run it is the final state.
func (m *SyncManager) Status() Status {
	s := *m.snapshot.Load()
	s.Failures, s.Events.Sources = m.telemetry.failing.All(), m.telemetry.bySource()
	if m.cfg.Lacking == nil {
		return s
	}
	lacking, err := m.lacking()
	if err != nil {
		s.Synced = false
		return s
	}
	g := GitStatus{Complete: m.index.Hosted()}
	for ref := range lacking {
		if m.index.Announced(ref) {
			g.Complete--
		}
		if gitOf(lacking, ref) == gitMissing {
			g.Missing++
		} else {
			g.Unobtainable++
		}
	}
	s.Git, s.Synced = g, s.Synced && g.Missing == 0
	return s
}

const gitMissing = "missing"

func gitOf(lacking map[graspsync.RepoRef]bool, ref graspsync.RepoRef) string {
	switch obtainable, lacks := lacking[ref]; {
	case !lacks:
		return "complete"
	case obtainable:
		return gitMissing
	}
	return "unobtainable"
}

func (m *SyncManager) lacking() (_ map[graspsync.RepoRef]bool, err error) {
	defer m.telemetry.recovered(&err, "policy")
	return m.cfg.Lacking(), nil
}

const reasonDepends = "blocked: the repository or event that it belongs to is not stored"

const reasonByRelay = "refused by the relay"

// The keys of log records.
const (
	keyRelay   = "relay"
	keyErr     = "error"
	keyStack   = "stack"
	keyReason  = "reason"
	keyEvent   = "event"
	keyAttempt = "attempt"
	keyBackoff = "backoff"
	keyItems   = "items"
)

// Collector returns the metrics. All names begin with namespace. Dashboards expect "ngit".
func (m *SyncManager) Collector(namespace string) prometheus.Collector {
	return newCollector(namespace, m.cfg.constants.MaxLabels, m.Status, m.telemetry.failing.Totals)
}

// RepoStatus returns the states of the followed repositories among refs. It blocks Run, so pass
// few. The error is that of ctx, or [ErrNotRunning].
func (m *SyncManager) RepoStatus(ctx context.Context, refs ...graspsync.RepoRef) ([]RepoStatus, error) {
	q := &request{refs: refs}
	if err := m.ask(ctx, q); err != nil {
		return nil, fmt.Errorf("asking about repositories: %w", err)
	}
	var lacking map[graspsync.RepoRef]bool
	err := errors.ErrUnsupported
	if m.cfg.Lacking != nil {
		lacking, err = m.lacking()
	}
	for i := range q.repos {
		s := &q.repos[i]
		if err == nil {
			s.Git = gitOf(lacking, s.Ref)
		}
		if a := m.ingest.authority(s.Ref); a != nil {
			s.Maintainers = a.People
			if a.LeadSearch != nip34.Found {
				s.Unled = a.LeadSearch
			}
		}
	}
	return q.repos, nil
}

// RepoRefs returns the sorted addresses of the followed repositories. Blocking and errors are as
// for RepoStatus.
func (m *SyncManager) RepoRefs(ctx context.Context) ([]graspsync.RepoRef, error) {
	q := &request{all: true}
	if err := m.ask(ctx, q); err != nil {
		return nil, fmt.Errorf("asking for the repositories: %w", err)
	}
	return q.refs, nil
}

// request is a call of a public method that the loop answers.
type request struct {
	in    plan.Input          // from the operator, or nil
	rules bool                // the rules have changed
	all   bool                // asks for the followed repositories
	refs  []graspsync.RepoRef // repositories to describe; or the answer to all

	known    bool         // the answer to in: its relay or repository is followed
	repos    []RepoStatus // the answer about refs
	answered chan struct{}
}

// ask sends a request to the loop and waits for the answer. After an error the loop may still write
// to q.
func (m *SyncManager) ask(ctx context.Context, q *request) error {
	select {
	case <-m.ended:
		return ErrNotRunning
	default:
	}
	q.answered = make(chan struct{})
	m.inbox.put(q)
	select {
	case <-q.answered:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.ended:
		return ErrNotRunning
	}
}

// Errors of operator actions.
var (
	// ErrUnknownRelay reports that a relay is not followed.
	ErrUnknownRelay = errors.New("relay not followed")
	// ErrUnusableRelay reports a relay that is this server, or not encrypted although encryption is
	// required.
	ErrUnusableRelay = errors.New("relay can't be followed")
)

// Retry dials a relay in the next free slot in spite of earlier failures, and repeats its
// unanswered requests. The attempt limit of its address (package egress) still applies. It blocks
// until Run has accepted it. The error is that of ctx, [ErrNotRunning], or wraps [ErrUnknownRelay].
func (m *SyncManager) Retry(ctx context.Context, relay graspsync.RelayURL) error {
	return m.order(ctx, plan.Retry{Relay: relay}, ErrUnknownRelay, relay)
}

// Resync compares all targets of a relay again. A disconnected relay is dialed immediately.
// Blocking and errors are as for Retry.
func (m *SyncManager) Resync(ctx context.Context, relay graspsync.RelayURL) error {
	return m.order(ctx, plan.Resync{Relay: relay}, ErrUnknownRelay, relay)
}

// ResyncRepository fetches all events of a repository again from all its relays, which are dialed
// immediately. The error is that of ctx, [ErrNotRunning], or wraps [ErrUnknownRepo].
func (m *SyncManager) ResyncRepository(ctx context.Context, ref graspsync.RepoRef) error {
	return m.order(ctx, plan.ResyncRepo{Ref: ref}, ErrUnknownRepo, ref)
}

// AddBootstrap follows a relay like [Config.Bootstrap] until Run ends or RemoveBootstrap is called.
// The error is that of ctx, [ErrNotRunning], or wraps [ErrUnusableRelay].
func (m *SyncManager) AddBootstrap(ctx context.Context, relay graspsync.RelayURL) error {
	switch {
	case relay.IsZero(), m.isOurs(relay):
		return fmt.Errorf("%w: %q is ourselves, or none", ErrUnusableRelay, relay)
	case m.forbidsPlaintext(relay):
		return fmt.Errorf("%w: %s is not encrypted", ErrUnusableRelay, relay)
	}
	return m.ask(ctx, &request{in: plan.Bootstrap{Relay: relay}})
}

// RemoveBootstrap drops a bootstrap relay unless a repository lists it. Errors are as for Retry.
func (m *SyncManager) RemoveBootstrap(ctx context.Context, relay graspsync.RelayURL) error {
	return m.order(ctx, plan.Bootstrap{Relay: relay, Not: true}, ErrUnknownRelay, relay)
}

// RulesChanged must be called after a change of [Config.Rules]. When it returns, blocked relays are
// disconnected. Repositories follow after the Store was read again. Events that wait for a
// dependency in lifted ([graspsync.OnRuleRemoved], [graspsync.OnOperatorRequest]) are judged or
// requested again. The error is that of ctx, or [ErrNotRunning].
func (m *SyncManager) RulesChanged(ctx context.Context, lifted ...graspsync.Dependency) error {
	if err := m.ask(ctx, &request{rules: true}); err != nil {
		return err
	}
	m.ingest.wakeFor(pending.KeysOf(lifted))
	return nil
}

// order passes an input to the plan. The error wraps unknown if nothing of that name is followed.
func (m *SyncManager) order(ctx context.Context, in plan.Input, unknown error, about fmt.Stringer) error {
	q := &request{in: in}
	err := m.ask(ctx, q)
	if err == nil && !q.known {
		err = fmt.Errorf("%w: %s", unknown, about)
	}
	return err
}

func (q *request) handle(ctx context.Context, l *loop) {
	defer close(q.answered)
	if q.rules {
		l.rulesChanged(ctx)
	}
	if q.all {
		q.refs = l.plan.Refs()
		return
	}
	for _, ref := range q.refs {
		if p, known := l.plan.RepoStatus(ref); known {
			q.repos = append(q.repos, repoStatus(p, l.m.self.listers(ref)))
		}
	}
	switch in := q.in.(type) {
	case plan.Retry:
		q.known = l.order(ctx, in.Relay, in)
	case plan.Resync:
		q.known = l.order(ctx, in.Relay, in)
	case plan.ResyncRepo:
		var status plan.RepoStatus
		if status, q.known = l.plan.RepoStatus(in.Ref); q.known {
			l.step(ctx, in)
		}
		for _, r := range status.Relays {
			if l.conns[r.Relay] == nil {
				l.order(ctx, r.Relay, plan.Retry{Relay: r.Relay})
			}
		}
	case plan.Bootstrap:
		q.known = slices.Contains(l.bootstrap, in.Relay)
		l.bootstrap = slices.DeleteFunc(l.bootstrap, func(u graspsync.RelayURL) bool { return u == in.Relay })
		if in.Not {
			l.step(ctx, in)
		} else {
			l.bootstrap = append(l.bootstrap, in.Relay)
			l.followBootstrap(ctx)
		}
	}
}

// order passes an input about a relay to the plan, and reports whether the relay is followed.
func (l *loop) order(ctx context.Context, u graspsync.RelayURL, in plan.Input) (known bool) {
	if known = l.plan.Knows(u); known {
		l.m.health.Forgive(u)
		l.m.persistence.health(u)
		l.step(ctx, in)
	}
	return known
}

func (l *loop) followBootstrap(ctx context.Context) {
	if !l.started {
		return
	}
	for _, u := range l.bootstrap {
		l.step(ctx, plan.Bootstrap{Relay: u, Not: l.m.blockedRelay(u)})
	}
}

// rulesChanged applies changed rules to relays immediately, and to repositories after the Store is
// read.
func (l *loop) rulesChanged(ctx context.Context) {
	if !l.started {
		l.scanAgain = l.scanning // the scan may have used the old rules
		return
	}
	l.followBootstrap(ctx)
	l.m.self.notifyAllChanged()
	l.window = nil
	l.closeWindow(ctx)
	if l.scanAgain = l.scanning; !l.scanning {
		l.scan(ctx)
	}
}
