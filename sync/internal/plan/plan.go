package plan

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// Config holds the constants of a [Plan]. All numbers must be set.
type Config struct {
	MaxDials       int // concurrent attempts
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

// Plan decides which requests are sent to which relay. Its state per relay is in relayState.
type Plan struct {
	cfg     Config
	now     time.Time
	rng     *rand.Rand
	dirty   []*relayState
	wakeAt  time.Time // of the next timer of a relay, or earlier; zero: none is set
	effects []Effect

	repos  *repoSyncIndex
	relays relaySyncIndex
	owners *ownerShares

	queue     dialQueue
	attempts  []*relayState // in progress, oldest first
	connected map[*relayState]struct{}
	dialAt    time.Time // earliest start of the next attempt
	roomAt    time.Time
	hungUp    []*relayState // closed in this step to make room
	lastEpoch uint64

	lastBatch   BatchID
	lastLive    LiveID
	authors     authorSet
	unassigned  []graspsync.EventID // to request by id from the next relay that connects
	checkpoints checkpoints
}

// New returns an empty plan. The plan owns rng, which spreads periodic work and draws samples.
func New(cfg Config, rng *rand.Rand) *Plan {
	return &Plan{
		cfg: cfg, rng: rng, repos: newRepoSyncIndex(cfg.Salt), relays: make(relaySyncIndex), owners: newOwners(cfg.MaxRelays),
		connected:   make(map[*relayState]struct{}),
		authors:     authorSet{set: make(map[graspsync.PubKey]struct{})},
		checkpoints: checkpoints{forgotten: make(map[graspsync.RelayURL]*Kept)},
	}
}

// Step applies an input and returns the effects in order. now must not decrease.
func (p *Plan) Step(now time.Time, in Input) []Effect {
	p.now = now
	in.apply(p)
	for len(p.dirty) > 0 {
		r := p.dirty[0]
		p.dirty = p.dirty[1:]
		r.dirty = false
		if !r.gone {
			p.advance(r)
		}
	}
	p.dial()
	for _, r := range p.hungUp {
		p.disconnected(r, nil, p.readUntil(r))
	}
	out := p.effects
	p.hungUp, p.effects = nil, nil
	return out
}

func (p *Plan) emit(e Effect) { p.effects = append(p.effects, e) }

func (p *Plan) dropped(reason string, n int) {
	if n > 0 {
		p.emit(Dropped{Reason: reason, Count: n})
	}
}

// markDirty schedules advance at the end of the step.
func (p *Plan) markDirty(r *relayState) {
	if !r.dirty {
		r.dirty = true
		p.dirty = append(p.dirty, r)
	}
}

// longer adds a random part of up to 1/10, so that servers do not reconnect simultaneously.
func (p *Plan) longer(d time.Duration) time.Duration {
	return d + time.Duration(p.rng.Int64N(int64(d)/10+1))
}

func (p *Plan) retryAfter(failures int) time.Duration {
	return p.longer(backoff.Doubled(p.cfg.RetryBase, p.cfg.RetryMax, failures))
}

func (p *Plan) advance(r *relayState) {
	if r.listed.repos == 0 && !r.bootstrap {
		p.forget(r)
		return
	}
	if !r.dial.connected {
		p.awaitDial(r)
		return
	}
	p.expire(r)
	if !r.passDueAt.IsZero() && !p.now.Before(r.passDueAt) {
		p.startDaily(r)
	}
	p.follow(r)
	p.computeActions(r)
	p.wake(r, r.nextWake(p.now))
}

// computeActions starts batches. Missed events and events by id come first, then failed batches, then
// target - pending - confirmed.
func (p *Plan) computeActions(r *relayState) {
	if p.now.Before(r.coolUntil) {
		return
	}
	for len(r.pending.open) < p.cfg.MaxBatches && (p.startCatchUp(r) || p.startPoll(r) || p.startByID(r) || p.repeat(r) ||
		p.startHistory(r) || p.startAudit(r) || p.startDeletions(r)) {
	}
}

// wake sets the time of the next advance of a relay. Zero means none.
func (p *Plan) wake(r *relayState, at time.Time) {
	if r.wakeAt = at; !at.IsZero() && (p.wakeAt.IsZero() || at.Before(p.wakeAt)) {
		p.wakeAt = at
	}
}

func (Tick) apply(p *Plan) {
	if p.wakeAt.IsZero() || p.now.Before(p.wakeAt) {
		return
	}
	p.wakeAt = time.Time{}
	due := make(map[*relayState]struct{})
	for _, r := range p.relays {
		switch {
		case r.wakeAt.IsZero():
		case p.now.Before(r.wakeAt):
			p.wake(r, r.wakeAt)
		default:
			r.wakeAt = time.Time{}
			due[r] = struct{}{}
		}
	}
	for _, r := range sortedBy(due, byName) {
		p.markDirty(r)
	}
}

// NextWake returns when the next Tick is due, or false if none is. It may be too early.
func (p *Plan) NextWake() (time.Time, bool) {
	at := p.wakeAt
	if dial := p.nextDial(); !dial.IsZero() && (at.IsZero() || dial.Before(at)) {
		at = dial
	}
	return at, !at.IsZero()
}

func (p *Plan) current(u graspsync.RelayURL, epoch uint64) *relayState {
	r, ok := p.relays[u]
	if !ok || r.dial.epoch != epoch || !(r.dial.connecting || r.dial.connected) {
		return nil
	}
	p.markDirty(r)
	return r
}

func (in Connected) apply(p *Plan) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || !r.dial.connecting {
		return
	}
	p.dialed(r)
	r.limits = in.Limits
	r.live.connected()
	for it := range r.history.items {
		lazy.Put(&r.live.missing, it, struct{}{})
	}
	p.resume(r)
	if r.dial.aliveAt.IsZero() || r.dial.longAbsent(p.now, p.cfg.QuickReconnect) {
		if !r.dial.aliveAt.IsZero() {
			p.emit(Reset{Relay: r.url})
		}
		p.startFull(r)
	} else {
		p.missedSince(r, r.dial.aliveAt)
		p.catchUpAll(r)
	}
	r.dial.aliveAt, r.dial.absentSince = p.now, time.Time{}
	if ids := p.unassigned; len(ids) > 0 {
		p.unassigned = nil
		p.fetchAnywhere(ids)
	}
}

