package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
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

type liveSync struct {
	*core
	repos   *repoSyncIndex
	catchUp *catchUp
	polling *polling
	last    LiveID
}

type liveSub struct {
	filters []nostr.Filter // immutable
	size    int            // of its request in bytes
	since   time.Time
	tier    tier // threadTier: closed if layers 1 to 3 need its room
}

type liveState struct {
	subs    map[LiveID]*liveSub
	missing map[Item]struct{} // items without a subscription
	lost    []nostr.Filter
	stale   bool
	retryAt time.Time // no subscription is opened before
	refused int       // consecutive subscriptions that the relay closed
	// end of the delay of a consolidation, or zero
	waitUntil time.Time
	// number of items that have become unwanted since the last consolidation
	idle int
	// numbers of filters of layers 1 to 3 without room, and of filters larger than a message
	unfollowed, tooLarge int
	kinds                LiveID // 0: none

	// These outlive a connection.
	poll         pollState
	resting      []refusedFilters
	most         int       // learned maximum number of subscriptions; 0: unknown
	noKinds      bool      // the relay refused the filter of all kinds
	learnedUntil time.Time // of most and noKinds
}

// follow opens subscriptions for missing items, or merges their filters with the smallest
// subscription. If that finds no room, it consolidates.
func (lv *liveSync) follow(r *relayState, now time.Time) {
	l := &r.live
	if now.Before(l.retryAt) || now.Before(r.coolUntil) {
		return
	}
	lv.resume(r, now)
	if !now.Before(l.learnedUntil) && (l.noKinds || l.most > 0) {
		l.noKinds, l.most, l.stale = false, 0, l.stale || l.unfollowed > 0
	}
	if l.stale || l.tooIdle(r) || len(l.subs) == 0 && len(l.missing)+len(l.lost) > 0 {
		lv.consolidate(r, now)
		return
	}
	items, threads := lv.byTier(l.missing)
	if len(items)+len(l.lost) > 0 {
		lv.followMissing(r, items, now)
	} else if len(threads) == 0 && (r.catchUp.missed || !l.waitUntil.IsZero()) {
		lv.opened(r, nil) // the missing items are no longer wanted
	}
	if len(threads) > 0 && len(l.missing) == len(threads) {
		lv.followThreads(r, threads, now)
	}
}

func (lv *liveSync) byTier(items map[Item]struct{}) (out, threads []Item) {
	for it := range items {
		if lv.repos.tier(it) == threadTier {
			threads = append(threads, it)
		} else {
			out = append(out, it)
		}
	}
	return out, threads
}

func (lv *liveSync) followMissing(r *relayState, items []Item, now time.Time) {
	l := &r.live
	switch {
	case r.busy() && now.Before(l.waitUntil):
		return
	case l.unfollowed > 0:
		lv.followNoMore(r, items, now)
		return
	}
	fresh := lv.filters(r, items)
	if len(l.lost) > 0 {
		fresh = joined(r, slices.Concat(l.lost, fresh))
	}
	c := lv.packed(r, fresh)
	total := l.filters() + c.filters(r)
	crowded := total > lv.cfg.RebuildFilters && 4*total > 5*(1+filtersFor(r.limits, r.history.ofKind))
	if fits := c.fits(r, mainTier); !fits || crowded {
		m := lv.merged(r, fresh, mainTier)
		if fits = m.fits(r, mainTier); fits && m.overlaps(r, mainTier) {
			c = m
		}
	}
	fits := c.fits(r, mainTier)
	switch {
	case fits && c.overlaps(r, mainTier), fits && !lv.waits(r, now):
		items = append(items, lv.repos.itemsOfAll(r, l.lost)...)
		l.lost = nil
		lv.addFilters(r, c, items, mainTier, now)
	case !lv.waits(r, now):
		lv.consolidate(r, now)
	}
}

func (lv *liveSync) followThreads(r *relayState, items []Item, now time.Time) {
	fresh := lv.filters(r, items)
	c := lv.packed(r, fresh)
	if !c.fits(r, threadTier) {
		c = lv.merged(r, fresh, threadTier)
	}
	if r.live.unfollowed == 0 && c.tooLarge == 0 && c.fits(r, threadTier) {
		lv.addFilters(r, c, items, threadTier, now)
		return
	}
	lv.polling.add(r, items, now)
	r.live.missing = nil
	lv.opened(r, items)
}

