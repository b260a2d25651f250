package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
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
// layers 1 to 3 leave: spare subscriptions and idle time. The replies to each descendant are
// fetched once. Afterwards it is followed live if there is room, else requested in rotation.
// Descendants do not count for the synced state of a relay.

// threads fetches and follows layer 4, within [relayState.descRoom] and
// [relayState.othersFollowed].
type threads struct {
	*core
	repos         *repoSyncIndex
	pending       *pendingSyncIndex
	subscriptions *subscriptions
}

type threadState struct {
	of       map[Item]threadItem
	groups   []*threadGroup // in the order of rotation
	open     *threadGroup   // one of groups with room
	next     int            // index of the next group
	at       time.Time      // the next turn; zero: none
	urgent   []*threadGroup // groups that do not wait for their turn
	daily    int            // number of groups to fetch from the start again
	running  bool           // a request is in progress; at most one
	retryAt  time.Time      // no request before, after a failure
	failures int            // in a row

	fresh   map[Item]struct{}     // items that are in no group
	apart   map[Item]struct{}     // items that are not followed live
	subs    map[LiveID]*threadSub // open subscriptions
	filters int                   // number of filters of all
	liveAt  time.Time             // no subscription is opened before, because the relay closed one
	refused int                   // consecutive subscriptions that the relay closed

	capacity   int // items per subscription
	capacityOf relaylimits.Requests
}

// threadItem is the state of a descendant. group is nil until it is requested.
type threadItem struct {
	group *threadGroup
	sub   *threadSub // nil: not followed live
}

// threadGroup is a chunk of items that are requested together.
type threadGroup struct {
	items []Item
	since time.Time // all earlier events were fetched, except those of items followed live
	apart int       // items that are not followed live
	first bool      // not requested yet
	daily bool      // to be requested from the start again
	// behind are items that are followed live again after an interruption. The events of that time
	// must be requested.
	behind  map[Item]struct{}
	queued  bool // in urgent
	running bool
	floor   time.Time // minimum of since for items that joined during a request; zero: none joined
	// The progress of the last attempt to fetch all events, and the start of the first attempt.
	resume *batchProgress
	begun  time.Time
}

type threadSub struct {
	id    LiveID
	items []Item
	size  int // number of filters
	bytes int
	idle  int // unwanted items, which are dropped when room is needed
}

func (ds *threads) add(r *relayState, it Item) {
	if r.threads == nil {
		r.threads = &threadState{
			of: make(map[Item]threadItem), fresh: make(map[Item]struct{}),
			apart: make(map[Item]struct{}), subs: make(map[LiveID]*threadSub),
		}
	}
	if _, known := r.threads.of[it]; !known {
		r.threads.of[it] = threadItem{}
		r.threads.fresh[it], r.threads.apart[it] = struct{}{}, struct{}{}
		ds.markDirty(r)
	}
}

// remove removes an item. Its subscription stays open.
func (ds *threads) remove(r *relayState, it Item) {
	d := r.threads
	if d == nil {
		return
	}
	at, known := d.of[it]
	if !known {
		return
	}
	delete(d.of, it)
	delete(d.apart, it)
	delete(d.fresh, it)
	if at.sub != nil {
		at.sub.idle++
	}
	if g := at.group; g != nil {
		delete(g.behind, it)
		g.items = slices.DeleteFunc(slices.Clone(g.items), func(o Item) bool { return o == it })
		if at.sub == nil {
			g.apart--
		}
		d.dropEmpty(g)
	}
	ds.markDirty(r)
}

// group puts new items into groups.
func (ds *threads) group(d *threadState) {
	fresh := slices.SortedFunc(maps.Keys(d.fresh), ds.repos.compare)
	d.fresh = make(map[Item]struct{})
	for chunk := range slices.Chunk(fresh, filters.MaxValues) {
		g := &threadGroup{items: slices.Clone(chunk), first: true}
		for _, it := range chunk {
			at := d.of[it]
			at.group = g
			d.of[it] = at
			if at.sub == nil {
				g.apart++
			}
		}
		d.groups = append(d.groups, g)
		d.hurry(g)
	}
}

