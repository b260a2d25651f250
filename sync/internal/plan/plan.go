package plan

import (
	"container/heap"
	"crypto/sha256"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/graspsync/graspsync"
)

// Config holds the constants of a [Plan]. All numbers of it must be set.
type Config struct {
	MaxDials       int           // connection attempts at once, of those that are young
	DialEvery      time.Duration // between the beginnings of two attempts, 0 for no time
	MaxConnections int           // connections, attempts included
	MaxRelays      int           // relays known
	MaxRoots       int           // root events followed per repository
	MaxAuthors     int           // authors whose deletions are asked for
	AuthorsPerPass int           // of these, at each pass over history
	MaxBatches     int           // batches at once per relay
	RebuildFilters int           // live filters of a relay before a rebuild is considered
	BatchTimeout   time.Duration // for a batch in all
	Overlap        time.Duration // how far a catch-up reaches back behind the last sign of life
	QuickReconnect time.Duration // a connection lost for longer is as good as new
	DailyMin       time.Duration // between two passes over history, drawn at random
	DailyMax       time.Duration
	RetryBase      time.Duration // before a failed batch is tried again, doubling
	RetryMax       time.Duration
	PollEvery      time.Duration // each item that finds no room live is asked for at least so often
	PollFilters    int           // more filters without room than these are followed by their kinds
	MaxNamed       int           // ids waiting to be fetched by name, per relay
	NamedIDs       int           // of these, in one query
	SweepRoots     int           // root events in rotation that a relay is asked about at each pass
	// NarrowLayer1 has layer 1 ask for announcements alone. The states of each
	// repository, in full or not, are an item of their own then.
	NarrowLayer1 bool
	// Salt goes into the hashes of [Kept]: what is on disk says nothing to strangers,
	// and nobody can make two items collide on purpose.
	Salt []byte
}

// common is what all parts of a plan share: its constants, the step that it takes, and what
// comes of that.
type common struct {
	cfg     Config
	now     time.Time // of this step
	rng     *rand.Rand
	timers  timers
	dirty   []*relay // to be looked at before the step ends
	effects []Effect
}

// Plan is the state of the machine. Make one with [New]. It has the parts that decide; what
// happens goes to those that it concerns, and each calls only parts that are named before it.
type Plan struct {
	*common
	want          *want
	owners        *owners
	known         *known
	dialer        *dialer
	checkpoint    *checkpoint
	subscriptions *subscriptions
	batches       *batches
	history       *history
	catchUp       *catchUp
	byID          *byID
	rotation      *rotation
	polling       *polling
	descendants   *descendants
	audit         *audit
	deletions     *deletions
	live          *live
	targets       *targets
	askers        []asker // those that ask first come first
}

// New returns a plan that wants nothing. rng spreads what is periodic, and draws
// the samples of the audit; the plan owns it.
func New(cfg Config, rng *rand.Rand) *Plan {
	c := &common{cfg: cfg, rng: rng}
	lots := rand.New(rand.NewChaCha8(sha256.Sum256(cfg.Salt)))
	p := &Plan{
		common:        c,
		want:          newWant(cfg.NarrowLayer1, cfg.Salt),
		owners:        newOwners(),
		known:         &known{lots: lots, relays: make(map[graspsync.RelayURL]*relay)},
		subscriptions: &subscriptions{common: c},
		batches:       &batches{common: c},
	}
	p.dialer = newDialer(c, p.owners, lots)
	p.checkpoint = newCheckpoint(c, p.want, p.known, p.dialer)
	p.history = &history{c, p.want, p.batches}
	p.catchUp = &catchUp{c, p.want, p.batches}
	p.byID = &byID{common: c, want: p.want, batches: p.batches, dialer: p.dialer}
	p.rotation = &rotation{c, p.want, p.batches}
	p.polling = &polling{c, p.want, p.batches, p.rotation}
	p.descendants = &descendants{c, p.want, p.batches, p.subscriptions}
	p.audit = &audit{c, p.want, p.batches}
	p.deletions = newDeletions(c, p.batches)
	p.live = &live{c, p.want, p.catchUp, p.polling, p.descendants, p.subscriptions}
	p.askers = []asker{
		p.catchUp, p.polling, p.byID, p.history, p.rotation, p.descendants, p.audit, p.deletions,
	}
	p.targets = &targets{
		common: c, want: p.want, known: p.known, owners: p.owners, dialer: p.dialer, byID: p.byID,
		checkpoint: p.checkpoint, descendants: p.descendants,
	}
	return p
}