// followNoMore polls missing items, because subscriptions have no room.
func (lv *liveSync) followNoMore(r *relayState, items []Item, now time.Time) {
	l := &r.live
	var n [itemKinds]int
	for _, it := range items {
		n[lv.repos.infos[it].kind]++
	}
	added := n[itemLayer1] + filtersFor(r.limits, n)
	if len(l.lost) > 0 || l.kinds == 0 && lv.prefersKinds(r, l.unfollowed+added) {
		lv.consolidate(r, now)
		return
	}
	l.unfollowed += added
	if l.kinds == 0 {
		lv.polling.add(r, items, now)
	}
	lv.opened(r, items)
}

// subscriptionChange replaces subscriptions by others.
type subscriptionChange struct {
	old      []LiveID
	reqs     requests
	tooLarge int // filters
}

func (lv *liveSync) packed(r *relayState, fs []nostr.Filter, old ...LiveID) subscriptionChange {
	reqs, tooLarge := packed(r.limits, fs)
	return subscriptionChange{old: old, reqs: reqs, tooLarge: tooLarge}
}

// fits reports whether there is room after the change, overlaps also while old and new
// subscriptions are both open. Subscriptions of tiers above last do not count.
func (c subscriptionChange) fits(r *relayState, last tier) bool {
	n, size := r.live.used(last)
	for _, id := range c.old {
		n--
		size -= r.live.subs[id].size
	}
	return n+len(c.reqs) <= r.liveRoom() && r.limits.Retains(size+c.reqs.size())
}

func (c subscriptionChange) overlaps(r *relayState, last tier) bool {
	n, size := r.live.used(last)
	lent := r.limits.Lent()
	if r.live.most > 0 {
		lent = 0
	}
	return len(c.old) == 0 || n+len(c.reqs) <= r.liveRoom()+lent && r.limits.Retains(size+c.reqs.size())
}

func (c subscriptionChange) filters(r *relayState) int {
	n := c.reqs.filters()
	for _, id := range c.old {
		n -= len(r.live.subs[id].filters)
	}
	return n
}

// addFilters makes a change that covers missing items. Without room for old and new subscriptions,
// a catch-up fetches the events in between.
func (lv *liveSync) addFilters(r *relayState, c subscriptionChange, items []Item, t tier, now time.Time) {
	lv.makeWay(r, c, now)
	overlaps := c.overlaps(r, threadTier)
	if overlaps {
		lv.open(r, c.reqs, t)
	}
	var closed []nostr.Filter
	for _, id := range c.old {
		closed = append(closed, lv.close(r, id)...)
	}
	if !overlaps {
		lv.open(r, c.reqs, t)
		since := lv.catchUp.lookSince(r, now)
		lv.catchUp.queueItems(r, lv.repos.itemsOfAll(r, closed), since)
	}
	r.live.tooLarge += c.tooLarge
	lv.opened(r, items)
}

// makeWay closes subscriptions of layer 4 until a change has room.
func (lv *liveSync) makeWay(r *relayState, c subscriptionChange, now time.Time) {
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(r.live.subs))) {
		if c.fits(r, threadTier) {
			return
		}
		if r.live.subs[id].tier == threadTier && !slices.Contains(c.old, id) {
			lv.polling.add(r, lv.repos.itemsOfAll(r, lv.close(r, id)), now)
		}
	}
}

// opened starts a catch-up for items that were temporarily not followed.
func (lv *liveSync) opened(r *relayState, items []Item) {
	for _, it := range items {
		drop(&r.live.missing, it)
	}
	r.live.waitUntil = time.Time{}
	switch {
	case r.catchUp.missedAll:
		lv.catchUp.queueAll(r)
	case r.catchUp.missed:
		r.catchUp.missed = false
		lv.catchUp.queueItems(r, slices.Clone(items), r.catchUp.since)
	}
}

// merged adds fresh filters to those of the smallest subscription.
func (lv *liveSync) merged(r *relayState, fresh []nostr.Filter, t tier) subscriptionChange {
	var smallest LiveID
	for id, s := range r.live.subs {
		if id == r.live.kinds || s.tier != t {
			continue
		}
		if o := r.live.subs[smallest]; o == nil || cmp.Or(cmp.Compare(s.size, o.size), cmp.Compare(id, smallest)) < 0 {
			smallest = id
		}
	}
	if smallest == 0 {
		return lv.packed(r, fresh)
	}
	return lv.packed(r, joined(r, slices.Concat(fresh, r.live.subs[smallest].filters)), smallest)
}

