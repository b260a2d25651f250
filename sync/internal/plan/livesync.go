package plan

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// LiveID identifies a subscription.
type LiveID uint64

// LiveMethod is the way in which new events of a relay arrive.
type LiveMethod uint8

const (
	// LiveAll: subscriptions cover all items.
	LiveAll LiveMethod = iota
	// LiveKinds: one filter of all kinds of NIP-34 replaces the filters without room. It returns
	// events of other repositories, too.
	LiveKinds
	// LivePolling: items without room are requested in turn.
	LivePolling
)

func (m LiveMethod) String() string {
	return [...]string{"live", "live+kinds", "live+polling"}[m]
}

type liveSub struct {
	filters []nostr.Filter // immutable
	size    int            // of its request in bytes
	since   time.Time
}

// liveState contains the subscriptions of a relay. New items get another subscription, or join the
// smallest subscription. All are consolidated if there is no room, if stale is set, or if many items
// are unwanted. Items without room are followed by kinds, or polled if few.
type liveState struct {
	subs      map[LiveID]*liveSub
	missing   map[Item]struct{} // items without a subscription
	lost      []nostr.Filter    // of subscriptions that the relay closed
	stale     bool              // consolidate next
	retryAt   time.Time         // no subscription is opened before
	refusals  int               // consecutive subscriptions that the relay closed
	waitUntil time.Time         // end of the delay of a consolidation, or zero
	unwanted  int               // items that became unwanted since the last consolidation
	// numbers of filters of layers 1 to 3 without room, and of filters larger than a message
	unfollowed, tooLarge int
	kinds                LiveID // 0: none

	// The following fields outlive a connection.
	poll           pollState
	refusedItems   map[Item]struct{} // polled, because the relay refuses to follow them
	refusedFilters int
	refusedUntil   time.Time
	maxSubs        int       // learned maximum number of subscriptions; 0: unknown
	noKinds        bool      // the relay refused the filter of all kinds
	learnedUntil   time.Time // of maxSubs and noKinds
}

// subscribe opens subscriptions for missing items, in the smallest one if necessary. Without room it
// consolidates.
func (p *Plan) subscribe(r *relayState) {
	l := &r.live
	if p.now.Before(l.retryAt) || p.now.Before(r.coolUntil) {
		return
	}
	if l.refusedFilters > 0 && !p.now.Before(l.refusedUntil) {
		l.refusedItems, l.refusedFilters, l.stale, l.waitUntil = nil, 0, true, time.Time{}
	}
	if !p.now.Before(l.learnedUntil) && (l.noKinds || l.maxSubs > 0) {
		l.noKinds, l.maxSubs, l.stale = false, 0, l.stale || l.unfollowed > 0
	}
	if l.stale || l.unwanted > max(leastUnwanted, len(r.history.items)) || len(l.subs) == 0 && len(l.missing)+len(l.lost) > 0 {
		p.consolidate(r)
		return
	}
	if len(l.missing)+len(l.lost) == 0 {
		if r.catchUp.missed != 0 || !l.waitUntil.IsZero() {
			p.opened(r, nil) // the missing items are no longer wanted
		}
		return
	}
	if r.busy() && p.now.Before(l.waitUntil) {
		return
	}
	items, _ := p.byTier(maps.Keys(l.missing))
	if len(items)+len(l.lost) > 0 {
		p.subscribeMissing(r, items)
	}
	if items, threads := p.byTier(maps.Keys(l.missing)); len(items) == 0 && len(threads) > 0 {
		p.subscribeThreads(r, threads)
	}
}

func (p *Plan) byTier(items iter.Seq[Item]) (out, threads []Item) {
	for it := range items {
		if p.repos.tier(it) == threadTier {
			threads = append(threads, it)
		} else {
			out = append(out, it)
		}
	}
	return out, threads
}

func (p *Plan) subscribeMissing(r *relayState, items []Item) {
	l := &r.live
	if l.unfollowed > 0 {
		p.pollMissing(r, items)
		return
	}
	fresh := p.filters(r, items)
	if len(l.lost) > 0 {
		fresh = joined(r, slices.Concat(l.lost, fresh))
	}
	c := p.change(r, fresh, r.liveRoom())
	fits := c.fits(r, r.liveRoom())
	switch {
	case fits && c.overlaps(r), fits && !p.delayed(r):
		items = append(items, p.repos.itemsOf(l.lost)...)
		l.lost = nil
		p.addFilters(r, c, items)
	case !p.delayed(r):
		p.consolidate(r)
	}
}