// Step takes in what happened at now and returns what is to be done about it, in
// order. now must not go back.
func (p *Plan) Step(now time.Time, in Input) []Effect {
	p.now = now
	p.owners.grow(now)
	switch in := in.(type) {
	case Bootstrap:
		r := p.known.relays[in.Relay]
		if r == nil { // what an operator names does not wait for room
			r = p.targets.know(in.Relay)
		}
		r.bootstrap = true
		p.owners.table.fix(r)
		r.turn.leave() // for a better line
		p.markDirty(r)
	case Changes:
		p.targets.change(in)
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
	case Useful:
		if r := p.current(in.Relay, in.Epoch); r != nil {
			p.dialer.wasUseful(r, now)
		}
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
			p.descendants.refit(r)
		}
	case RateLimited:
		if r := p.current(in.Relay, in.Epoch); r != nil && in.Until.After(r.coolUntil) {
			r.coolUntil = in.Until
		}
	case Named:
		p.byID.named(p.known.relays[in.Relay], in.IDs)
	case Unserved:
		if r := p.known.relays[in.Relay]; r != nil {
			p.byID.unserved(r, in.IDs, now)
		}
	case Authors:
		p.deletions.add(in)
		for _, r := range sortedBy(p.dialer.connected, byName) {
			p.markDirty(r)
		}
	case Restore:
		p.owners.restore(in.Tenures, now)
		p.checkpoint.restore(in, now)
	case Settled:
		p.checkpoint.settled(in, now)
		p.owners.dropGone(now)
	case ClockJumped:
		p.onClockJumped(now, in.By)
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
	for _, r := range p.dialer.hungUp {
		p.onHungUp(r)
	}
	p.dialer.hungUp = nil
	out := p.effects
	p.effects = nil
	return out
}

// NextWake returns when the next Tick is due; false if nothing is waited for.
func (p *Plan) NextWake() (time.Time, bool) {
	at, ok := p.timers.next()
	if dial := p.dialer.nextWake(); !dial.IsZero() && (!ok || dial.Before(at)) {
		at, ok = dial, true
	}
	return at, ok
}

func (c *common) emit(e Effect) { c.effects = append(c.effects, e) }

// markDirty has [Plan.advance] look at the relay at the end of the step.
func (c *common) markDirty(r *relay) {
	if !r.dirty {
		r.dirty = true
		c.dirty = append(c.dirty, r)
	}
}

// relayOf returns a relay that a repository of this owner lists, making it known; nil if
// there are too many.
func (t *targets) relayOf(u graspsync.RelayURL, owner graspsync.PubKey, by side) *relay {
	if r, ok := t.known.relays[u]; ok {
		return r
	}
	if !t.room(owner, by) {
		t.refuse()
		return nil
	}
	return t.know(u)
}

// know makes a relay known.
func (t *targets) know(u graspsync.RelayURL) *relay {
	r := &relay{url: u, name: u.String()}
	r.claim.accounts = make(map[account]int)
	r.history = historyState{
		items: make(map[Item]status), todo: make(map[Item]struct{}), resume: make(map[Item]*cursors),
	}
	r.batches.open = make(map[BatchID]*batch)
	r.live.reset()
	r.add(Layer1, itemLayer1)
	t.known.relays[u], t.known.unordered = r, true
	r.claim.lot = t.known.lots.Uint64()
	heap.Push(&t.owners.table, r)
	t.checkpoint.recall(r)
	t.markDirty(r)
	return r
}

