package plan

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/wire"
)

// rotateEvery is the time between two requests of the rotation.
const rotateEvery = time.Minute

// leastCompared is the minimum number of items in a reconciliation (NIP-77).
const leastCompared = filters.MaxValues / 4

// Layer 4 contains the descendants: replies to repositories and root events, replies to these
// replies, and so on. Anyone can add any number of replies, so layer 4 uses only the resources that
// layers 1 to 3 leave: spare subscriptions and idle time. Descendants are in groups. The replies to
// a new group are fetched once. Afterwards the group is followed live if there is room, else
// requested in rotation. Descendants do not count for the synced state of a relay.

// threads fetches and follows layer 4, within [relayState.descRoom] and
// [relayState.othersFollowed].
type threads struct {
	*core
	repos         *repoSyncIndex
	pending       *pendingSyncIndex
	subscriptions *subscriptions
}

type threadState struct {
	groups  []*threadGroup
	groupOf map[Item]*threadGroup
	turnAt  time.Time // the next turn of the rotation; zero: no group rotates
	running bool      // a request is in progress; at most one
	retryAt time.Time // no request before, after a failure
	liveAt  time.Time // no subscription is opened before, because the relay closed one
	refused int       // consecutive subscriptions that the relay closed
}

// threadGroup is a chunk of items that are requested and followed together.
type threadGroup struct {
	items    []Item
	since    time.Time // all earlier events were fetched
	want     Kind      // of the next request: History if items are new, DailyHistory, or Recent
	due      bool      // the group does not wait for its turn
	running  bool
	triedAt  time.Time // start of the last request
	begun    time.Time // like triedAt, but of the first attempt while resume is set
	resume   *batchProgress
	subs     []LiveID // empty: not followed live
	filters  int      // of the subscriptions
	bytes    int
	outdated bool // the subscriptions lack items
}

// followed reports whether live subscriptions cover all items.
func (g *threadGroup) followed() bool { return len(g.subs) > 0 && !g.outdated }

// complete reports whether all events until now were fetched or received live.
func (g *threadGroup) complete() bool {
	return g.followed() && g.want != History && !g.due && !g.running
}

// rotates reports whether a group needs requests in rotation.
func (g *threadGroup) rotates() bool { return !g.followed() || g.want == DailyHistory }

func (g *threadGroup) isDue() bool { return g.due }

func (ds *threads) add(r *relayState, it Item) {
	d := &r.threads
	if d.groupOf[it] != nil {
		return
	}
	if n := len(d.groups); n == 0 || len(d.groups[n-1].items) >= filters.MaxValues {
		d.groups = append(d.groups, &threadGroup{})
	}
	g := d.groups[len(d.groups)-1]
	g.items = append(g.items, it)
	g.want, g.due, g.outdated, g.resume = History, true, true, nil
	if d.groupOf == nil {
		d.groupOf = make(map[Item]*threadGroup)
	}
	d.groupOf[it] = g
	ds.markDirty(r)
}

// remove removes an item. The subscriptions of its group do not change.
func (ds *threads) remove(r *relayState, it Item) {
	d := &r.threads
	g := d.groupOf[it]
	if g == nil {
		return
	}
	delete(d.groupOf, it)
	g.items = slices.DeleteFunc(g.items, func(o Item) bool { return o == it })
	if len(g.items) == 0 {
		ds.close(r, g, ds.now)
		d.groups = slices.DeleteFunc(d.groups, func(o *threadGroup) bool { return o == g })
	}
	ds.markDirty(r)
}

func (ds *threads) due(r *relayState, now time.Time) bool {
	d := &r.threads
	if d.running || now.Before(d.retryAt) {
		return false
	}
	if !slices.ContainsFunc(d.groups, (*threadGroup).rotates) {
		d.turnAt = time.Time{}
	} else if d.turnAt.IsZero() {
		d.turnAt = now.Add(ds.longer(rotateEvery))
	}
	return slices.ContainsFunc(d.groups, (*threadGroup).isDue) || !d.turnAt.IsZero() && !now.Before(d.turnAt)
}