// subscribeThreads follows items of layer 4 in three quarters of the subscriptions, and polls them
// beyond.
func (p *Plan) subscribeThreads(r *relayState, items []Item) {
	room := r.liveRoom() * 3 / 4
	c := p.change(r, p.filters(r, items), room)
	if r.live.unfollowed == 0 && c.tooLarge == 0 && c.fits(r, room) {
		p.addFilters(r, c, items)
		return
	}
	p.poll(r, items)
	p.opened(r, items)
}

func (p *Plan) pollMissing(r *relayState, items []Item) {
	l := &r.live
	added := len(p.filters(r, items))
	if len(l.lost) > 0 || l.kinds == 0 && p.prefersKinds(r, l.unfollowed+added) {
		p.consolidate(r)
		return
	}
	l.unfollowed += added
	if l.kinds == 0 {
		p.poll(r, items)
	}
	p.opened(r, items)
}

// change returns a change that adds filters, in the smallest subscription if there is no room for
// another.
func (p *Plan) change(r *relayState, fresh []nostr.Filter, room int) subscriptionChange {
	c := packed(r.limits, fresh)
	if c.fits(r, room) {
		return c
	}
	var smallest LiveID
	for id, s := range r.live.subs {
		if id == r.live.kinds {
			continue
		}
		if o := r.live.subs[smallest]; o == nil || cmp.Or(cmp.Compare(s.size, o.size), cmp.Compare(id, smallest)) < 0 {
			smallest = id
		}
	}
	if smallest != 0 {
		c = packed(r.limits, joined(r, slices.Concat(fresh, r.live.subs[smallest].filters)))
		c.old = []LiveID{smallest}
	}
	return c
}

// replaceSubs opens and closes subscriptions. overlaps means that no old filter had a gap.
func (p *Plan) replaceSubs(r *relayState, c subscriptionChange) (closed []nostr.Filter, overlaps bool) {
	if overlaps = c.overlaps(r); overlaps {
		p.open(r, c.reqs)
	}
	for _, id := range c.old {
		closed = append(closed, r.live.subs[id].filters...)
		delete(r.live.subs, id)
		p.emit(CloseLive{Relay: r.url, Epoch: r.dial.epoch, Live: id})
	}
	if !overlaps {
		p.open(r, c.reqs)
	}
	return closed, overlaps
}

// addFilters makes a change that covers missing items. Without room for old and new subscriptions,
// a catch-up fetches the events in between.
func (p *Plan) addFilters(r *relayState, c subscriptionChange, items []Item) {
	if closed, overlaps := p.replaceSubs(r, c); !overlaps {
		p.catchUp(r, p.repos.itemsOf(closed), p.since(p.now))
	}
	r.live.tooLarge += c.tooLarge
	p.opened(r, items)
}

// opened starts a catch-up for items that were temporarily not followed.
func (p *Plan) opened(r *relayState, items []Item) {
	for _, it := range items {
		drop(&r.live.missing, it)
	}
	r.live.waitUntil = time.Time{}
	switch {
	case r.catchUp.missedAll:
		p.catchUpAll(r)
	case r.catchUp.missed != 0:
		since := r.catchUp.missed
		r.catchUp.missed = 0
		p.catchUp(r, slices.Clone(items), since)
	}
}

// leastUnwanted is the number of unwanted items from which a consolidation is worth its traffic, if
// they are more than the wanted ones.
const leastUnwanted = filters.MaxValues

// joined joins filters that differ only in values.
func joined(r *relayState, fs []nostr.Filter) (out []nostr.Filter) {
	type shape struct {
		filterRole
		kinds string
	}
	values := make(map[shape][]string)
	like := make(map[shape]nostr.Filter)
	for _, f := range fs {
		if len(f.Tags) == 0 {
			out = append(out, f)
		}
		for _, vs := range f.Tags {
			s := shape{roleOf(f), fmt.Sprint(f.Kinds)}
			like[s] = f
			values[s] = append(values[s], vs...)
		}
	}
	var last []string
	for _, s := range sortedBy(values, func(a, b shape) int {
		return cmp.Or(a.compare(b.filterRole), cmp.Compare(a.kinds, b.kinds))
	}) {
		vs := values[s]
		slices.Sort(vs)
		vs = slices.Compact(vs)
		if slices.Equal(vs, last) {
			vs = last // often equal to the list of another tag
		}
		last = vs
		for chunk := range slices.Chunk(vs, filters.MaxValues) {
			f := like[s]
			f.Tags = nostr.TagMap{s.tag: slices.Clip(chunk)}
			out = append(out, fit(r.limits, f)...)
		}
	}
	return out
}

