package plan

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Config holds the constants of a [Plan]. All numbers must be set.
type Config struct {
	MaxDials       int // young connection attempts
	DialEvery      time.Duration
	MaxConnections int
	MaxRelays      int
	MaxRoots       int // tracked root events per repository
	MaxAuthors     int
	AuthorsPerPass int
	MaxBatches     int
	BatchTimeout   time.Duration // of a batch
	Overlap        time.Duration // a catch-up starts this long before the last sign of life
	QuickReconnect time.Duration // maximum connection loss after which a catch-up is enough
	DailyMin       time.Duration // between two passes, random
	DailyMax       time.Duration
	RetryBase      time.Duration // wait after a failed batch, doubling
	RetryMax       time.Duration
	PollEvery      time.Duration // maximum time between two polls of an item
	PollFilters    int           // filters without room above which kinds are followed
	MaxNamed       int           // ids to fetch, per relay
	NamedIDs       int           // ids per query
	// Salt is part of the hashes in [Kept] and hides the items from readers of the disk.
	Salt []byte
}

// Plan decides which requests are sent to which relay. A part calls only parts that precede it in
// the list.
type Plan struct {
	*core
	repos       *repoSyncIndex
	owners      *ownerShares
	relays      *relaySyncIndex
	dialer      *dialer
	pending     *pendingSyncIndex
	catchUp     *catchUp
	checkpoints *checkpoints
	history     *historicSync
	byID        *byID
	polling     *polling
	audit       *audit
	deletions   *deletions
	live        *liveSync
	targets     *relayTargets
	fetchers    []fetcher // in order of priority
}

// New returns an empty plan. The plan owns rng, which spreads periodic work and draws samples.
func New(cfg Config, rng *rand.Rand) *Plan {
	c := &core{cfg: cfg, rng: rng}
	p := &Plan{
		core:    c,
		repos:   newRepoSyncIndex(cfg.Salt),
		owners:  newOwners(cfg.MaxRelays),
		relays:  &relaySyncIndex{byURL: make(map[graspsync.RelayURL]*relayState)},
		pending: &pendingSyncIndex{core: c},
	}
	p.dialer = newDialer(c)
	p.catchUp = &catchUp{c, p.repos, p.pending}
	p.checkpoints = newCheckpoints(c, p.repos, p.relays, p.dialer, p.catchUp)
	p.history = &historicSync{c, p.repos, p.pending}
	p.byID = &byID{core: c, repos: p.repos, pending: p.pending, dialer: p.dialer}
	p.polling = &polling{c, p.repos, p.pending, p.catchUp}
	p.audit = &audit{c, p.repos, p.pending}
	p.deletions = newDeletions(c, p.pending)
	p.live = &liveSync{core: c, repos: p.repos, catchUp: p.catchUp, polling: p.polling}
	p.fetchers = []fetcher{
		p.catchUp, p.polling, p.byID, p.history, p.audit, p.deletions,
	}
	p.targets = &relayTargets{
		core: c, repos: p.repos, relays: p.relays, owners: p.owners, dialer: p.dialer, byID: p.byID,
		checkpoints: p.checkpoints,
	}
	return p
}

// Step applies an input and returns the effects in order. now must not decrease.
func (p *Plan) Step(now time.Time, in Input) []Effect {
	p.now = now
	switch in := in.(type) {
	case Bootstrap:
		p.onBootstrap(in)
	case Retry:
		if r := p.relays.byURL[in.Relay]; r != nil {
			p.retry(r)
		}
	case Resync:
		if r := p.relays.byURL[in.Relay]; r != nil {
			p.resync(r, now)
		}
	case ResyncRepo:
		if repo := p.repos.byRef[in.Ref]; repo != nil {
			p.resyncRepo(repo)
		}
	case Changes:
		p.targets.derive(in)
	case Snapshot:
		p.targets.replace(in)
	case Connected:
		p.onConnected(now, in)
	case DialFailed:
		if r := p.current(in.Relay, in.Epoch); r != nil && r.dial.connecting {
			p.dialer.failed(r, in, now)
		}
	case Lost:
		p.onLost(in)
	case Done:
		p.onDone(now, in)
	case Skipped:
		if r := p.current(in.Relay, in.Epoch); r != nil && r.dial.connected {
			p.catchUp.skipped(r, in.Since)
		}
	case Saving:
		p.onSaving(in)
	case LiveClosed:
		p.onLiveClosed(now, in)
	case LimitsChanged:
		if r := p.current(in.Relay, in.Epoch); r != nil && r.dial.connected && r.limits != in.Limits {
			old := r.limits
			r.limits = in.Limits
			p.live.limitsChanged(r, old)
		}
	case RateLimited:
		if r := p.current(in.Relay, in.Epoch); r != nil && in.Until.After(r.coolUntil) {
			r.coolUntil = in.Until
		}
	case Named:
		p.byID.named(p.relays.byURL[in.Relay], in.IDs)
	case Unserved:
		if r := p.relays.byURL[in.Relay]; r != nil {
			p.byID.unserved(r, in.IDs, now)
		}
	case Authors:
		p.deletions.add(in)
		for _, r := range sortedBy(p.dialer.connected, byName) {
			p.markDirty(r)
		}
	case Restore:
		p.checkpoints.restore(in, now)
	case Settled:
		p.checkpoints.settled(in, now)
	case ClockJumped:
		p.onClockJumped(in.By)
	case Tick:
		for r := p.timers.due(now); r != nil; r = p.timers.due(now) {
			p.markDirty(r)
		}
	}
	for len(p.dirty) > 0 {
		r := p.dirty[0]
		p.dirty = p.dirty[1:]
		r.dirty = false
		if !r.gone {
			p.advance(r, now)
		}
	}
	p.dialer.dial(now)
	for _, r := range p.dialer.takeHungUp() {
		p.disconnected(r, nil, p.checkpoints.readUntil(r))
	}
	out := p.effects
	p.effects = nil
	return out
}