const idleValues = filters.MaxValues

// tooIdle reports whether a consolidation is worth its traffic, because more items are unwanted
// than wanted, or fewer if a filter has no room.
func (l *liveState) tooIdle(r *relayState) bool {
	wanted := len(r.history.items)
	if l.unfollowed > 0 {
		wanted /= 4
	}
	return l.idle > max(idleValues, wanted)
}

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

// mostWait is the maximum delay of a consolidation.
const mostWait = 5 * time.Minute

// waits delays a consolidation while history is being fetched if old and new subscriptions have no
// room together, because the items that history finds would soon require another one.
func (lv *liveSync) waits(r *relayState, now time.Time) bool {
	if !r.busy() {
		return false
	}
	if r.live.waitUntil.IsZero() {
		r.live.waitUntil = now.Add(mostWait)
		lv.catchUp.missedSome(r, now)
	}
	return now.Before(r.live.waitUntil)
}

// consolidate replaces all subscriptions by the minimum number that covers all items, or by as many
// as have room. The rest is followed by kinds or polled.
func (lv *liveSync) consolidate(r *relayState, now time.Time) {
	wanted := make(map[Item]struct{}, len(r.history.items))
	for it := range r.history.items {
		wanted[it] = struct{}{}
	}
	items, threads := lv.byTier(wanted)
	old := r.live.subs
	r.live.reset()
	fs := lv.filters(r, items)
	reqs, left := lv.pack(r, fs)
	kinds := lv.prefersKinds(r, left.filters())
	if kinds {
		fs = append(fit(r.limits, filters.Live(nostr.Filter{Kinds: filters.Kinds()})), fs...)
		reqs, left = lv.pack(r, fs)
		r.live.kinds = lv.last + 1 // the first request contains the filter of all kinds
	}
	r.live.unfollowed = left.filters()
	polled := make(map[Item]struct{})
	if !kinds {
		lv.addItems(r, left, polled)
	}
	below, _ := packed(r.limits, lv.filters(r, threads))
	room := r.liveRoom() - len(reqs)
	if bytes := r.limits.LiveBytes(); len(left) > 0 || bytes > 0 && bytes <= reqs.size() {
		room = 0
	}
	below, left = within(below, room, max(0, r.limits.LiveBytes()-reqs.size()))
	lv.addItems(r, left, polled)
	lv.polling.begin(r, slices.Collect(maps.Keys(polled)), now)
	r.live.subs = old
	c := subscriptionChange{old: slices.Sorted(maps.Keys(old)), reqs: slices.Concat(reqs, below)}
	overlap := c.overlaps(r, threadTier)
	if overlap {
		lv.open(r, reqs, mainTier)
		lv.open(r, below, threadTier)
	}
	for _, id := range c.old {
		lv.close(r, id)
	}
	if !overlap {
		lv.open(r, reqs, mainTier)
		lv.open(r, below, threadTier)
		lv.catchUp.missedSince(r, now)
	}
	if r.catchUp.missed {
		lv.catchUp.queueAll(r)
	}
}

// prefersKinds reports whether LiveKinds is used for left filters without room. Polling twenty
// filters in ten minutes is one request per 30 seconds. A relay with more wanted items is a hub,
// and most of its events are wanted. Events of other kinds then arrive with the daily pass.
func (lv *liveSync) prefersKinds(r *relayState, left int) bool {
	return left > lv.cfg.PollFilters && !r.live.noKinds
}

func (lv *liveSync) addItems(r *relayState, reqs requests, items map[Item]struct{}) {
	for _, one := range reqs {
		for _, it := range lv.repos.itemsOfAll(r, one.filters) {
			items[it] = struct{}{}
		}
	}
}

func (lv *liveSync) pack(r *relayState, fs []nostr.Filter) (reqs, left requests) {
	reqs, r.live.tooLarge = packed(r.limits, fs)
	most := r.liveRoom()
	return within(squeeze(reqs, most, r.limits), most, r.limits.LiveBytes())
}