const maxConsolidationWait = 5 * time.Minute

// delayed reports whether a consolidation without room for old and new subscriptions waits while
// history runs, because the items that it finds would soon require another one.
func (p *Plan) delayed(r *relayState) bool {
	if !r.busy() {
		return false
	}
	if r.live.waitUntil.IsZero() {
		r.live.waitUntil = p.now.Add(maxConsolidationWait)
		p.missedSome(r, p.now)
	}
	return p.now.Before(r.live.waitUntil)
}

// consolidate replaces all subscriptions by the fewest that cover all items, or by as many as have
// room. The rest is followed by kinds or polled.
func (p *Plan) consolidate(r *relayState) {
	items, threads := p.byTier(maps.Keys(r.history.items))
	old := r.live.subs
	r.live.reset()
	fs := p.filters(r, items)
	reqs, left := p.pack(r, fs)
	kinds := p.prefersKinds(r, left.filters())
	if kinds {
		reqs, left = p.pack(r, append(fit(r.limits, filters.Live(nostr.Filter{Kinds: filters.Kinds()})), fs...))
		r.live.kinds = p.lastLive + 1 // id of the first request, which has this filter
	}
	r.live.unfollowed = left.filters()
	var polled []nostr.Filter
	if !kinds {
		polled = left.all()
	}
	below := packed(r.limits, p.filters(r, threads)).reqs
	room := r.liveRoom()*3/4 - len(reqs)
	if bytes := r.limits.LiveBytes(); len(left) > 0 || bytes > 0 && bytes <= reqs.size() {
		room = 0
	}
	below, left = within(below, max(0, room), max(0, r.limits.LiveBytes()-reqs.size()))
	p.repoll(r, slices.AppendSeq(p.repos.itemsOf(append(polled, left.all()...)), maps.Keys(r.live.refusedItems)))
	r.live.subs = old
	c := subscriptionChange{old: slices.Sorted(maps.Keys(old)), reqs: slices.Concat(reqs, below)}
	if _, overlaps := p.replaceSubs(r, c); !overlaps {
		p.missedSince(r, p.now)
	}
	if r.catchUp.missed != 0 {
		p.catchUpAll(r)
	}
}

func (p *Plan) pack(r *relayState, fs []nostr.Filter) (reqs, left requests) {
	c := packed(r.limits, fs)
	r.live.tooLarge = c.tooLarge
	reqs, left = within(c.reqs, r.liveRoom(), r.limits.LiveBytes())
	if len(left) > 0 && r.limits.MaxRetained == 0 {
		var rest []nostr.Filter
		for _, f := range left.all() {
			rest = append(rest, reqs.fill(f, r.limits)...)
		}
		left = packed(r.limits, joined(r, rest)).reqs
	}
	return reqs, left
}

// prefersKinds reports whether LiveKinds is used for left filters without room. A relay with so
// many wanted items is a hub, and most of its events are wanted. Events of other kinds arrive with
// the daily pass.
func (p *Plan) prefersKinds(r *relayState, left int) bool {
	return left > p.cfg.PollFilters && !r.live.noKinds
}

// filters returns the filters of layers 1 to 4 for items, without refused ones, divided by the limits
// of the relay.
func (p *Plan) filters(r *relayState, items []Item) (fs []nostr.Filter) {
	items = slices.DeleteFunc(slices.Clone(items), func(it Item) bool { return has(r.live.refusedItems, it) })
	for _, g := range p.repos.groups(items) {
		for _, f := range p.repos.itemFilters(g) {
			fs = append(fs, fit(r.limits, filters.Live(f))...)
		}
	}
	return fs
}

func (p *Plan) open(r *relayState, reqs requests) {
	for _, one := range reqs {
		p.lastLive++
		r.live.subs[p.lastLive] = &liveSub{filters: one.filters, size: one.size, since: p.now}
		p.emit(OpenLive{Relay: r.url, Epoch: r.dial.epoch, Live: p.lastLive, Filters: one.filters})
	}
}

// apply consolidates if the subscriptions exceed the new limits, or if items without room
// may have room now.
func (in LimitsChanged) apply(p *Plan) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || !r.dial.connected || r.limits == in.Limits {
		return
	}
	old, l := r.limits, &r.live
	r.limits = in.Limits
	if r.limits.MaxMessage < old.MaxMessage || l.unfollowed+l.tooLarge > 0 || len(l.subs) > r.liveRoom() ||
		!r.limits.Retains(l.size()) {
		l.stale = true
	}
	l.waitUntil = time.Time{}
	for _, s := range l.subs {
		if len(s.filters) > r.limits.MaxFilters {
			l.stale = true
		}
	}
}

