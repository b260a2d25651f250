package plan

import (
	"container/heap"
	"crypto/sha256"
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

// Plan is the state of the machine. Make one with [New].
type Plan struct {
	cfg    Config
	now    time.Time // of this step
	rng    *rand.Rand
	lots   *rand.Rand // puts strangers in order, who must not know which
	want   want
	relays map[graspsync.RelayURL]*relay

	dialing         int
	dialAt          time.Time // the next attempt may begin
	dialingUnproven int       // of them
	young           youngAttempts
	unproven        int // attempts and connections of relays that never answered
	connected       map[*relay]struct{}
	unsaving        bool // nothing that comes can be saved here
	refused         bool // a relay that is wanted is not known since there were too many

	owners owners
	lines  [lines]line // of relays that wait for their turn to be dialed
	roomAt time.Time   // when room for them is looked for again

	ordered   []*relay // by name
	unordered bool     // relays have come or gone since

	authors   []graspsync.PubKey
	authorSet map[graspsync.PubKey]struct{}
	leftOut   int // authors for whom there was no room

	restored   map[graspsync.RelayURL]*restored // relays that are not known yet
	standing   map[graspsync.RelayURL]Standing  // of such
	restoredAt time.Time
	changed    map[graspsync.RelayURL]struct{} // since the last Kept
	settledAt  time.Time
	homeless   []graspsync.EventID // to be asked for by id, of the next connection

	lastEpoch uint64
	lastBatch BatchID
	lastLive  LiveID

	timers  timers
	dirty   []*relay
	effects []Effect
}

// New returns a plan that wants nothing. rng spreads what is periodic, and draws
// the samples of the audit; the plan owns it.
func New(cfg Config, rng *rand.Rand) *Plan {
	p := &Plan{
		cfg:       cfg,
		rng:       rng,
		want:      newWant(cfg.NarrowLayer1),
		relays:    make(map[graspsync.RelayURL]*relay),
		connected: make(map[*relay]struct{}),
		authorSet: make(map[graspsync.PubKey]struct{}),
		changed:   make(map[graspsync.RelayURL]struct{}),
		owners:    owners{of: make(map[graspsync.PubKey]*owner), tenures: make(map[graspsync.PubKey]tenure)},
	}
	seed := sha256.Sum256(cfg.Salt)
	p.lots = rand.New(rand.NewChaCha8(seed))
	for i := range p.lines {
		p.lines[i].number, p.lines[i].lots = i, p.lots
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
		r := p.relays[in.Relay]
		if r == nil { // what an operator names does not wait for room
			r = p.know(in.Relay)
		}
		r.bootstrap = true
		p.owners.table.fix(r)
		r.leave() // for a better line
		p.touch(r)
	case Changes:
		p.change(in)
	case Snapshot:
		p.replace(in)
	case Connected:
		p.onConnected(now, in)
	case DialFailed:
		p.onDialFailed(now, in)
	case Lost:
		p.onLost(in)
	case Useful:
		p.onUseful(now, in)
	case Done:
		p.onDone(now, in)
	case Skipped:
		p.onSkipped(in)
	case Saving:
		p.onSaving(in)
	case LiveClosed:
		p.onLiveClosed(now, in)
	case LimitsChanged:
		p.onLimitsChanged(in)
	case RateLimited:
		if r := p.current(in.Relay, in.Epoch); r != nil && in.Until.After(r.coolUntil) {
			r.coolUntil = in.Until
		}
	case Named:
		p.onNamed(in)
	case Unserved:
		p.onUnserved(now, in)
	case Authors:
		p.addAuthors(in)
	case Restore:
		p.restore(now, in)
	case Settled:
		p.onSettled(now, in)
	case ClockJumped:
		p.onClockJumped(now, in)
	case Tick:
		for r := p.timers.due(now); r != nil; r = p.timers.due(now) {
			p.touch(r)
		}
	}
	for len(p.dirty) > 0 {
		r := p.dirty[0]
		p.dirty = p.dirty[1:]
		r.dirty = false
		if !r.gone {
			p.act(r, now)
		}
	}
	p.dial(now)
	out := p.effects
	p.effects = nil
	return out
}

// NextWake returns when the next Tick is due; false if nothing is waited for.
func (p *Plan) NextWake() (time.Time, bool) {
	at, ok := p.timers.next()
	earlier := func(t time.Time) {
		if !t.IsZero() && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	if p.mayDial() && !p.roomAt.IsZero() {
		look := p.roomAt
		if p.dialAt.After(look) {
			look = p.dialAt
		}
		earlier(look)
	}
	earlier(p.patienceEnds())
	if p.anyWaits() && p.dialAt.After(p.now) {
		earlier(p.dialAt)
	}
	return at, ok
}

func (p *Plan) emit(e Effect) { p.effects = append(p.effects, e) }

// touch has act look at the relay at the end of the step.
func (p *Plan) touch(r *relay) {
	if !r.dirty {
		r.dirty = true
		p.dirty = append(p.dirty, r)
	}
}

// relayOf returns a relay that a repository of this owner lists, making it known; nil if
// there are too many.
func (p *Plan) relayOf(u graspsync.RelayURL, owner graspsync.PubKey, by side) *relay {
	if r, ok := p.relays[u]; ok {
		return r
	}
	if !p.room(owner, by) {
		p.refuse()
		return nil
	}
	return p.know(u)
}

// know makes a relay known.
func (p *Plan) know(u graspsync.RelayURL) *relay {
	r := &relay{url: u, name: u.String()}
	r.claim.accounts = make(map[account]int)
	r.history = historyState{
		items: make(map[Item]status), todo: make(map[Item]struct{}), resume: make(map[Item]*cursors),
	}
	r.batches.open = make(map[BatchID]*batch)
	r.live.reset()
	r.add(Layer1, itemLayer1)
	p.relays[u], p.unordered = r, true
	r.claim.lot = p.lots.Uint64()
	heap.Push(&p.owners.table, r)
	p.recall(r)
	p.touch(r)
	return r
}

// current returns the relay if epoch is that of its connection, else nil.
func (p *Plan) current(u graspsync.RelayURL, epoch uint64) *relay {
	r, ok := p.relays[u]
	if !ok || r.dial.epoch != epoch || !(r.dial.connecting || r.dial.connected) {
		return nil
	}
	p.touch(r)
	return r
}

// act does what is due for one relay and sets its next timer.
func (p *Plan) act(r *relay, now time.Time) {
	if r.claim.listedBy == 0 && !r.bootstrap {
		p.forget(r)
		if p.refused {
			p.refused = false
			p.emit(Incomplete{})
		}
		return
	}
	if !r.dial.connected {
		p.actDisconnected(r, now)
		return
	}
	p.expire(r, now)
	r.unpark(now)
	if !r.pass.dueAt.IsZero() && !now.Before(r.pass.dueAt) {
		p.startDaily(r, now)
	}
	p.follow(r, now)
	p.followDescendants(r, now)
	p.dispatch(r, now)
	p.arm(r, now)
}

// forget ends what there is with a relay that nothing is wanted of.
func (p *Plan) forget(r *relay) {
	if r.dial.connecting || r.dial.connected {
		p.emit(Hangup{Relay: r.url, Epoch: r.dial.epoch})
	}
	switch {
	case r.dial.connecting:
		p.dialEnded(r)
	case r.dial.connected:
		delete(p.connected, r)
	}
	p.leaveUnproven(r)
	p.dropNamed(r)
	p.changed[r.url] = struct{}{}
	r.gone = true
	r.leave()
	heap.Remove(&p.owners.table, r.claim.index)
	p.timers.set(r, time.Time{})
	delete(p.relays, r.url)
	p.unordered = true
	p.emit(Forget{Relay: r.url})
}

// arm sets the timer for the next thing that becomes due on a connection.
func (p *Plan) arm(r *relay, now time.Time) {
	var next time.Time
	consider := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	consider(r.pass.dueAt)
	for _, b := range r.batches.open {
		consider(b.deadline)
	}
	for _, k := range r.history.parked {
		consider(k.until)
	}
	consider(r.live.retryAt)
	if !r.live.postponed.IsZero() {
		consider(r.live.postponed.Add(mostPostponed))
	}
	consider(r.coolUntil)
	for _, k := range r.live.resting {
		consider(k.until)
	}
	consider(r.deletions.retryAt)
	if r.live.poll != nil {
		consider(r.live.poll.at)
	}
	if r.byID.ids != nil {
		consider(r.byID.ids.retryAt)
	}
	consider(r.rotation.retryAt)
	r.considerDescendants(consider)
	p.timers.set(r, next)
}