func (lv *liveSync) filters(r *relayState, items []Item) (fs []nostr.Filter) {
	for _, g := range lv.repos.groups(items, nil) {
		for _, f := range lv.repos.itemFilters(g.items) {
			fs = append(fs, fit(r.limits, filters.Live(f))...)
		}
	}
	return r.live.withoutResting(fs)
}

func (lv *liveSync) open(r *relayState, reqs requests, t tier) {
	for _, one := range reqs {
		lv.last++
		r.live.subs[lv.last] = &liveSub{filters: one.filters, size: one.size, since: lv.now, tier: t}
		lv.emit(OpenLive{Relay: r.url, Epoch: r.dial.epoch, Live: lv.last, Filters: one.filters})
	}
}

func (lv *liveSync) close(r *relayState, id LiveID) []nostr.Filter {
	fs := r.live.subs[id].filters
	delete(r.live.subs, id)
	lv.emit(CloseLive{Relay: r.url, Epoch: r.dial.epoch, Live: id})
	return fs
}

// limitsChanged consolidates if the subscriptions exceed the new limits, or if items without room
// may have room now.
func (lv *liveSync) limitsChanged(r *relayState, old relaylimits.Requests) {
	l := &r.live
	n, size := l.used(threadTier)
	if r.limits.MaxMessage < old.MaxMessage || l.unfollowed+l.tooLarge > 0 || n > r.liveRoom() ||
		!r.limits.Retains(size) {
		l.stale = true
	}
	l.waitUntil = time.Time{}
	for _, s := range l.subs {
		if len(s.filters) > r.limits.MaxFilters {
			l.stale = true
		}
	}
}

// closed handles a subscription that the relay closed. Its filters are opened again after
// RetryBase, or after a wait that grows with each refusal.
func (lv *liveSync) closed(r *relayState, in LiveClosed, now time.Time) {
	l := &r.live
	s := l.subs[in.Live]
	if s == nil {
		return
	}
	delete(l.subs, in.Live)
	kinds := in.Live == l.kinds
	if in.Why == wire.RefusalTooManySubs {
		l.most, l.learnedUntil = max(1, len(l.subs)-1), now.Add(relaylimits.Believed) // one is left to history
	}
	if in.Why == wire.RefusalRestricted && !kinds && in.Stood < lv.cfg.RetryBase {
		lv.refused(r, s, now)
		return
	}
	if s.tier == threadTier {
		for _, it := range lv.repos.itemsOfAll(r, s.filters) {
			if r.history.items[it] != 0 && lv.repos.tier(it) == threadTier {
				put(&l.missing, it)
			}
		}
	} else {
		l.lost = append(l.lost, s.filters...)
	}
	l.waitUntil = time.Time{}
	if kinds {
		l.kinds, l.stale = 0, true
		switch in.Why {
		case wire.RefusalTooManySubs, wire.RefusalRateLimited, wire.RefusalAuthRequired, wire.RefusalOverflow, wire.RefusalTooManyBytes:
		default:
			if in.Stood < lv.cfg.RetryBase {
				l.noKinds, l.learnedUntil = true, now.Add(relaylimits.Believed)
			}
		}
	}
	// After an overload the relay is tried again immediately, unless it was tried less than
	// RetryBase ago. A refusal during a wait belongs to the earlier refusal.
	atOnce := in.Why == wire.RefusalOverflow && now.Sub(s.since) >= lv.cfg.RetryBase
	if !atOnce && !now.Before(l.retryAt) {
		if in.Stood > 0 || now.Sub(l.retryAt) > lv.cfg.RetryMax {
			l.refused = 0
		}
		l.refused++
		l.retryAt = now.Add(lv.retryAfter(l.refused))
	}
	lv.catchUp.missedSome(r, now)
}

// Some relays answer requests but refuse subscriptions to some filters. Such filters rest for a day
// and are then tried once. A catch-up fetches the missed events.

const (
	restFor     = 24 * time.Hour
	mostResting = 64
)

type refusedFilters struct {
	filters []nostr.Filter
	until   time.Time
	since   time.Time
}

