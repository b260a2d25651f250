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

// rotateEvery is how long to wait between two turns of the rotation, of one group each.
const rotateEvery = time.Minute

// leastCompared is of how many at least it is compared (NIP-77) what there is.
const leastCompared = filters.MaxValues / 4

// What descends from repositories and root events, answers to answers, is layer 4. Anybody may
// add to it, so it has what layers 1 to 3 leave: the places for standing subscriptions that
// these do not need, and the time when nothing of theirs is to be asked for. Each descendant is
// asked about once from the start; from then on it is followed live where there is room, and
// what is not is asked for in rotation. None of it counts for whether a relay is synced.

// descendants asks relays about layer 4 and follows it where there is room. What layers 1 to 3
// leave is in [relay.descRoom] and [relay.othersFollowed].
type threads struct {
	*core
	repos         *repoSyncIndex
	pending       *pendingSyncIndex
	subscriptions *subscriptions
}

// descendantsState is what one relay is asked about of layer 4.
type threadState struct {
	of       map[Item]threadItem
	groups   []*threadGroup // in rotation
	open     *threadGroup   // of these, one with room
	next     int            // whose turn it is
	at       time.Time      // of the next turn; zero: none is waited for
	urgent   []*threadGroup // those that do not wait for their turn
	daily    int            // groups that are to be fetched from the start again
	running  bool           // one is being asked about: never more at once
	retryAt  time.Time      // asking failed: not before
	failures int            // in a row

	fresh   map[Item]struct{}     // those that are in no group yet
	apart   map[Item]struct{}     // those that are not followed live
	subs    map[LiveID]*threadSub // standing subscriptions
	filters int                   // of all
	liveAt  time.Time             // the relay closed one: none is opened before
	refused int                   // closed by the relay in a row

	capacity   int // how many go into one
	capacityOf relaylimits.Requests
}

// descendant is where one is. Its group is nil until it is asked about.
type threadItem struct {
	group *threadGroup
	sub   *threadSub // nil: it is not followed live
}

// descGroup is a chunk that is asked about together.
type threadGroup struct {
	items []Item
	since time.Time // up to when all is here that came, but for what is followed live
	apart int       // items that are not followed live
	first bool      // it was not asked about yet
	daily bool      // it is to be asked about from the start once more
	// behind are those that were not followed for a while and are now, so that what came
	// meanwhile is to be asked for.
	behind  map[Item]struct{}
	queued  bool // it is one of the urgent
	running bool
	floor   time.Time // since when others were complete that joined while it was running; zero: none
	// Of what is fetched from the start: how far the last attempt got, and when the first
	// one began.
	resume *batchProgress
	begun  time.Time
}

// descSub is a standing subscription.
type threadSub struct {
	id    LiveID
	items []Item
	size  int // filters
	bytes int
	idle  int // items that are not wanted any more: they go when the others need the room
}

// add makes a descendant one of those that a relay is asked about.
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

// remove undoes that. What is followed stays as it is for now.
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

// group puts those that are new into groups of their own, to be asked about from the start.
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

// due reports whether a relay is to be asked about some of them now.
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

// turn returns the group that is asked about next, nil if there is none: one that is urgent, or,
// once a minute, the next one that has something to be asked about. One that always fails keeps
// the others from nothing.
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
	if g.resume == nil { // else it goes on with what is older
		g.behind, g.begun = nil, now
	}
	var qs []Query
	if qs, b.roles = ds.pending.queries(r, ds.repos.itemFilters(b.items), since, g.resume); len(qs) == 0 {
		ds.done(r, b, false)
		return
	}
	for i := range qs { // to compare is dearer than what there may be of few, or in a short time
		qs[i].NoNegentropy = b.kind == Recent || len(b.items) < leastCompared
	}
	d.running, g.running = true, true
	ds.pending.start(r, b, qs, now)
}

// done takes note that a batch has brought all there is of a group.
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

// failed queues the group of a batch again, but not before until.
func (ds *threads) failed(r *relayState, b *batch, in Done, until time.Time) {
	r.threads.notAskedAbout(b, in.Cursors, until)
}

// lost queues the group of a batch again.
func (ds *threads) lost(r *relayState, b *batch, got []Cursor) {
	r.threads.notAskedAbout(b, got, r.threads.retryAt)
}

// skipped has what came live since a moment asked for once more, since some of it was left out.
func (ds *threads) skipped(r *relayState, since time.Time) {
	d := r.threads
	if d == nil {
		return
	}
	for _, g := range d.groups {
		if g.apart == len(g.items) || g.first && !g.running && g.resume == nil {
			continue // it is asked about anyhow
		}
		followed := make(map[Item]struct{}, len(g.items)-g.apart)
		for _, it := range g.items {
			if d.of[it].sub != nil {
				followed[it] = struct{}{}
			}
		}
		if whole := g.apart == 0 && len(g.behind) == 0 && !g.first && !g.running; whole || since.Before(g.since) {
			g.since = since // all of it is here up to then
		}
		if g.running && (g.floor.IsZero() || since.Before(g.floor)) {
			g.floor = since
		}
		g.lag(followed)
		d.hurry(g)
	}
}

// lag takes note of items that are behind.
func (g *threadGroup) lag(items map[Item]struct{}) {
	if len(items) > 0 && g.behind == nil {
		g.behind = make(map[Item]struct{}, len(items))
	}
	maps.Copy(g.behind, items)
}

// follow follows as many live as there is room for. New ones go into one subscription with
// those of subscriptions of about the same size, so that what is sent is in proportion to what
// is new.
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
			d.liveAt = now.Add(ds.longer(ds.cfg.RetryBase)) // by then there may be others
			return
		}
		ds.replace(r, with, items[:n], now)
		items = items[n:]
	}
}

