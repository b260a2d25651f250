package plan

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
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
	groups   []*threadGroup // in the order of rotation
	groupOf  map[Item]*threadGroup
	next     int       // index of the next group of the rotation
	turnAt   time.Time // the next turn of the rotation; zero: no group rotates
	running  bool      // a request is in progress; at most one
	retryAt  time.Time // no request before, after a failure
	failures int       // in a row
	liveAt   time.Time // no subscription is opened before, because the relay closed one
	refused  int       // consecutive subscriptions that the relay closed
}

// threadGroup is a chunk of items that are requested together and share a live subscription.
type threadGroup struct {
	items    []Item
	since    time.Time // all earlier events were fetched
	first    bool      // all events must be fetched, because items are new
	daily    bool      // all events must be fetched again, at the turn of the group
	due      bool      // the group does not wait for its turn
	running  bool
	triedAt  time.Time // start of the last request
	begun    time.Time // like triedAt, but of the first attempt while resume is set
	resume   *batchProgress
	live     LiveID // 0: not followed live
	filters  int    // of the live subscription
	bytes    int
	outdated bool // the live subscription lacks items
}

// followed reports whether a live subscription covers all items.
func (g *threadGroup) followed() bool { return g.live != 0 && !g.outdated }

// complete reports whether all events until now were fetched or received live.
func (g *threadGroup) complete() bool { return g.followed() && !g.first && !g.due && !g.running }

func (ds *threads) add(r *relayState, it Item) {
	if r.threads == nil {
		r.threads = &threadState{groupOf: make(map[Item]*threadGroup)}
	}
	d := r.threads
	if d.groupOf[it] != nil {
		return
	}
	if n := len(d.groups); n == 0 || len(d.groups[n-1].items) >= filters.MaxValues {
		d.groups = append(d.groups, &threadGroup{})
	}
	g := d.groups[len(d.groups)-1]
	g.items = append(g.items, it)
	g.first, g.due, g.outdated, g.resume = true, true, true, nil
	d.groupOf[it] = g
	ds.markDirty(r)
}

// remove removes an item. The subscription of its group does not change.
func (ds *threads) remove(r *relayState, it Item) {
	d := r.threads
	if d == nil || d.groupOf[it] == nil {
		return
	}
	g := d.groupOf[it]
	delete(d.groupOf, it)
	g.items = slices.DeleteFunc(g.items, func(o Item) bool { return o == it })
	if len(g.items) == 0 {
		if g.live != 0 {
			ds.close(r, g, ds.now)
		}
		i := slices.Index(d.groups, g)
		d.groups = slices.Delete(d.groups, i, i+1)
		if i < d.next {
			d.next--
		}
	}
	ds.markDirty(r)
}

func (ds *threads) due(r *relayState, now time.Time) bool {
	d := r.threads
	if d == nil || d.running || now.Before(d.retryAt) {
		return false
	}
	if !slices.ContainsFunc(d.groups, (*threadGroup).rotates) {
		d.turnAt = time.Time{}
	} else if d.turnAt.IsZero() {
		d.turnAt = now.Add(ds.longer(rotateEvery))
	}
	return d.anyDue() || !d.turnAt.IsZero() && !now.Before(d.turnAt)
}

// turn returns the next group to request, or nil. It is a due group, or once per minute the next
// group that needs a request. A group that always fails does not block others.
func (ds *threads) turn(d *threadState, now time.Time) (next *threadGroup) {
	if d.turnAt.IsZero() || now.Before(d.turnAt) {
		for _, g := range d.groups {
			if g.due && (next == nil || g.triedAt.Before(next.triedAt)) {
				next = g
			}
		}
		return next
	}
	d.turnAt = now.Add(ds.longer(rotateEvery))
	for range d.groups {
		d.next %= len(d.groups)
		g := d.groups[d.next]
		if d.next++; g.rotates() {
			d.join(g)
			return g
		}
	}
	return nil
}

func (ds *threads) start(r *relayState, now time.Time) {
	d := r.threads
	g := ds.turn(d, now)
	if g == nil {
		return
	}
	b := &batch{of: ds, kind: Recent, group: g, items: slices.Clone(g.items)}
	since := nostr.Timestamp(g.since.Add(-ds.cfg.Overlap).Unix())
	switch {
	case g.first:
		b.kind, since = History, 0
	case g.daily:
		b.kind, since = DailyHistory, 0
	}
	g.first, g.daily, g.triedAt = false, false, now
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
	d, g := r.threads, b.group
	d.running, d.failures, d.retryAt = false, 0, time.Time{}
	g.running, g.resume = false, nil
	g.since = g.begun
}