func (p *Plan) startFull(r *relayState) {
	r.pending.gaps, r.pending.failures = 0, 0
	r.catchUp = catchUpState{}
	r.pending.parked = slices.DeleteFunc(r.pending.parked, (*batch).isHistory)
	for it := range r.history.items {
		r.history.change(it, todo)
	}
	p.passStarted(r)
}

func (p *Plan) startDaily(r *relayState) {
	p.emit(Reset{Relay: r.url, Daily: true})
	r.pending.gaps, r.pending.failures = 0, 0
	r.pending.unpark()
	r.history.redo(slices.Collect(maps.Keys(r.history.items)))
	p.passStarted(r)
}

// startOver also fetches the items in flight again, because events were missed.
func (p *Plan) startOver(r *relayState) {
	for _, b := range r.pending.all() {
		if b.isHistory() {
			p.done(r, b)
			b.items = nil
		}
	}
	p.startDaily(r)
}

func (p *Plan) passStarted(r *relayState) {
	r.deletions.asked = 0
	if len(p.authors.list) <= p.cfg.AuthorsPerPass {
		r.deletions.at = 0 // every author has a turn, new ones last
	}
	r.passAt, r.checkpoint.dirty = p.now, true
	r.auditDue = r.reconciles
	r.passDueAt = p.nextPass(p.now)
}

func (p *Plan) nextPass(passAt time.Time) time.Time {
	spread := p.cfg.DailyMax - p.cfg.DailyMin
	return passAt.Add(p.cfg.DailyMin + time.Duration(p.rng.Int64N(int64(spread)+1)))
}