// apply handles a subscription that the relay closed. Its filters are opened again after a wait that
// grows with each refusal.
func (in LiveClosed) apply(p *Plan) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || r.live.subs[in.Live] == nil {
		return
	}
	l := &r.live
	s := l.subs[in.Live]
	delete(l.subs, in.Live)
	kinds := in.Live == l.kinds
	if in.Why == wire.RefusalTooManySubs {
		l.maxSubs, l.learnedUntil = max(1, len(l.subs)-1), p.now.Add(relaylimits.FactLifetime) // history needs one
	}
	if in.Why == wire.RefusalRestricted && !kinds && in.Stood < p.cfg.RetryBase {
		p.splitRefused(r, s)
		return
	}
	l.lost = append(l.lost, s.filters...)
	l.waitUntil = time.Time{}
	if kinds {
		l.kinds, l.stale = 0, true
		switch in.Why {
		case wire.RefusalTooManySubs, wire.RefusalRateLimited, wire.RefusalAuthRequired, wire.RefusalOverflow, wire.RefusalTooManyBytes:
		default:
			if in.Stood < p.cfg.RetryBase {
				l.noKinds, l.learnedUntil = true, p.now.Add(relaylimits.FactLifetime)
			}
		}
	}
	// An overload is tried again immediately, at most once per RetryBase. A refusal during a wait
	// belongs to the earlier refusal.
	atOnce := in.Why == wire.RefusalOverflow && p.now.Sub(s.since) >= p.cfg.RetryBase
	if !atOnce && !p.now.Before(l.retryAt) {
		if in.Stood > 0 || p.now.Sub(l.retryAt) > p.cfg.RetryMax {
			l.refusals = 0
		}
		l.refusals++
		l.retryAt = p.now.Add(p.retryAfter(l.refusals))
	}
	p.missedSome(r, p.now)
}

const (
	// refusedFor is the time for which the items of refused filters are polled. Then all are tried again.
	refusedFor = 24 * time.Hour
	// maxSplit is the number of refused filters from which on refused subscriptions are not divided,
	// because the relay may refuse all.
	maxSplit = 64
)

// splitRefused tries the halves of a refused subscription, until one filter remains.
func (p *Plan) splitRefused(r *relayState, s *liveSub) {
	l, half := &r.live, len(s.filters)/2
	items := p.repos.itemsOf(s.filters)
	c := subscriptionChange{reqs: slices.Concat(packed(r.limits, s.filters[:half]).reqs, packed(r.limits, s.filters[half:]).reqs)}
	if half > 0 && l.refusedFilters < maxSplit && c.fits(r, r.liveRoom()) {
		p.catchUp(r, items, p.since(p.now))
		p.replaceSubs(r, c)
		return
	}
	if l.refusedFilters == 0 {
		l.refusedUntil = p.now.Add(p.withJitter(refusedFor))
	}
	l.refusedFilters += len(s.filters)
	items = slices.DeleteFunc(items, func(it Item) bool { return r.history.items[it] == 0 || has(l.refusedItems, it) })
	for _, it := range items {
		lazy.Put(&l.refusedItems, it, struct{}{})
	}
	p.poll(r, items)
}

func (l *liveState) connected() {
	l.retryAt, l.refusals = time.Time{}, 0
	l.reset()
}

func (l *liveState) reset() {
	*l = liveState{
		subs:    make(map[LiveID]*liveSub),
		retryAt: l.retryAt, refusals: l.refusals, maxSubs: l.maxSubs, noKinds: l.noKinds,
		learnedUntil: l.learnedUntil, poll: l.poll,
		refusedItems: l.refusedItems, refusedFilters: l.refusedFilters, refusedUntil: l.refusedUntil,
	}
}

func (l *liveState) size() (size int) {
	for _, s := range l.subs {
		size += s.size
	}
	return size
}

func (l *liveState) filters() (n int) {
	for _, s := range l.subs {
		n += len(s.filters)
	}
	return n
}

func (l *liveState) wakes(consider func(time.Time)) {
	consider(l.retryAt)
	consider(l.learnedUntil)
	consider(l.waitUntil)
	if l.refusedFilters > 0 {
		consider(l.refusedUntil)
	}
	for _, at := range l.poll.at {
		consider(at)
	}
}