// failed requests the group of a failed batch again, not before until.
func (ds *threads) failed(r *relayState, b *batch, in Done, until time.Time) {
	ds.lost(r, b, in.Cursors)
	r.threads.retryAt = until
}

func (ds *threads) lost(r *relayState, b *batch, got []Cursor) {
	g := b.group
	r.threads.running, g.running, g.due = false, false, true
	if b.kind == Recent || g.first {
		g.resume = nil // newer events are requested too
	} else {
		g.resume = merge(g.resume, b.roles, got, false)
	}
	g.first, g.daily = g.first || b.kind == History, g.daily || b.kind == DailyHistory
}

// skipped requests the dropped live events since a moment.
func (ds *threads) skipped(r *relayState, since time.Time) {
	if r.threads == nil {
		return
	}
	for _, g := range r.threads.groups {
		if g.live != 0 {
			if g.complete() || since.Before(g.since) {
				g.since = since
			}
			g.due = true
		}
	}
}

// follow follows as many groups live as have room.
func (ds *threads) follow(r *relayState, now time.Time) {
	d := r.threads
	if d == nil {
		return
	}
	for d.liveSubs() > 0 && (d.liveSubs() > r.descRoom() || !r.limits.Retains(r.live.size()+d.bytes())) {
		ds.close(r, d.lastLive(), now)
	}
	if now.Before(d.liveAt) || now.Before(r.coolUntil) || !r.othersFollowed(now) {
		return
	}
	for i := 0; i < len(d.groups); i++ {
		g := d.groups[i]
		if g.followed() {
			continue
		}
		if g.live == 0 && d.liveSubs() >= r.descRoom() {
			return
		}
		d.split(g, threadItems(r.limits))
		fs, ok := ds.oneRequest(r, g)
		if !ok {
			continue
		}
		size := requestSize(fs)
		room := func() bool {
			return d.liveSubs() < r.descRoom() && r.limits.Retains(r.live.size()+d.bytes()+size)
		}
		if g.live != 0 && !room() {
			ds.close(r, g, now)
		}
		if !room() {
			return
		}
		old := g.live
		g.live = ds.subscriptions.open(r, fs, true)
		g.filters, g.bytes, g.outdated = len(fs), size, false
		if old != 0 {
			ds.subscriptions.close(r, old)
		} else {
			g.due = true // request the events since its last request
		}
	}
}

// threadItems returns the number of items whose filters fit into one request, at most MaxValues.
func threadItems(l relaylimits.Requests) int {
	n := filters.MaxValues
	for l.MaxMessage > 0 && n > 0 && (filters.RequestOverhead+4*n*fullFilter/filters.MaxValues > l.MaxMessage ||
		filtersFor(l, [itemKinds]int{itemRoot: n}) > l.MaxFilters) {
		n /= 2
	}
	return n
}

// split moves the items of a group beyond n to new groups.
func (d *threadState) split(g *threadGroup, n int) {
	for n > 0 && len(g.items) > n && !g.running {
		rest := *g
		rest.items, rest.live, rest.filters, rest.bytes = slices.Clone(g.items[len(g.items)-n:]), 0, 0, 0
		rest.resume, rest.due = nil, true
		g.items = slices.Clip(g.items[:len(g.items)-n])
		for _, it := range rest.items {
			d.groupOf[it] = &rest
		}
		d.groups = append(d.groups, &rest)
	}
}

// join moves the items of other groups into a group that rotates, up to MaxValues items. It undoes
// split for groups without a live subscription, because a turn may use several requests.
func (d *threadState) join(g *threadGroup) {
	if g.live != 0 || g.running || g.resume != nil {
		return
	}
	d.groups = slices.DeleteFunc(d.groups, func(o *threadGroup) bool {
		if o == g || o.live != 0 || o.running || o.resume != nil || o.first != g.first || o.daily != g.daily ||
			len(g.items)+len(o.items) > filters.MaxValues {
			return false
		}
		for _, it := range o.items {
			d.groupOf[it] = g
		}
		g.items, g.due = append(g.items, o.items...), g.due || o.due
		if o.since.Before(g.since) {
			g.since = o.since
		}
		return true
	})
	d.next = slices.Index(d.groups, g) + 1
}