func (in Lost) apply(p *Plan) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || !r.dial.connected {
		return
	}
	r.dial.retryAt = in.RetryAt
	p.connectionEnded(r)
	p.disconnected(r, in.Cursors, in.AliveAt)
	r.dial.absentSince = in.AliveAt
}

func (p *Plan) disconnected(r *relayState, cursors map[BatchID][]Cursor, aliveAt time.Time) {
	p.markLost(r, aliveAt)
	r.dial.aliveAt = aliveAt
	r.catchUp = catchUpState{missed: r.unfetched()}
	r.pending.interrupt(cursors)
	r.live.reset()
}

func (in Done) apply(p *Plan) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || r.pending.open[in.Batch] == nil {
		return
	}
	b := r.pending.open[in.Batch]
	delete(r.pending.open, in.Batch)
	if p.end(r, b, in); in.Disproved {
		p.startOver(r)
	}
}

func (p *Plan) end(r *relayState, b *batch, in Done) {
	if in.Result >= Failed {
		p.failed(r, b, in)
		return
	}
	r.pending.failures = 0
	r.reconciles = r.reconciles || in.Reconciled
	if in.Result == Gaps {
		r.pending.gaps++
	}
	p.done(r, b)
}

func (p *Plan) expire(r *relayState) {
	for _, id := range slices.Sorted(maps.Keys(r.pending.open)) {
		b := r.pending.open[id]
		if p.now.Before(b.Deadline.Add(graceAfterDeadline)) {
			continue
		}
		delete(r.pending.open, id)
		p.emit(Cancel{Relay: r.url, Epoch: r.dial.epoch, Batch: id})
		p.end(r, b, Done{Result: Failed})
	}
}

func (Saves) apply(p *Plan) {
	for _, r := range sortedBy(p.connected, byName) {
		if slices.ContainsFunc(r.pending.parked, func(b *batch) bool { return b.unsaved }) {
			r.retryBatches()
			p.markDirty(r)
		}
	}
}

func (in Skipped) apply(p *Plan) {
	r := p.current(in.Relay, in.Epoch)
	switch {
	case r == nil || !r.dial.connected:
	case r.catchUp.missed != 0: // one catch-up follows when the missing items are followed
		p.missedSince(r, in.Since)
	default:
		p.catchUp(r, r.history.partlyFetched(), p.since(in.Since))
	}
}

func (in RateLimited) apply(p *Plan) {
	if r := p.current(in.Relay, in.Epoch); r != nil && in.Until.After(r.coolUntil) {
		r.coolUntil = in.Until
	}
}

func (in Named) apply(p *Plan) {
	if r := p.relays[in.Relay]; r != nil {
		p.fetch(r, in.IDs)
	} else {
		p.fetchAnywhere(in.IDs)
	}
}

func (in Unserved) apply(p *Plan) {
	if r := p.relays[in.Relay]; r != nil {
		p.unserved(r, in.IDs)
	}
}

// apply drops all marks. After a step back, recorded times may be later than the created_at of new
// events, so all history is fetched again.
func (in ClockJumped) apply(p *Plan) {
	p.checkpoints.settledAt = time.Time{}
	if in.By < 0 {
		clear(p.checkpoints.restored)
	}
	for _, r := range slices.SortedFunc(maps.Values(p.relays), byName) {
		r.checkpoint.dirty, r.checkpoint.mark = true, time.Time{}
		if in.By >= 0 {
			continue
		}
		for _, g := range r.live.poll.groups {
			g.since = p.now
		}
		for _, b := range r.pending.all() {
			b.begun = p.now
		}
		if r.dial.connected {
			p.startOver(r)
			p.markDirty(r)
		} else {
			r.dial.aliveAt, r.dial.absentSince = time.Time{}, time.Time{}
		}
	}
}