// inOneRequest reports whether the relay takes items in one request.
func (ds *threads) inOneRequest(r *relayState, items []Item) bool {
	reqs, large := filters.Pack(ds.filters(r, items), r.limits.MaxMessage, r.limits.MaxFilters)
	return len(reqs) == 1 && len(large) == 0
}

// refit closes the subscriptions that the relay takes in one request no more. What they
// followed is followed anew, in several.
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

// bytesEach is more than a descendant takes in live filters.
const bytesEach = 3 * len(longAddress+longAddress)

// longAddress is about as long as one is.
const longAddress = "39842:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef:an-identifier-of-32-characters"

// fits is how many more there is room for in bytes, if so many subscriptions are replaced.
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

// replace opens one subscription in place of others, with what is still wanted of
// theirs and with more items: before they are closed where there is room for that.
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

// filters returns the live filters for items.
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
			if g.apart--; !g.first || g.running || g.resume != nil { // what came since it was asked about
				g.lag(map[Item]struct{}{it: {}})
				d.hurry(g)
			}
		}
		at.sub = s
		d.of[it] = at
		delete(d.apart, it)
	}
}

// close ends a subscription.
func (ds *threads) close(r *relayState, s *threadSub, now time.Time) {
	ds.subscriptions.close(r, s.id)
	r.threads.lose(s, now)
}

// capacity is how many items without an address go into one subscription.
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

// makeWay closes subscriptions of descendants that stand in the way of so many others of so
// many bytes.
func (ds *threads) makeWay(r *relayState, others, bytes int) {
	d := r.threads
	for d != nil && len(d.subs) > 0 && (others+len(d.subs) > r.liveRoom()+r.spareRoom() || !r.limits.Retains(bytes+d.bytes())) {
		ds.close(r, d.smallest(), ds.now)
	}
}

// closed notes that the relay ended a subscription of descendants, and reports whether its filters are
// to rest.
func (ds *threads) closed(r *relayState, in LiveClosed, now time.Time) (rests bool) {
	d := r.threads
	d.lose(d.subs[in.Live], now)
	switch {
	case !in.GaveWay && in.Why == wire.RefusalRestricted && in.Stood < ds.cfg.RetryBase:
		return true
	case now.Before(d.liveAt): // it belongs to the refusal before
	case in.Why == wire.RefusalOverflow: // it could not keep up for once
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

// dropEmpty forgets a group of which nothing is left, unless it is being asked about.
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

// hurry queues a group to be asked about before its turn.
func (d *threadState) hurry(g *threadGroup) {
	if !g.queued {
		g.queued = true
		d.urgent = append(d.urgent, g)
	}
}

// rotates reports whether anything is asked for in rotation.
func (d *threadState) rotates() bool { return len(d.apart) > 0 || d.daily > 0 }

// join adds a small group to another one, so that as few groups as can be are asked about.
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

// notAskedAbout queues the group of a failed batch again, but not before until.
func (d *threadState) notAskedAbout(b *batch, got []Cursor, until time.Time) {
	g := b.desc
	d.running, g.running = false, false
	d.retryAt = until
	if g.resume = merge(g.resume, b.roles, got, false); b.kind == Recent || !g.floor.IsZero() {
		g.resume = nil // what came meanwhile is asked for as well
	}
	g.floor = time.Time{}
	maps.DeleteFunc(b.behind, func(it Item, _ struct{}) bool { return d.of[it].group != g })
	g.lag(b.behind)
	if d.dropEmpty(g); len(g.items) > 0 && (g.first || len(g.behind) > 0) {
		d.hurry(g)
	}
}

// wanted returns what is still wanted of subscriptions.
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

// bytes is how many the requests of the standing subscriptions have.
func (d *threadState) bytes() (n int) {
	for _, s := range d.subs {
		n += s.bytes
	}
	return n
}

// fitting returns which subscriptions to replace by one that has so many more items, or as many
// of them as there is room for.
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

// bySize returns the subscriptions, those with fewest items first.
func (d *threadState) bySize() []*threadSub {
	return slices.SortedFunc(maps.Values(d.subs), func(a, b *threadSub) int {
		return cmp.Or(cmp.Compare(len(a.items)-a.idle, len(b.items)-b.idle), cmp.Compare(a.id, b.id))
	})
}

func (d *threadState) smallest() *threadSub { return d.bySize()[0] }

// lose takes note that a subscription stands no more, and did until then.
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
				g.since = until // all of it was followed
			}
			g.apart++
		}
	}
}

// lost ends a connection that stood until then.
func (d *threadState) lost(aliveAt time.Time) {
	if d == nil {
		return
	}
	for _, s := range d.bySize() {
		d.lose(s, aliveAt)
	}
	d.at = time.Time{}
}

// passStarted marks all groups to be asked about from the start once more, in their turns.
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

// wakes names what becomes due on a connection.
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

// liveSubs is how many subscriptions of descendants stand.
func (d *threadState) liveSubs() int {
	if d == nil {
		return 0
	}
	return len(d.subs)
}

// counts returns how many descendants there are, how many of them are not followed live,
// and by how many filters the others are.
func (d *threadState) counts() (all, apart, fs int) {
	if d == nil {
		return 0, 0, 0
	}
	return len(d.of), len(d.apart), d.filters
}

// jumped sets back what depends on a clock that was set back.
func (d *threadState) jumped(back time.Duration) {
	if d == nil {
		return
	}
	for _, g := range d.groups {
		setBack(back, &g.since, &g.begun, &g.floor)
	}
}