func (l *liveState) method() LiveMethod {
	switch {
	case l.kinds != 0:
		return LiveKinds
	case l.unfollowed+l.refusedFilters > 0:
		return LivePolling
	}
	return LiveAll
}

func (r *relayState) liveRoom() int {
	if r.live.maxSubs > 0 {
		return min(r.live.maxSubs, r.limits.LiveSubscriptions())
	}
	return r.limits.LiveSubscriptions()
}

// fit returns a filter in the form that the relay accepts, split if necessary.
func fit(l relaylimits.Requests, f nostr.Filter) []nostr.Filter {
	if l.NeedsKinds && f.Kinds == nil {
		f = filters.WithKinds(f)
	}
	return filters.AtMost(f, l.MaxValues)
}

type request struct {
	filters []nostr.Filter
	size    int
}

type requests []request

// subscriptionChange replaces live subscriptions of a relay.
type subscriptionChange struct {
	old      []LiveID // that end
	reqs     requests // that open
	tooLarge int      // filters that no request holds
}

// packed puts filters into the fewest requests that the relay accepts.
func packed(l relaylimits.Requests, fs []nostr.Filter) (c subscriptionChange) {
	reqs, sizes, tooLarge := filters.Pack(fs, l.MaxMessage, l.MaxFilters)
	for i := range reqs {
		c.reqs = append(c.reqs, request{reqs[i], sizes[i]})
	}
	c.tooLarge = len(tooLarge)
	return c
}

func (reqs requests) size() (n int) {
	for i := range reqs {
		n += reqs[i].size
	}
	return n
}

func (reqs requests) filters() (n int) {
	for i := range reqs {
		n += len(reqs[i].filters)
	}
	return n
}

func (reqs requests) all() (fs []nostr.Filter) {
	for _, one := range reqs {
		fs = append(fs, one.filters...)
	}
	return fs
}

// within splits requests by room for most requests and size bytes. A size of 0 means no limit.
func within(reqs requests, most, size int) (fit, left requests) {
	n, used := 0, 0
	for n < min(most, len(reqs)) && (size == 0 || used+reqs[n].size <= size) {
		used += reqs[n].size
		n++
	}
	return reqs[:n], reqs[n:]
}

// leastPart is the number of values below which a filter is not divided.
const leastPart = 3

// fill adds a filter to the requests, in parts if necessary, because a hub needs nearly every byte
// that a relay accepts. It returns the parts without room.
func (reqs requests) fill(f nostr.Filter, limits relaylimits.Requests) (left []nostr.Filter) {
	size, room := filters.Size(f)+1, 0
	for i := range reqs {
		one := &reqs[i]
		if len(one.filters) == limits.MaxFilters {
			continue
		}
		if one.size+size <= limits.MaxMessage {
			one.filters, one.size = append(one.filters, f), one.size+size
			return nil
		}
		room = max(room, limits.MaxMessage-one.size)
	}
	list, n := filters.Longest(f, false)
	if n < 2*leastPart || room < filters.Size(filters.Part(f, list, 0, leastPart)) {
		return []nostr.Filter{f}
	}
	left = reqs.fill(filters.Part(f, list, 0, n/2), limits)
	return append(left, reqs.fill(filters.Part(f, list, n/2, n), limits)...)
}

// filterRole identifies filters of one purpose by tag and kinds.
type filterRole struct {
	tag      string
	deletion bool
}

func roleOf(f nostr.Filter) (r filterRole) {
	for r.tag = range f.Tags {
	}
	r.deletion = len(f.Kinds) == 1 && f.Kinds[0] == graspsync.KindDeletion
	return r
}

func (r filterRole) compare(other filterRole) int {
	order := [...]filterRole{{tag: "a"}, {tag: "A"}, {tag: "q"}, {tag: "a", deletion: true}, {tag: "e"}, {tag: "E"}}
	return cmp.Compare(slices.Index(order[:], r), slices.Index(order[:], other))
}

// fits reports whether there are enough subscriptions and bytes after the change, overlaps also
// while old and new subscriptions are both open.
func (c subscriptionChange) fits(r *relayState, room int) bool {
	size := r.live.size()
	for _, id := range c.old {
		size -= r.live.subs[id].size
	}
	return len(r.live.subs)-len(c.old)+len(c.reqs) <= room && r.limits.Retains(size+c.reqs.size())
}

func (c subscriptionChange) overlaps(r *relayState) bool {
	return len(c.old) == 0 || len(r.live.subs)+len(c.reqs) <= r.liveRoom()+r.limits.Lent() &&
		r.limits.Retains(r.live.size()+c.reqs.size())
}