// oneRequest returns the live filters of a group, and false if they exceed one request.
func (ds *threads) oneRequest(r *relayState, g *threadGroup) (fs []nostr.Filter, ok bool) {
	for _, f := range ds.repos.itemFilters(g.items) {
		fs = append(fs, fit(r.limits, filters.LiveShared(f))...)
	}
	reqs, tooLarge := filters.Pack(fs, r.limits.MaxMessage, r.limits.MaxFilters)
	return fs, len(reqs) == 1 && len(tooLarge) == 0
}

// refit closes the subscriptions that exceed the limits of the relay.
func (ds *threads) refit(r *relayState) {
	if r.threads == nil {
		return
	}
	for _, g := range r.threads.groups {
		if _, ok := ds.oneRequest(r, g); g.live != 0 && !ok {
			ds.close(r, g, ds.now)
		}
	}
}

func (ds *threads) close(r *relayState, g *threadGroup, now time.Time) {
	ds.subscriptions.close(r, g.live)
	g.unfollow(now)
}

// makeWay closes subscriptions until other subscriptions of this number and size have room.
func (ds *threads) makeWay(r *relayState, others, bytes int) {
	d := r.threads
	for d.liveSubs() > 0 && (others+d.liveSubs() > r.liveRoom()+r.spareRoom() || !r.limits.Retains(bytes+d.bytes())) {
		ds.close(r, d.lastLive(), ds.now)
	}
}

// closed handles a subscription that the relay closed. If the relay refuses layer 4, it is asked
// again after a day.
func (ds *threads) closed(r *relayState, g *threadGroup, in LiveClosed, now time.Time) {
	d := r.threads
	g.unfollow(now)
	switch {
	case !in.Yielded && in.Why == wire.RefusalRestricted && in.Stood < ds.cfg.RetryBase:
		d.liveAt = now.Add(ds.longer(restFor))
	case now.Before(d.liveAt): // part of the last refusal
	case in.Why == wire.RefusalOverflow: // a temporary overload
		d.liveAt = now.Add(ds.cfg.RetryBase)
	default:
		if in.Stood > 0 || now.Sub(d.liveAt) > ds.cfg.RetryMax {
			d.refused = 0
		}
		d.refused++
		d.liveAt = now.Add(ds.retryAfter(d.refused))
	}
}

// unfollow removes the subscription of a group, which was open until a time.
func (g *threadGroup) unfollow(until time.Time) {
	if g.complete() && until.After(g.since) {
		g.since = until
	}
	g.live, g.filters, g.bytes = 0, 0, 0
}

// rotates reports whether a group needs requests in rotation.
func (g *threadGroup) rotates() bool { return !g.followed() || g.daily }

func (d *threadState) anyDue() bool {
	return slices.ContainsFunc(d.groups, func(g *threadGroup) bool { return g.due })
}

// withLive returns the group with a live subscription, or nil.
func (d *threadState) withLive(id LiveID) *threadGroup {
	if d != nil {
		for _, g := range d.groups {
			if g.live == id {
				return g
			}
		}
	}
	return nil
}

// lastLive returns the last group with a live subscription.
func (d *threadState) lastLive() *threadGroup {
	for _, g := range slices.Backward(d.groups) {
		if g.live != 0 {
			return g
		}
	}
	return nil
}

func (d *threadState) bytes() (n int) {
	for _, g := range d.groups {
		n += g.bytes
	}
	return n
}

func (d *threadState) lost(aliveAt time.Time) {
	if d != nil {
		for _, g := range d.groups {
			g.unfollow(aliveAt)
		}
		d.turnAt = time.Time{}
	}
}

// passStarted marks all groups for a full fetch.
func (d *threadState) passStarted() {
	if d != nil {
		for _, g := range d.groups {
			g.daily = !g.first
		}
	}
}

func (d *threadState) wakes(consider func(time.Time)) {
	if d == nil {
		return
	}
	consider(d.turnAt)
	if d.anyDue() {
		consider(d.retryAt)
	}
	consider(d.liveAt)
}

func (d *threadState) liveSubs() (n int) {
	if d != nil {
		for _, g := range d.groups {
			if g.live != 0 {
				n++
			}
		}
	}
	return n
}

// counts returns the number of items, of those followed live, and of live filters.
func (d *threadState) counts() (all, live, fs int) {
	if d == nil {
		return 0, 0, 0
	}
	for _, g := range d.groups {
		if fs += g.filters; g.followed() {
			live += len(g.items)
		}
	}
	return len(d.groupOf), live, fs
}

func (d *threadState) jumped(back time.Duration) {
	if d != nil {
		for _, g := range d.groups {
			setBack(back, &g.since, &g.begun, &g.triedAt)
		}
	}
}