// refused handles the refusal of a subscription. Filters of several forms are tried separately,
// because a refusal concerns the form more often than the values.
func (lv *liveSync) refused(r *relayState, s *liveSub, now time.Time) {
	parts := byRole(s.filters)
	c := subscriptionChange{reqs: measured(parts)}
	if len(parts) > 1 && c.fits(r, s.tier) {
		since := lv.catchUp.lookSince(r, now)
		lv.catchUp.queueItems(r, lv.repos.itemsOfAll(r, s.filters), since)
		lv.addFilters(r, c, nil, s.tier, now)
		return
	}
	k := refusedFilters{filters: s.filters, since: now, until: now.Add(lv.longer(restFor))}
	if n := len(r.live.resting); n > 0 {
		last := &r.live.resting[n-1]
		if last.until.Sub(now) > restFor-time.Hour {
			k.until = last.until // too many separate refusals: tried together with the last
		}
		if n == mostResting {
			last.filters = joined(r, slices.Concat(last.filters, k.filters))
			return
		}
	}
	r.live.resting = append(r.live.resting, k)
}

func (lv *liveSync) resume(r *relayState, now time.Time) {
	kept := r.live.resting[:0]
	for _, k := range r.live.resting {
		if now.Before(k.until) {
			kept = append(kept, k)
			continue
		}
		r.live.lost, r.live.waitUntil = append(r.live.lost, k.filters...), time.Time{}
		lv.catchUp.missedSome(r, k.since)
	}
	clear(r.live.resting[len(kept):])
	r.live.resting = kept
}

func byRole(fs []nostr.Filter) (out [][]nostr.Filter) {
	at := make(map[filterRole]int)
	for _, f := range fs {
		i, ok := at[roleOf(f)]
		if !ok {
			i = len(out)
			at[roleOf(f)] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], f)
	}
	return out
}

func (l *liveState) connected() {
	l.retryAt, l.refused = time.Time{}, 0
	l.reset()
}

func (l *liveState) reset() {
	*l = liveState{
		subs:    make(map[LiveID]*liveSub),
		retryAt: l.retryAt, refused: l.refused, most: l.most, noKinds: l.noKinds,
		learnedUntil: l.learnedUntil, resting: l.resting, poll: l.poll,
	}
}

func (l *liveState) used(last tier) (n, size int) {
	for _, s := range l.subs {
		if s.tier <= last {
			n++
			size += s.size
		}
	}
	return n, size
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
	for _, k := range l.resting {
		consider(k.until)
	}
	for _, at := range l.poll.at {
		consider(at)
	}
}

func (l *liveState) jumped(back time.Duration) {
	for _, g := range l.poll.groups {
		setBack(back, &g.since)
	}
}

func (l *liveState) method() LiveMethod {
	switch {
	case l.kinds != 0:
		return LiveKinds
	case l.unfollowed > 0:
		return LivePolling
	}
	return LiveAll
}

func (lv *liveSync) descendants(r *relayState) int {
	if len(r.live.subs) == 0 {
		return 0
	}
	n := r.history.ofKind[itemDescendant]
	_, missing := lv.byTier(r.live.missing)
	for _, g := range r.live.poll.groups {
		if g.tier == threadTier {
			n -= len(g.items)
		}
	}
	return max(0, n-len(missing))
}

func (l *liveState) withoutResting(fs []nostr.Filter) []nostr.Filter {
	if len(l.resting) == 0 {
		return fs
	}
	type value struct {
		filterRole
		value string
	}
	rests := make(map[value]struct{})
	for _, k := range l.resting {
		for _, f := range k.filters {
			as := roleOf(f)
			if as.tag == "" {
				rests[value{as, ""}] = struct{}{}
			}
			for _, v := range f.Tags[as.tag] {
				rests[value{as, v}] = struct{}{}
			}
		}
	}
	out := make([]nostr.Filter, 0, len(fs))
	for _, f := range fs {
		as := roleOf(f)
		if _, all := rests[value{as, ""}]; all && as.tag == "" {
			continue
		}
		if as.tag != "" {
			left := slices.DeleteFunc(slices.Clone(f.Tags[as.tag]), func(v string) bool {
				_, ok := rests[value{as, v}]
				return ok
			})
			if len(left) == 0 {
				continue
			}
			f.Tags = filters.WithList(f.Tags, as.tag, left)
		}
		out = append(out, f)
	}
	return out
}

func (l *liveState) restingFilters() (n int) {
	for _, k := range l.resting {
		n += len(k.filters)
	}
	return n
}