func (ds *threads) due(r *relayState, now time.Time) bool {
	d := r.threads
	if d == nil || d.running || now.Before(d.retryAt) {
		return false
	}
	if !d.rotates() {
		d.at = time.Time{}
	} else if d.at.IsZero() {
		d.at = now.Add(ds.longer(rotateEvery))
	}
	return len(d.fresh)+len(d.urgent) > 0 || !d.at.IsZero() && !now.Before(d.at)
}

// turn returns the next group to request, or nil. It is an urgent group, or once per minute the
// next group that needs a request. A group that always fails does not block others.
func (ds *threads) turn(d *threadState, now time.Time) *threadGroup {
	if ds.group(d); len(d.urgent) > 0 && (d.at.IsZero() || now.Before(d.at)) {
		g := d.urgent[0]
		d.urgent = d.urgent[1:]
		g.queued = false
		return g
	}
	d.at = now.Add(ds.longer(rotateEvery))
	for range d.groups {
		d.next %= len(d.groups)
		g := d.groups[d.next]
		d.next++
		if g.apart > 0 || g.daily {
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
	b := &batch{of: ds, kind: Recent, desc: g, items: slices.Clone(g.items), behind: g.behind}
	since := nostr.Timestamp(g.since.Add(-ds.cfg.Overlap).Unix())
	switch {
	case g.first:
		b.kind, since = History, 0
	case g.daily:
		b.kind, since = DailyHistory, 0
	default:
		b.items = slices.DeleteFunc(b.items, func(it Item) bool {
			_, behind := g.behind[it]
			return d.of[it].sub != nil && !behind
		})
	}
	if g.resume == nil { // otherwise the attempt continues with older events
		g.behind, g.begun = nil, now
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
	d, g := r.threads, b.desc
	d.running, d.failures, d.retryAt = false, 0, time.Time{}
	if b.kind == DailyHistory && g.daily {
		g.daily = false
		d.daily--
	}
	g.running, g.first, g.resume = false, false, nil
	g.since = g.begun
	if !g.floor.IsZero() && g.floor.Before(g.since) {
		g.since = g.floor
	}
	g.floor = time.Time{}
	if d.dropEmpty(g); len(g.items) > 0 {
		if len(g.behind) > 0 {
			d.hurry(g)
		}
		d.join(g)
	}
}

// failed queues the group of a failed batch again, not before until.
func (ds *threads) failed(r *relayState, b *batch, in Done, until time.Time) {
	r.threads.notAskedAbout(b, in.Cursors, until)
}

func (ds *threads) lost(r *relayState, b *batch, got []Cursor) {
	r.threads.notAskedAbout(b, got, r.threads.retryAt)
}

// skipped requests the dropped live events since a moment.
func (ds *threads) skipped(r *relayState, since time.Time) {
	d := r.threads
	if d == nil {
		return
	}
	for _, g := range d.groups {
		if g.apart == len(g.items) || g.first && !g.running && g.resume == nil {
			continue // the group will be requested anyway
		}
		followed := make(map[Item]struct{}, len(g.items)-g.apart)
		for _, it := range g.items {
			if d.of[it].sub != nil {
				followed[it] = struct{}{}
			}
		}
		if whole := g.apart == 0 && len(g.behind) == 0 && !g.first && !g.running; whole || since.Before(g.since) {
			g.since = since // all earlier events were fetched
		}
		if g.running && (g.floor.IsZero() || since.Before(g.floor)) {
			g.floor = since
		}
		g.lag(followed)
		d.hurry(g)
	}
}

// lag adds items to behind.
func (g *threadGroup) lag(items map[Item]struct{}) {
	if len(items) > 0 && g.behind == nil {
		g.behind = make(map[Item]struct{}, len(items))
	}
	maps.Copy(g.behind, items)
}

// follow follows as many items live as have room. It merges new items with subscriptions of similar
// size, so that traffic is proportional to the change.
func (ds *threads) follow(r *relayState, now time.Time) {
	d := r.threads
	if d == nil {
		return
	}
	for len(d.subs) > 0 && (len(d.subs) > r.descRoom() || !r.limits.Retains(r.live.size()+d.bytes())) {
		ds.close(r, d.smallest(), now)
	}
	for _, id := range slices.Sorted(maps.Keys(d.subs)) {
		s := d.subs[id]
		if s.idle == len(s.items) {
			ds.replace(r, []*threadSub{s}, nil, now)
		}
	}
	if now.Before(d.liveAt) || now.Before(r.coolUntil) || !r.othersFollowed(now) {
		return
	}
	var items []Item
	for len(d.apart) > 0 {
		with, n, ok := d.fitting(len(d.apart), ds.capacity(r), r.descRoom())
		if !ok {
			return
		}
		if items == nil {
			items = slices.SortedFunc(maps.Keys(d.apart), ds.repos.compare)
		}
		n = min(n, ds.fits(r, with))
		for n > 0 && !ds.inOneRequest(r, append(d.wanted(with), items[:n]...)) {
			if len(with) > 0 && len(d.subs) < r.descRoom() {
				with = nil
			} else {
				n /= 2
			}
		}
		if n < 1 {
			d.liveAt = now.Add(ds.longer(ds.cfg.RetryBase)) // collect more items until then
			return
		}
		ds.replace(r, with, items[:n], now)
		items = items[n:]
	}
}

func (ds *threads) inOneRequest(r *relayState, items []Item) bool {
	reqs, large := filters.Pack(ds.filters(r, items), r.limits.MaxMessage, r.limits.MaxFilters)
	return len(reqs) == 1 && len(large) == 0
}

// refit closes the subscriptions that exceed the limits of the relay. Several smaller ones will
// replace each of them.
func (ds *threads) refit(r *relayState) {
	if r.threads == nil {
		return
	}
	for _, s := range r.threads.bySize() {
		if !ds.inOneRequest(r, s.items) {
			ds.close(r, s, ds.now)
		}
	}
}

// bytesEach is an upper bound for the size of an item in live filters.
const bytesEach = 3 * len(longAddress+longAddress)

const longAddress = "39842:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef:an-identifier-of-32-characters"

// fits returns the number of additional items whose filters have room if the subscriptions in with
// are replaced.
func (ds *threads) fits(r *relayState, with []*threadSub) int {
	if r.limits.MaxRetained == 0 {
		return len(r.threads.apart)
	}
	left := r.limits.LiveBytes() - r.live.size() - r.threads.bytes() - filters.RequestOverhead
	for _, s := range with {
		left += s.bytes - bytesEach*(len(s.items)-s.idle)
	}
	return left / bytesEach
}

// replace replaces subscriptions by one with their wanted items and more. If there is room for
// both, it opens the new one first.
func (ds *threads) replace(r *relayState, old []*threadSub, more []Item, now time.Time) {
	d := r.threads
	items := append(d.wanted(old), more...)
	slices.SortFunc(items, ds.repos.compare)
	overlaps := len(r.live.subs)+len(d.subs) < r.liveRoom() &&
		r.limits.Retains(r.live.size()+d.bytes()+filters.RequestOverhead+bytesEach*len(items))
	if !overlaps {
		for _, s := range old {
			ds.close(r, s, now)
		}
	}
	if len(items) > 0 {
		ds.open(r, items)
	}
	if overlaps {
		for _, s := range old {
			ds.close(r, s, now)
		}
	}
}

func (ds *threads) filters(r *relayState, items []Item) (fs []nostr.Filter) {
	for _, f := range ds.repos.itemFilters(items) {
		fs = append(fs, fit(r.limits, filters.LiveShared(f))...)
	}
	return fs
}

func (ds *threads) open(r *relayState, items []Item) {
	d := r.threads
	fs := ds.filters(r, items)
	s := &threadSub{id: ds.subscriptions.open(r, ds.repos.sealer().Seal(fs), true), items: items, size: len(fs), bytes: requestSize(fs)}
	d.subs[s.id] = s
	d.filters += s.size
	for _, it := range items {
		at := d.of[it]
		if g := at.group; at.sub == nil && g != nil {
			if g.apart--; !g.first || g.running || g.resume != nil { // request the events since its last request
				g.lag(map[Item]struct{}{it: {}})
				d.hurry(g)
			}
		}
		at.sub = s
		d.of[it] = at
		delete(d.apart, it)
	}
}

func (ds *threads) close(r *relayState, s *threadSub, now time.Time) {
	ds.subscriptions.close(r, s.id)
	r.threads.lose(s, now)
}

// capacity returns the maximum number of items per subscription, for items without an address.
func (ds *threads) capacity(r *relayState) int {
	d := r.threads
	if d.capacityOf == r.limits {
		return d.capacity
	}
	d.capacityOf, d.capacity = r.limits, 0
	for _, n := range []int{300, 200, 100, 50, 25, 10, 5, 1} {
		ids := make([]graspsync.EventID, n)
		for i := range ids {
			ids[i][0], ids[i][1] = byte(i>>8), byte(i)
		}
		var fs []nostr.Filter
		for _, f := range filters.Roots(ids) {
			fs = append(fs, fit(r.limits, filters.LiveShared(f))...)
		}
		if reqs, large := filters.Pack(fs, r.limits.MaxMessage, r.limits.MaxFilters); len(reqs) == 1 && len(large) == 0 {
			d.capacity = n
			break
		}
	}
	return d.capacity
}

// makeWay closes subscriptions until other subscriptions of this number and size have room.
func (ds *threads) makeWay(r *relayState, others, bytes int) {
	d := r.threads
	for d != nil && len(d.subs) > 0 && (others+len(d.subs) > r.liveRoom()+r.spareRoom() || !r.limits.Retains(bytes+d.bytes())) {
		ds.close(r, d.smallest(), ds.now)
	}
}

// closed handles a subscription that the relay closed, and reports whether its filters must rest.
func (ds *threads) closed(r *relayState, in LiveClosed, now time.Time) (rests bool) {
	d := r.threads
	d.lose(d.subs[in.Live], now)
	switch {
	case !in.GaveWay && in.Why == wire.RefusalRestricted && in.Stood < ds.cfg.RetryBase:
		return true
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
	return false
}

func (d *threadState) dropEmpty(g *threadGroup) {
	if len(g.items) > 0 || g.running {
		return
	}
	i := slices.Index(d.groups, g)
	if i < 0 {
		return
	}
	d.groups = slices.Delete(d.groups, i, i+1)
	if i < d.next {
		d.next--
	}
	if g.queued {
		d.urgent = slices.DeleteFunc(d.urgent, func(o *threadGroup) bool { return o == g })
	}
	if g.daily {
		d.daily--
	}
	if d.open == g {
		d.open = nil
	}
}

// hurry makes a group urgent.
func (d *threadState) hurry(g *threadGroup) {
	if !g.queued {
		g.queued = true
		d.urgent = append(d.urgent, g)
	}
}

func (d *threadState) rotates() bool { return len(d.apart) > 0 || d.daily > 0 }

// join merges a small group with another one, to save requests.
func (d *threadState) join(g *threadGroup) {
	o := d.open
	if o == nil || o == g || o.first || o.resume != nil || len(o.items)+len(g.items) > filters.MaxValues {
		if o == nil || len(g.items) < len(o.items) {
			d.open = g
		}
		return
	}
	if g.queued || g.daily != o.daily {
		return
	}
	for _, it := range g.items {
		at := d.of[it]
		at.group = o
		d.of[it] = at
	}
	o.items = append(o.items, g.items...)
	o.apart += g.apart
	if o.running && (o.floor.IsZero() || g.since.Before(o.floor)) {
		o.floor = g.since
	}
	if g.since.Before(o.since) {
		o.since = g.since
	}
	if len(g.behind) > 0 {
		o.lag(g.behind)
		d.hurry(o)
	}
	g.items, g.daily, g.apart = nil, false, 0
	i := slices.Index(d.groups, g)
	d.groups = slices.Delete(d.groups, i, i+1)
	if i < d.next {
		d.next--
	}
}

// notAskedAbout queues the group of a failed batch again, but delays it until a time.
func (d *threadState) notAskedAbout(b *batch, got []Cursor, until time.Time) {
	g := b.desc
	d.running, g.running = false, false
	d.retryAt = until
	if g.resume = merge(g.resume, b.roles, got, false); b.kind == Recent || !g.floor.IsZero() {
		g.resume = nil // newer events are requested too
	}
	g.floor = time.Time{}
	maps.DeleteFunc(b.behind, func(it Item, _ struct{}) bool { return d.of[it].group != g })
	g.lag(b.behind)
	if d.dropEmpty(g); len(g.items) > 0 && (g.first || len(g.behind) > 0) {
		d.hurry(g)
	}
}

func (d *threadState) wanted(subs []*threadSub) (items []Item) {
	for _, s := range subs {
		for _, it := range s.items {
			if d.of[it].sub == s {
				items = append(items, it)
			}
		}
	}
	return items
}

func (d *threadState) bytes() (n int) {
	for _, s := range d.subs {
		n += s.bytes
	}
	return n
}

// fitting returns the subscriptions that should be merged with more items, and the number of these
// items that have room.
func (d *threadState) fitting(more, most, room int) (with []*threadSub, n int, ok bool) {
	if room == 0 || most == 0 {
		return nil, 0, false
	}
	n = min(more, most)
	size := n
	for _, s := range d.bySize() {
		live := len(s.items) - s.idle
		left := len(d.subs) - len(with)
		switch {
		case size+live <= most && (live <= size || left >= room):
			with, size = append(with, s), size+live
		case left >= room && len(with) == 0 && live < most:
			return []*threadSub{s}, min(n, most-live), true
		}
	}
	return with, n, len(d.subs)-len(with) < room
}

func (d *threadState) bySize() []*threadSub {
	return slices.SortedFunc(maps.Values(d.subs), func(a, b *threadSub) int {
		return cmp.Or(cmp.Compare(len(a.items)-a.idle, len(b.items)-b.idle), cmp.Compare(a.id, b.id))
	})
}

func (d *threadState) smallest() *threadSub { return d.bySize()[0] }

// lose removes a subscription that was open until a time.
func (d *threadState) lose(s *threadSub, until time.Time) {
	delete(d.subs, s.id)
	d.filters -= s.size
	for _, it := range s.items {
		at := d.of[it]
		if at.sub != s {
			continue
		}
		at.sub = nil
		d.of[it] = at
		d.apart[it] = struct{}{}
		if g := at.group; g != nil {
			if g.apart == 0 && len(g.behind) == 0 && !g.first && !g.running && until.After(g.since) {
				g.since = until // all its items were followed until then
			}
			g.apart++
		}
	}
}

func (d *threadState) lost(aliveAt time.Time) {
	if d == nil {
		return
	}
	for _, s := range d.bySize() {
		d.lose(s, aliveAt)
	}
	d.at = time.Time{}
}

// passStarted marks all groups for a full fetch.
func (d *threadState) passStarted() {
	if d == nil {
		return
	}
	for _, g := range d.groups {
		if !g.first && !g.daily {
			g.daily = true
			d.daily++
		}
	}
}

func (d *threadState) wakes(consider func(time.Time)) {
	if d == nil {
		return
	}
	consider(d.at)
	if len(d.urgent)+len(d.fresh) > 0 || d.rotates() {
		consider(d.retryAt)
	}
	if len(d.apart) > 0 {
		consider(d.liveAt)
	}
}

func (d *threadState) liveSubs() int {
	if d == nil {
		return 0
	}
	return len(d.subs)
}

// counts returns the number of items, of those not followed live, and of live filters.
func (d *threadState) counts() (all, apart, fs int) {
	if d == nil {
		return 0, 0, 0
	}
	return len(d.of), len(d.apart), d.filters
}

func (d *threadState) jumped(back time.Duration) {
	if d == nil {
		return
	}
	for _, g := range d.groups {
		setBack(back, &g.since, &g.begun, &g.floor)
	}
}
