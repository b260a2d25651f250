package plan

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
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
	p.dial() // the relays whose turn it is
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

// withJitter adds a random part of up to 1/10, so that servers do not reconnect simultaneously.
func (p *Plan) withJitter(d time.Duration) time.Duration {
	return d + time.Duration(p.rng.Int64N(int64(d)/10+1))
}

func (p *Plan) retryAfter(failures int) time.Duration {
	return p.withJitter(backoff.Doubled(p.cfg.RetryBase, p.cfg.RetryMax, failures))
}

// apply applies a batch window. Repositories come first because all other changes refer to them.
func (in Changes) apply(p *Plan) {
	for _, c := range in.Repos {
		p.setRepo(c)
	}
	for _, c := range in.Roots {
		at := uint32(min(max(c.CreatedAt, 0), math.MaxUint32))
		p.setThread(itemInfo{kind: itemRoot, of: filters.Descendant{ID: c.ID}, at: at}, p.repos.known(c.Repos))
	}
	for _, c := range in.Descendants {
		p.setThread(itemInfo{kind: itemDescendant, of: c.Of}, p.repos.known(c.Repos))
	}
}

// apply replaces everything, starting with the newest root events, see isTooOld.
func (in Snapshot) apply(p *Plan) {
	in.Roots = slices.SortedStableFunc(slices.Values(in.Roots), func(a, b RootChange) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	if len(p.repos.byRef)+len(p.repos.threads) == 0 {
		Changes(in).apply(p)
		return
	}
	repos := make(map[graspsync.RepoRef]struct{}, len(in.Repos))
	for _, c := range in.Repos {
		repos[c.Ref] = struct{}{}
	}
	threads := make(map[filters.Descendant]struct{}, len(in.Roots)+len(in.Descendants))
	for _, c := range in.Roots {
		threads[filters.Descendant{ID: c.ID}] = struct{}{}
	}
	for _, c := range in.Descendants {
		threads[c.Of] = struct{}{}
	}
	Changes(in).apply(p)
	for _, of := range sortedBy(without(p.repos.threads, threads), filters.Descendant.Compare) {
		p.setThread(p.repos.infos[p.repos.threads[of]], nil)
	}
	for _, ref := range sortedBy(without(p.repos.byRef, repos), graspsync.RepoRef.Compare) {
		p.setRepo(RepoChange{Ref: ref})
	}
}

// setRepo sets the relays and the level of a repository, and its items at these relays.
func (p *Plan) setRepo(c RepoChange) {
	if c.Level == LevelNone {
		c.Relays = nil
	}
	r := p.repos.repoOf(c.Ref)
	before, level := r.relays, r.level
	p.setRelays(r, c.Relays)
	r.level = c.Level
	for _, rel := range slices.Concat(before, r.relays) {
		same := r.level == level && slices.Contains(before, rel) == slices.Contains(r.relays, rel)
		if rel.gone || same {
			continue
		}
		p.retarget(r.item, rel)
		for _, threads := range r.threads {
			for it := range threads {
				p.retarget(it, rel)
			}
		}
	}
	p.dropOwner(r)
	p.repos.drop(r)
}

// retarget adds an item to the targets of a relay, or removes it.
func (p *Plan) retarget(it Item, rel *relayState) {
	if p.repos.isTarget(it, rel) {
		rel.add(it)
	} else {
		rel.remove(it)
	}
	p.markDirty(rel)
}

func (p *Plan) setRelays(r *repo, relays []graspsync.RelayURL) {
	after := make([]*relayState, 0, len(relays))
	for _, u := range relays {
		rel := p.relayOf(u, r.ref.Owner) // may evict a relay, even of relays
		if rel == nil || slices.Contains(after, rel) {
			continue
		}
		after = append(after, rel)
		if !slices.Contains(r.relays, rel) {
			p.linkRelay(r, rel)
			r.relays = append(slices.Clone(r.relays), rel)
		}
	}
	for _, rel := range r.relays {
		if !slices.Contains(after, rel) {
			p.unlinkRelay(r, rel)
		}
	}
	r.relays = slices.DeleteFunc(after, func(rel *relayState) bool { return rel.gone })
}

func (p *Plan) linkRelay(r *repo, rel *relayState) {
	if o := p.owners.list(r, rel); rel.listed.owners[o] == 1 && len(rel.dial.places) > 0 && !rel.bootstrap {
		p.queue.join(rel, o)
	}
}

func (p *Plan) unlinkRelay(r *repo, rel *relayState) {
	r.relays = slices.DeleteFunc(slices.Clone(r.relays), func(o *relayState) bool { return o == rel })
	if o, last := p.owners.unlist(r, rel); last {
		p.queue.quit(rel, o)
	}
}

func (p *Plan) dropOwner(r *repo) {
	if len(r.relays) > 0 {
		return
	}
	if o := p.owners.of[r.ref.Owner]; o != nil {
		delete(o.repos, r)
		p.owners.drop(o)
	}
}

// relayOf returns a relay that a repository of this owner lists, or nil if there is no room among
// Config.MaxRelays. A full table evicts the oldest relay without a connection of the owner with most.
func (p *Plan) relayOf(u graspsync.RelayURL, key graspsync.PubKey) *relayState {
	r := p.relays[u]
	if r != nil && r.listed.record != nil {
		return r
	}
	known := r != nil
	if !known {
		r = p.newRelay(u)
	}
	o := p.owners.owner(key)
	evicted, ok := p.owners.enter(r, o)
	for _, gone := range evicted {
		p.evict(gone)
	}
	if !ok && !known {
		p.owners.drop(o)
		p.dropped("relays", 1)
		return nil
	}
	if !known {
		p.know(r)
	}
	return r
}

func (p *Plan) newRelay(u graspsync.RelayURL) *relayState {
	r := &relayState{url: u, name: u.String(), host: u.HostPort().Host}
	r.listed.owners = make(map[*dialOwner]int)
	r.history = historyState{repos: p.repos, items: make(map[Item]itemStatus)}
	r.pending.open = make(map[BatchID]*batch)
	r.live.reset()
	r.add(Layer1)
	return r
}

func (p *Plan) know(r *relayState) {
	p.relays[r.url] = r
	p.markDirty(r)
}

func (p *Plan) forget(r *relayState) {
	if r.dial.connecting || r.dial.connected {
		p.emit(Hangup{Relay: r.url, Epoch: r.dial.epoch})
	}
	switch {
	case r.dial.connecting:
		p.attemptEnded(r)
	case r.dial.connected:
		p.connectionEnded(r)
	}
	p.queue.leave(r)
	if ids := sortedBy(r.byID.known, graspsync.EventID.Compare); len(ids) > 0 {
		p.fetchAnywhere(ids)
	}
	p.checkpoints.forgotten[r.url] = nil
	delete(p.checkpoints.restored, r.url)
	r.gone = true
	delete(p.relays, r.url)
	p.emit(Forget{Relay: r.url})
}

func (p *Plan) evict(rel *relayState) {
	var listing []*repo
	for o := range rel.listed.owners {
		for r := range o.repos {
			if slices.Contains(r.relays, rel) {
				listing = append(listing, r)
			}
		}
	}
	for _, r := range listing {
		p.unlinkRelay(r, rel)
		p.dropOwner(r)
	}
	p.forget(rel)
	p.dropped("relays", 1)
}

// setThread sets the repositories of a root event or thread event. The newest MaxRoots root events
// of a repository are items of layer 3, older root events of layer 4.
func (p *Plan) setThread(in itemInfo, after []*repo) {
	x := p.repos
	it, known := x.threads[in.of]
	var before []*repo
	if known {
		before = x.reposOf(it)
	}
	if in.kind == itemRoot && slices.ContainsFunc(after, func(r *repo) bool { return p.isTooOld(in, r) }) {
		in.kind = itemDescendant
		after = slices.DeleteFunc(after, func(r *repo) bool { return !slices.Contains(before, r) && !p.hasRoom(r) })
	}
	was := x.infos[it].kind
	switch {
	case len(after) == 0 && (!known || was == itemRoot && in.kind == itemDescendant):
		return // the event is unknown, or a root event now
	case known && (len(after) == 0 || was == in.kind):
		p.move(it, before, after)
	case known:
		p.move(it, before, nil)
		in.hex = x.infos[it].hex
		x.infos[it] = in
		delete(x.hashes, it)
		p.move(it, nil, after)
	default:
		in.hex = in.of.ID.String()
		it = x.intern(in)
		x.threads[in.of] = it
		p.move(it, nil, after)
	}
	if len(after) == 0 {
		delete(x.threads, in.of)
		x.release(it)
	}
	for _, r := range before {
		x.drop(r)
	}
	p.displace(after)
}

func (p *Plan) move(it Item, before, after []*repo) {
	if slices.Equal(before, after) {
		return
	}
	p.repos.link(it, before, after)
	for _, repos := range [][]*repo{before, after} {
		for _, r := range repos {
			for _, rel := range r.relays {
				p.retarget(it, rel)
			}
		}
	}
}

// olderPerRoot is the maximum number of items of layer 4 per root event of a repository, if the
// items are older root events.
const olderPerRoot = 10

func (p *Plan) hasRoom(r *repo) bool {
	if len(r.threads[threadTier]) < olderPerRoot*p.cfg.MaxRoots {
		return true
	}
	p.dropped("roots", 1)
	return false
}

func (p *Plan) isTooOld(in itemInfo, r *repo) bool {
	if len(r.threads[mainTier]) < p.cfg.MaxRoots {
		return false
	}
	it, known := p.repos.threads[in.of]
	return !(known && has(r.threads[mainTier], it)) && compareRoots(p.repos.infos[p.repos.oldestRoot(r)], in) > 0
}

// displace moves the oldest root events of repositories that have too many to layer 4.
func (p *Plan) displace(repos []*repo) {
	for _, r := range repos {
		if len(r.threads[mainTier]) > p.cfg.MaxRoots {
			it := p.repos.oldestRoot(r)
			older := p.repos.infos[it]
			after := slices.DeleteFunc(p.repos.reposOf(it), func(r *repo) bool { return !p.hasRoom(r) })
			if len(after) > 0 {
				older.kind = itemDescendant
			}
			p.setThread(older, after)
		}
	}
}

func (r *relayState) add(it Item) {
	if r.history.add(it) && r.dial.connected { // on connecting, all items become missing
		lazy.Put(&r.live.missing, it, struct{}{})
	}
}

// remove removes an item from the targets. A batch continues without it, and its subscription stays
// open.
func (r *relayState) remove(it Item) {
	was := r.history.remove(it)
	if was == inFlight {
		r.pending.without(it)
	}
	if has(r.live.missing, it) {
		drop(&r.live.missing, it)
	} else if was != 0 && r.dial.connected {
		r.live.unwanted++
	}
	drop(&r.live.refusedItems, it)
}

func (r *repo) follows(rel *relayState) bool {
	return r.level == LevelFull && slices.Contains(r.relays, rel)
}

func (x *repoSyncIndex) isTarget(it Item, rel *relayState) bool {
	r := x.infos[it].repo
	return r != nil && r.follows(rel) || slices.ContainsFunc(x.other[it], func(r *repo) bool { return r.follows(rel) })
}

func (p *Plan) advance(r *relayState) {
	if r.listed.repos == 0 && !r.bootstrap {
		p.forget(r)
		return
	}
	if !r.dial.connected {
		p.awaitDial(r) // dial follows at the end of the step
		return
	}
	p.expire(r)
	if !r.passDueAt.IsZero() && !p.now.Before(r.passDueAt) {
		p.startDaily(r)
	}
	p.subscribe(r) // opens subscriptions for new items
	p.computeActions(r)
	p.wake(r, r.nextWake(p.now))
}

// computeActions starts batches in this order, until a relay has MaxBatches. Each function starts at
// most one and reports whether there was one to start.
func (p *Plan) computeActions(r *relayState) {
	if p.now.Before(r.coolUntil) {
		return
	}
	for len(r.pending.open) < p.cfg.MaxBatches &&
		(p.startCatchUp(r) || // events that may have been missed
			p.startPoll(r) || // new events of items without a subscription
			p.startByID(r) ||
			p.repeat(r) || // a failed batch
			p.startHistory(r) || // target - pending - confirmed
			p.startAudit(r) || // a sample, by pages
			p.startDeletions(r)) { // by author
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
		r.deletions.at = 0 // every author has a turn, new authors last
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
	r.catchUp = catchUpState{missed: r.missingSince()}
	r.pending.interrupt(cursors)
	r.live.reset()
}

func (Saves) apply(p *Plan) {
	for _, r := range sortedBy(p.connected, byName) {
		if slices.ContainsFunc(r.pending.parked, func(b *batch) bool { return b.unsaved }) {
			r.retryBatches()
			p.markDirty(r)
		}
	}
}

func (in RateLimited) apply(p *Plan) {
	if r := p.current(in.Relay, in.Epoch); r != nil && in.Until.After(r.coolUntil) {
		r.coolUntil = in.Until
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