// turn returns the group to request that has waited longest, or nil. It is a due group, or once per
// minute a group that rotates. So a group that always fails does not block others.
func (ds *threads) turn(d *threadState, now time.Time) (next *threadGroup) {
	among := (*threadGroup).isDue
	if !d.turnAt.IsZero() && !now.Before(d.turnAt) {
		d.turnAt = now.Add(ds.longer(rotateEvery))
		among = (*threadGroup).rotates
	}
	for _, g := range d.groups {
		if among(g) && (next == nil || g.triedAt.Before(next.triedAt)) {
			next = g
		}
	}
	return next
}

func (ds *threads) start(r *relayState, now time.Time) {
	d := &r.threads
	g := ds.turn(d, now)
	if g == nil {
		return
	}
	b := &batch{of: ds, kind: g.want, group: g, items: slices.Clone(g.items)}
	var since nostr.Timestamp
	if b.kind == Recent {
		since = nostr.Timestamp(g.since.Add(-ds.cfg.Overlap).Unix())
	}
	g.want, g.triedAt = Recent, now
	if g.resume == nil { // otherwise the attempt continues with older events
		g.due, g.begun = false, now
	}
	var qs []Query
	if qs, b.roles = ds.pending.queries(r, ds.repos.itemFilters(b.items), since, g.resume); len(qs) == 0 {
		ds.done(r, b, false)
		return
	}
	for i := range qs { // a comparison costs more than a few events
		qs[i].NoNegentropy = b.kind == Recent || len(b.items) < leastCompared
	}
	d.running, g.running = true, true
	ds.pending.start(r, b, qs, now)
}

func (ds *threads) done(r *relayState, b *batch, _ bool) {
	g := b.group
	r.threads.running, r.threads.retryAt = false, time.Time{}
	g.running, g.resume, g.since = false, nil, g.begun
}

// failed requests the group of a failed batch again, not before until.
func (ds *threads) failed(r *relayState, b *batch, in Done, until time.Time) {
	ds.lost(r, b, in.Cursors)
	r.threads.retryAt = until
}

func (ds *threads) lost(r *relayState, b *batch, got []Cursor) {
	g := b.group
	r.threads.running, g.running, g.due = false, false, true
	if b.kind == Recent || g.want == History {
		g.resume = nil // newer events are requested too
	} else {
		g.resume = merge(g.resume, b.roles, got, false)
	}
	g.want = min(g.want, b.kind)
}

// skipped requests the dropped live events since a moment.
func (ds *threads) skipped(r *relayState, since time.Time) {
	for _, g := range r.threads.groups {
		if len(g.subs) > 0 {
			if g.complete() || since.Before(g.since) {
				g.since = since
			}
			g.due = true
		}
	}
}

// follow follows as many groups live as have room.
func (ds *threads) follow(r *relayState, now time.Time) {
	d := &r.threads
	ds.makeWay(r, len(r.live.subs), r.live.size(), len(r.live.subs)+r.descRoom())
	if now.Before(d.liveAt) || now.Before(r.coolUntil) || !r.othersFollowed(now) {
		return
	}
	for _, g := range d.groups {
		if g.followed() {
			continue
		}
		if len(g.subs) == 0 && d.liveSubs() >= r.descRoom() {
			return
		}
		var fs []nostr.Filter
		for _, f := range ds.repos.itemFilters(g.items) {
			fs = append(fs, fit(r.limits, filters.Live(f))...)
		}
		reqs, tooLarge := packed(r.limits, fs)
		if tooLarge > 0 {
			continue
		}
		room := func() bool {
			return d.liveSubs()+len(reqs) <= r.descRoom() && r.limits.Retains(r.live.size()+d.bytes()+reqs.size())
		}
		old := g.subs
		if len(old) > 0 && !room() {
			ds.close(r, g, now)
			old = nil
		}
		if !room() {
			return
		}
		g.due = g.due || len(old) == 0 // request the events since its last request
		g.subs, g.filters, g.bytes, g.outdated = nil, len(fs), reqs.size(), false
		for _, one := range reqs {
			g.subs = append(g.subs, ds.subscriptions.open(r, one.filters))
		}
		for _, id := range old {
			ds.subscriptions.close(r, id)
		}
	}
}