func (p *Plan) advance(r *relayState, now time.Time) {
	if r.listed.repos == 0 && !r.bootstrap {
		p.targets.forget(r)
		return
	}
	if !r.dial.connected {
		p.dialer.wait(r, now)
		return
	}
	p.expire(r, now)
	r.pending.unpark(r, now)
	if !r.pass.dueAt.IsZero() && !now.Before(r.pass.dueAt) {
		p.startDaily(r, now)
	}
	p.live.follow(r, now)
	p.computeActions(r, now)
	p.timers.set(r, r.nextWake(now))
}

// computeActions starts batches. Missed events and events by id come first, then target - pending -
// confirmed.
func (p *Plan) computeActions(r *relayState, now time.Time) {
	if now.Before(r.coolUntil) {
		return
	}
	for len(r.pending.open) < p.cfg.MaxBatches {
		next := slices.IndexFunc(p.fetchers, func(a fetcher) bool { return a.due(r, now) })
		if next < 0 {
			return
		}
		p.fetchers[next].start(r, now)
	}
}

func (p *Plan) current(u graspsync.RelayURL, epoch uint64) *relayState {
	r, ok := p.relays.byURL[u]
	if !ok || r.dial.epoch != epoch || !(r.dial.connecting || r.dial.connected) {
		return nil
	}
	p.markDirty(r)
	return r
}

// NextWake returns when the next Tick is due, or false if none is.
func (p *Plan) NextWake() (time.Time, bool) {
	at, ok := p.timers.next()
	if dial := p.dialer.nextWake(); !dial.IsZero() && (!ok || dial.Before(at)) {
		at, ok = dial, true
	}
	return at, ok
}

func (p *Plan) onConnected(now time.Time, in Connected) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || !r.dial.connecting {
		return
	}
	p.dialer.made(r, now)
	r.limits = in.Limits
	r.live.connected()
	for it := range r.history.items {
		put(&r.live.missing, it)
	}
	if p.checkpoints.resume(r, now) {
		r.pass.dueAt = p.nextPass(r.pass.at)
	}
	if r.dial.aliveAt.IsZero() || r.dial.longAbsent(now, p.cfg.QuickReconnect) {
		if !r.dial.aliveAt.IsZero() {
			p.emit(Reset{Relay: r.url})
		}
		p.startFull(r, now)
	} else {
		p.catchUp.missedSince(r, r.dial.aliveAt)
		p.catchUp.queueAll(r)
	}
	r.dial.aliveAt, r.dial.absentSince = now, time.Time{}
	p.byID.assign()
}

func (p *Plan) startFull(r *relayState, now time.Time) {
	r.pending.gaps, r.pending.failures = 0, 0
	r.catchUp = catchUpState{}
	r.history.forget()
	p.passStarted(r, now)
}

func (p *Plan) startDaily(r *relayState, now time.Time) {
	p.emit(Reset{Relay: r.url, Daily: true})
	r.pending.gaps, r.pending.failures = 0, 0
	r.pending.unparkAll(r)
	r.history.redo(slices.Collect(maps.Keys(r.history.items)))
	p.passStarted(r, now)
}

// startOver also fetches the items in flight again, because events were missed.
func (p *Plan) startOver(r *relayState, now time.Time) {
	for it, st := range r.history.items {
		if st == inFlight {
			r.pending.without(it)
			r.history.set(it, confirmed)
		}
	}
	p.startDaily(r, now)
}