// current returns the relay if epoch is that of its connection, else nil.
func (p *Plan) current(u graspsync.RelayURL, epoch uint64) *relay {
	r, ok := p.known.relays[u]
	if !ok || r.dial.epoch != epoch || !(r.dial.connecting || r.dial.connected) {
		return nil
	}
	p.markDirty(r)
	return r
}

// advance does what is due for one relay and sets its next timer.
func (p *Plan) advance(r *relay, now time.Time) {
	if r.claim.listedBy == 0 && !r.bootstrap {
		p.targets.forget(r)
		if p.targets.refused {
			p.targets.refused = false
			p.emit(Incomplete{})
		}
		return
	}
	if !r.dial.connected {
		p.dialer.wait(r, now)
		return
	}
	p.expire(r, now)
	r.unpark(now)
	if !r.pass.dueAt.IsZero() && !now.Before(r.pass.dueAt) {
		p.startDaily(r, now)
	}
	p.live.follow(r, now)
	p.descendants.follow(r, now)
	p.dispatch(r, now)
	p.timers.set(r, r.nextWake(now))
}

// forget ends what there is with a relay that nothing is wanted of.
func (t *targets) forget(r *relay) {
	t.dialer.forget(r)
	t.byID.reassign(r)
	t.checkpoint.changed[r.url] = struct{}{}
	r.gone = true
	heap.Remove(&t.owners.table, r.claim.index)
	delete(t.known.relays, r.url)
	t.known.unordered = true
	t.emit(Forget{Relay: r.url})
}

// onClockJumped makes what depends on our clock conservative again. After a step
// back the times noted before lie ahead of those that events bear: whatever is
// fetched since then is fetched since earlier. What is known to be complete starts
// anew with the next Settled.
func (p *Plan) onClockJumped(now time.Time, by time.Duration) {
	back := max(0, -by)
	p.checkpoint.jumped(back)
	p.owners.jumped(by, now)
	for _, u := range sortedBy(p.known.relays, graspsync.RelayURL.Compare) {
		r := p.known.relays[u]
		r.claim.since = r.claim.since.Add(by)
		r.checkpoint.jumped(back)
		r.dial.jumped(back)
		r.live.jumped(back)
		r.descendants.jumped(back)
		r.batches.jumped(back)
		if r.catchUp.jumped(back) && r.dial.connected && !r.catchUp.missed { // what is under way looks since a wrong time
			p.catchUp.queueAll(r)
			p.markDirty(r)
		}
	}
}

// setBack moves times that are noted back.
func setBack(by time.Duration, times ...*time.Time) {
	for _, t := range times {
		if !t.IsZero() {
			*t = t.Add(-by)
		}
	}
}

// Kept returns what is worth keeping of these relays, or of all if none is named,
// ordered by URL. A relay that is asked for and not in the answer has nothing (any
// more). Items are hashed once; the cost is that of going through the items of the
// relays asked for.
func (p *Plan) Kept(only ...graspsync.RelayURL) []Kept { return p.checkpoint.take(only) }

// Changed returns the relays of which more than the mark has changed since Kept was
// last asked for them, ordered by URL: their items, when their pass began, or
// whether there is anything at all. [Plan.Marks] has the marks.
func (p *Plan) Changed() []graspsync.RelayURL { return p.checkpoint.changes() }

// Marks returns the marks of all relays of which something is kept, in no order.
func (p *Plan) Marks() iter.Seq2[graspsync.RelayURL, time.Time] { return p.checkpoint.marks() }

// Tenures returns that of all owners, those who have been here for longest first.
func (p *Plan) Tenures() []Tenure { return p.owners.listTenures() }