// refit closes all subscriptions, because the limits of the relay changed.
func (ds *threads) refit(r *relayState) {
	for _, g := range r.threads.groups {
		ds.close(r, g, ds.now)
	}
}

// close closes the subscriptions of a group that are still open, except one.
func (ds *threads) close(r *relayState, g *threadGroup, until time.Time, except ...LiveID) {
	for _, id := range g.subs {
		if !slices.Contains(except, id) {
			ds.subscriptions.close(r, id)
		}
	}
	g.unfollow(until)
}

// makeWay closes subscriptions until most subscriptions include others, which have this number and
// size.
func (ds *threads) makeWay(r *relayState, others, bytes, most int) {
	d := &r.threads
	for _, g := range slices.Backward(d.groups) {
		if len(g.subs) > 0 && (others+d.liveSubs() > most || !r.limits.Retains(bytes+d.bytes())) {
			ds.close(r, g, ds.now)
		}
	}
}

// closed handles a subscription that the relay closed. If the relay refuses layer 4, it is asked
// again after a day.
func (ds *threads) closed(r *relayState, g *threadGroup, in LiveClosed, now time.Time) {
	d := &r.threads
	ds.close(r, g, now, in.Live)
	if in.Why == wire.RefusalRestricted && in.Stood < ds.cfg.RetryBase {
		d.liveAt = now.Add(ds.longer(restFor))
	}
	if now.Before(d.liveAt) {
		return // part of the last refusal
	}
	if in.Stood > 0 || now.Sub(d.liveAt) > ds.cfg.RetryMax {
		d.refused = 0
	}
	d.refused++
	d.liveAt = now.Add(ds.retryAfter(d.refused))
}

// unfollow forgets the subscriptions of a group, which were open until a time.
func (g *threadGroup) unfollow(until time.Time) {
	if g.complete() && until.After(g.since) {
		g.since = until
	}
	g.subs, g.filters, g.bytes = nil, 0, 0
}

// withLive returns the group with a live subscription, or nil.
func (d *threadState) withLive(id LiveID) *threadGroup {
	for _, g := range d.groups {
		if slices.Contains(g.subs, id) {
			return g
		}
	}
	return nil
}

func (d *threadState) lost(aliveAt time.Time) {
	for _, g := range d.groups {
		g.unfollow(aliveAt)
	}
	d.turnAt = time.Time{}
}

// passStarted marks all groups for a full fetch, at their turns.
func (d *threadState) passStarted() {
	for _, g := range d.groups {
		g.want = min(g.want, DailyHistory)
	}
}

func (d *threadState) wakes(consider func(time.Time)) {
	consider(d.turnAt)
	if slices.ContainsFunc(d.groups, (*threadGroup).isDue) {
		consider(d.retryAt)
	}
	consider(d.liveAt)
}

func (d *threadState) liveSubs() (n int) {
	for _, g := range d.groups {
		n += len(g.subs)
	}
	return n
}

func (d *threadState) bytes() (n int) {
	for _, g := range d.groups {
		n += g.bytes
	}
	return n
}

// counts returns the number of items, of those followed live, and of live filters.
func (d *threadState) counts() (all, live, fs int) {
	for _, g := range d.groups {
		if fs += g.filters; g.followed() {
			live += len(g.items)
		}
	}
	return len(d.groupOf), live, fs
}

func (d *threadState) jumped(back time.Duration) {
	for _, g := range d.groups {
		setBack(back, &g.since, &g.begun, &g.triedAt)
	}
}