func (p *Plan) passStarted(r *relayState, now time.Time) {
	p.deletions.passStarted(r)
	r.pass.at, r.checkpoint.dirty = now, true
	r.audit.due = r.audit.reconciles
	r.pass.dueAt = p.nextPass(now)
}

func (p *Plan) nextPass(passAt time.Time) time.Time {
	spread := p.cfg.DailyMax - p.cfg.DailyMin
	return passAt.Add(p.cfg.DailyMin + time.Duration(p.rng.Int64N(int64(spread)+1)))
}

func (p *Plan) onLost(in Lost) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || !r.dial.connected {
		return
	}
	r.dial.retryAt = in.RetryAt
	p.dialer.lost(r)
	p.disconnected(r, in.Cursors, in.AliveAt)
	r.dial.absentSince = in.AliveAt
}

func (p *Plan) disconnected(r *relayState, got map[BatchID][]Cursor, aliveAt time.Time) {
	p.checkpoints.markLost(r, aliveAt)
	r.dial.aliveAt = aliveAt
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(r.pending.open))) {
		b := r.pending.open[id]
		b.failure = Done{Result: Failed, Unsaved: true, Cursors: got[id]}
		r.pending.parked = append(r.pending.parked, b)
	}
	clear(r.pending.open)
	r.pending.unparkAll(r)
	r.history.requeue()
	r.catchUp = catchUpState{missed: p.catchUp.unfetched(r)}
	r.live.reset()
}

func (p *Plan) onDone(now time.Time, in Done) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil {
		return
	}
	b, ok := r.pending.open[in.Batch]
	if !ok {
		return
	}
	delete(r.pending.open, in.Batch)
	p.end(r, b, in, now)
	if in.Disproved {
		p.startOver(r, now)
	}
}

func (p *Plan) end(r *relayState, b *batch, in Done, now time.Time) {
	if in.Result >= Failed {
		p.pending.failed(r, b, in, now)
		return
	}
	r.pending.failures, r.pending.unsaved = 0, 0
	r.audit.reconciles = r.audit.reconciles || in.Reconciled
	if in.Result == Gaps {
		r.pending.gaps++
	}
	b.of.done(r, b)
}

func (p *Plan) expire(r *relayState, now time.Time) {
	var late []BatchID
	for id, b := range r.pending.open {
		if !now.Before(b.deadline) {
			late = append(late, id)
		}
	}
	slices.Sort(late)
	for _, id := range late {
		b := r.pending.open[id]
		delete(r.pending.open, id)
		p.emit(Cancel{Relay: r.url, Epoch: r.dial.epoch, Batch: id})
		p.end(r, b, Done{Result: Failed}, now)
	}
}

// onSaving: when saving works again, the waiting items are requested immediately.
func (p *Plan) onSaving(in Saving) {
	if p.pending.unsaving = in.Nothing; p.pending.unsaving {
		return
	}
	for _, r := range sortedBy(p.dialer.connected, byName) {
		if r.pending.late {
			r.retryBatches()
			p.markDirty(r)
		}
	}
}

func (p *Plan) onLiveClosed(now time.Time, in LiveClosed) {
	if r := p.current(in.Relay, in.Epoch); r != nil {
		p.live.closed(r, in, now)
	}
}

// onClockJumped drops all marks. After a step back, recorded times may be later than the created_at of
// new events, so catch-ups start earlier.
func (p *Plan) onClockJumped(by time.Duration) {
	p.checkpoints.settledAt = time.Time{}
	if by < 0 {
		clear(p.checkpoints.restored)
	}
	for _, u := range sortedBy(p.relays.byURL, graspsync.RelayURL.Compare) {
		r := p.relays.byURL[u]
		r.checkpoint.dirty, r.checkpoint.mark = true, time.Time{}
		switch {
		case by >= 0:
		case !r.dial.connected:
			r.dial.aliveAt, r.dial.absentSince = time.Time{}, time.Time{}
		default:
			p.polling.begin(r, r.live.poll.items(), p.now)
			if since := p.catchUp.unfetched(r); since != 0 {
				r.catchUp.missed, r.catchUp.missedAll = since+nostr.Timestamp(by/time.Second), true
				p.markDirty(r)
			}
		}
	}
}

// Kept returns the state to save of the named relays, or of all, ordered by URL.
func (p *Plan) Kept(only ...graspsync.RelayURL) []Kept { return p.checkpoints.take(only) }

// Changed returns the relays whose items or pass have changed since the last call of Kept, ordered
// by URL.
func (p *Plan) Changed() []graspsync.RelayURL { return p.checkpoints.changes() }

// Marks returns the marks of all relays with state.
func (p *Plan) Marks() map[graspsync.RelayURL]time.Time { return p.checkpoints.marks() }
