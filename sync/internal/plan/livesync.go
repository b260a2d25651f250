package plan

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// LiveID identifies a subscription of one connection.
type LiveID uint64

// LiveMethod is the way in which new events of a relay arrive.
type LiveMethod uint8

// The methods.
const (
	// LiveAll: subscriptions cover all items.
	LiveAll LiveMethod = iota
	// LiveKinds: one filter without tags replaces the filters without room. It returns all events
	// of the kinds of NIP-34, including those of other repositories.
	LiveKinds
	// LivePolling: items without room are requested in turn.
	LivePolling
)

// String returns "live", "live+kinds" or "live+polling".
func (m LiveMethod) String() string {
	return [...]string{"live", "live+kinds", "live+polling"}[m]
}

// liveSync follows the wanted items of a relay by subscriptions.
type liveSync struct {
	*core
	repos         *repoSyncIndex
	catchUp       *catchUp
	polling       *polling
	threads       *threads
	subscriptions *subscriptions
}

// liveSub is an open subscription.
type liveSub struct {
	filters []nostr.Filter // shared with the session, immutable
	size    int            // of its request in bytes
	since   time.Time      // when it was opened
}

// liveState is the live state of a connection.
type liveState struct {
	subs    map[LiveID]*liveSub
	filters int               // number of filters of all
	missing map[Item]struct{} // items without a subscription
	lost    []nostr.Filter    // filters of subscriptions that the relay closed
	stale   bool              // all subscriptions must be consolidated
	retryAt time.Time         // no subscription is opened before, because the relay closed one
	refused int               // consecutive subscriptions that the relay closed
	// waitUntil is the end of the delay of a consolidation, or zero.
	waitUntil time.Time
	// idle is the number of items that have become unwanted since the last consolidation and may
	// still be followed.
	idle int
	// unfollowed is the number of filters without room, tooLarge the number of filters larger than
	// a message of the relay.
	unfollowed, tooLarge int
	kinds                LiveID     // the subscription to all kinds, 0: none
	poll                 *pollState // nil: nothing is polled

	learnedRoom
	resting []refusedFilters // outlives a connection too
}

// learnedRoom contains limits learned from refusals. It outlives a connection and expires, because
// relays change.
type learnedRoom struct {
	most         int // maximum number of subscriptions; 0: unknown
	mostUntil    time.Time
	noKinds      bool // the relay refused the filter of all kinds
	noKindsUntil time.Time
}

// doubt drops expired limits and reports whether any expired.
func (e *learnedRoom) doubt(now time.Time) (any bool) {
	if e.most > 0 && !now.Before(e.mostUntil) {
		e.most, any = 0, true
	}
	if e.noKinds && !now.Before(e.noKindsUntil) {
		e.noKinds, any = false, true
	}
	return any
}

// takes records the maximum number of subscriptions.
func (e *learnedRoom) takes(most int, until time.Time) {
	if e.most == 0 || most <= e.most {
		e.most, e.mostUntil = most, until
	}
}

type subscriptions struct {
	*core
	last LiveID
}

func (s *subscriptions) next() LiveID { return s.last + 1 }

func (s *subscriptions) open(r *relayState, fs []nostr.Filter) LiveID {
	s.last++
	s.emit(OpenLive{Relay: r.url, Epoch: r.dial.epoch, Live: s.last, Filters: fs})
	return s.last
}

func (s *subscriptions) close(r *relayState, id LiveID) {
	s.emit(CloseLive{Relay: r.url, Epoch: r.dial.epoch, Live: id})
}

// follow updates the subscriptions of a relay. It opens subscriptions for missing items. If there
// are too many subscriptions, it merges new filters with the smallest subscriptions, so that a
// change does not send all filters again. If that finds no room, it consolidates. Packing filters is
// expensive, so follow first checks whether the result could be used.
func (lv *liveSync) follow(r *relayState, now time.Time) {
	l := &r.live
	if now.Before(l.retryAt) || now.Before(r.coolUntil) {
		return
	}
	lv.resume(r, now)
	if l.doubt(now) && l.unfollowed > 0 {
		l.stale = true // there may be room now
	}
	if l.stale = l.stale || l.tooIdle(r); l.stale {
		lv.consolidate(r, now)
		return
	}
	if len(l.missing)+len(l.lost) == 0 {
		if !l.waitUntil.IsZero() {
			lv.opened(r, nil) // the missing items are no longer wanted
		}
		return
	}
	switch {
	case len(l.subs) == 0:
		lv.consolidate(r, now)
		return
	case r.busy() && now.Before(l.waitUntil):
		return
	case l.unfollowed > 0 && r.liveFull():
		lv.followNoMore(r, now)
		return
	}
	fresh := lv.filters(r, slices.Collect(maps.Keys(l.missing)))
	if len(l.lost) > 0 {
		fresh = joined(r, slices.Concat(l.lost, fresh))
	}
	by := lv.packed(r, fresh)
	total := l.filters + by.filters(r)
	crowded := total > lv.cfg.RebuildFilters && 4*total > 5*lv.filtersAfterConsolidation(r)
	fits := by.fits(r)
	if !fits || crowded {
		if m, ok := lv.merged(r, fresh); ok && (!fits || m.overlaps(r) && m.filters(r) < by.filters(r)) {
			by, fits = m, true
		}
	}
	switch {
	case fits && (by.overlaps(r) || l.unfollowed > 0 || !lv.waits(r, now)):
		lv.addFilters(r, by, now)
	case l.unfollowed == 0 && lv.waits(r, now):
	default:
		lv.consolidate(r, now)
	}
}

// followNoMore polls missing items for which a consolidation would find no room.
func (lv *liveSync) followNoMore(r *relayState, now time.Time) {
	l := &r.live
	added := lv.filtersOf(r, maps.Keys(l.missing))
	if len(l.lost) > 0 || lv.turnsToKinds(r, added) {
		lv.consolidate(r, now)
		return
	}
	items := slices.Collect(maps.Keys(l.missing))
	l.unfollowed += added
	lv.polling.add(r, items, now)
	l.missing = nil
	lv.opened(r, items)
}

// subscriptionChange replaces subscriptions by others.
type subscriptionChange struct {
	old      []LiveID // ascending
	reqs     requests
	tooLarge int // filters
}

// packed returns the change that replaces old subscriptions by new ones for fs.
func (lv *liveSync) packed(r *relayState, fs []nostr.Filter, old ...LiveID) subscriptionChange {
	reqs, tooLarge := packed(r.limits, fs)
	return subscriptionChange{old: slices.Sorted(slices.Values(old)), reqs: reqs, tooLarge: tooLarge}
}

// fits reports whether there is room after the change. overlaps reports whether there is also room
// while old and new subscriptions are both open.
func (c subscriptionChange) fits(r *relayState) bool {
	return len(r.live.subs)-len(c.old)+len(c.reqs) <= r.liveRoom() && r.limits.Retains(r.live.size()-c.closed(r)+c.reqs.size())
}

func (c subscriptionChange) overlaps(r *relayState) bool {
	return len(c.old) == 0 ||
		len(r.live.subs)+len(c.reqs) <= r.liveRoom()+r.spareRoom() && r.limits.Retains(r.live.size()+c.reqs.size())
}

// closed returns the size of the subscriptions to close in bytes.
func (c subscriptionChange) closed(r *relayState) (n int) {
	for _, id := range c.old {
		n += r.live.subs[id].size
	}
	return n
}

// filters returns the number of filters that the change adds.
func (c subscriptionChange) filters(r *relayState) int {
	n := c.reqs.filters()
	for _, id := range c.old {
		n -= len(r.live.subs[id].filters)
	}
	return n
}

// apply makes a change. If there is room for both, it opens the new subscriptions before it closes
// the old ones. Otherwise a catch-up fetches the events in between.
func (lv *liveSync) apply(r *relayState, c subscriptionChange, now time.Time) {
	overlaps := c.overlaps(r)
	if overlaps {
		lv.open(r, c.reqs)
	}
	var closed []nostr.Filter
	for _, id := range c.old {
		closed = append(closed, r.live.remove(id).filters...)
		lv.subscriptions.close(r, id)
	}
	if !overlaps {
		lv.open(r, c.reqs)
		lv.catchUp.lookSince(r, now)
		lv.catchUp.queueItems(r, lv.repos.itemsOfAll(r, closed))
	}
	r.live.tooLarge += c.tooLarge
}

// addFilters makes a change that covers the missing items.
func (lv *liveSync) addFilters(r *relayState, c subscriptionChange, now time.Time) {
	l := &r.live
	items := slices.Collect(maps.Keys(l.missing))
	items = append(items, lv.repos.itemsOfAll(r, l.lost)...)
	l.missing = nil
	l.lost = nil
	lv.apply(r, c, now)
	lv.opened(r, items)
}

// opened starts a catch-up for items that were temporarily not followed, because a consolidation
// was delayed or the relay closed a subscription.
func (lv *liveSync) opened(r *relayState, items []Item) {
	r.live.waitUntil = time.Time{}
	switch {
	case r.catchUp.missedAll:
		lv.catchUp.queueAll(r)
	case r.catchUp.missed:
		r.catchUp.missed = false
		lv.catchUp.queueItems(r, items)
	}
}

// merged returns the change that opens fresh filters together with those of the smallest
// subscriptions. A subscription is merged if it is not larger than the others together, so each
// filter is sent again a few times only. If that finds no room, larger ones are merged too. It
// returns false if nothing fits.
func (lv *liveSync) merged(r *relayState, fresh []nostr.Filter) (c subscriptionChange, ok bool) {
	l := &r.live
	var bySize []LiveID
	for id := range l.subs {
		if id != l.kinds {
			bySize = append(bySize, id)
		}
	}
	slices.SortFunc(bySize, func(a, b LiveID) int {
		return cmp.Or(cmp.Compare(l.subs[a].size, l.subs[b].size), cmp.Compare(a, b))
	})
	size := measured([][]nostr.Filter{fresh}).size()
	fs := slices.Clone(fresh)
	for i, id := range bySize {
		fs = append(fs, l.subs[id].filters...)
		size += l.subs[id].size
		if i+1 < len(bySize) {
			if next := l.subs[bySize[i+1]].size; next <= size && size+next <= r.limits.MaxMessage {
				continue
			}
		}
		switch m := lv.packed(r, joined(r, fs), bySize[:i+1]...); {
		case !m.fits(r):
		case m.overlaps(r):
			return m, true
		case !ok:
			c, ok = m, true
		}
	}
	return c, ok
}

// idleValues is the number of unwanted items that are tolerated in subscriptions.
const idleValues = filters.MaxValues

// tooIdle reports whether a consolidation is worth its traffic, because more items are unwanted
// than wanted, or fewer if a filter has no room. It is not urgent, because events of unwanted items
// are judged like all others.
func (l *liveState) tooIdle(r *relayState) bool {
	wanted := len(r.history.items)
	if l.unfollowed > 0 {
		wanted /= 4
	}
	return l.idle > max(idleValues, wanted)
}

// joined joins filters that differ only in values. Each value occurs once.
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
// room together. Items that history finds would soon require another consolidation, and each
// requires a catch-up. The catch-up also covers the delay.
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
// as have room. The rest is followed by kinds or polled. If there is room for both, it opens the
// new subscriptions before it closes the old ones. Otherwise a catch-up fetches the events in
// between.
func (lv *liveSync) consolidate(r *relayState, now time.Time) {
	items := slices.Collect(maps.Keys(r.history.items))
	old, poll := r.live.subs, r.live.poll
	r.live.reset()
	most := r.liveRoom()
	reqs, tooLarge := lv.pack(r, items, false)
	reqs, left := within(squeeze(reqs, most, r.limits), most, r.limits.LiveBytes())
	r.live.tooLarge = tooLarge
	kinds := false
	if lv.prefersKinds(r, left.filters()) {
		kinds = true
		reqs, _ = lv.pack(r, items, true)
		reqs, left = within(squeeze(reqs, most, r.limits), most, r.limits.LiveBytes())
	}
	if len(left) > 0 {
		lv.followOtherwise(r, left, kinds, now)
	}
	if poll != nil {
		lv.catchUp.missedSince(r, poll.oldest())
	}
	if kinds {
		r.live.kinds = lv.subscriptions.next() // the first request contains the filter of all kinds
	}
	overlap := len(old)+len(reqs) <= most && r.limits.Retains(sizeOfSubs(old)+reqs.size())
	if overlap {
		lv.threads.makeWay(r, len(old)+len(reqs), sizeOfSubs(old)+reqs.size(), r.liveRoom()+r.spareRoom())
		lv.open(r, reqs)
	}
	for _, id := range slices.Sorted(maps.Keys(old)) {
		lv.subscriptions.close(r, id)
	}
	if !overlap {
		lv.open(r, reqs)
		lv.catchUp.missedSince(r, now)
	}
	if r.catchUp.missed {
		lv.catchUp.queueAll(r)
	}
}

// prefersKinds reports whether LiveKinds is used instead of polling for left filters without room.
// A polled filter costs one request per turn; twenty filters in ten minutes are one request per 30
// seconds. The filter of all kinds costs no request but returns events of other repositories.
// Events of other kinds then arrive only with the daily pass. A relay with this many wanted items
// is a hub, and most of its events are wanted.
func (lv *liveSync) prefersKinds(r *relayState, left int) bool {
	return left > lv.cfg.PollFilters && !r.live.noKinds
}

// turnsToKinds reports whether added filters make LiveKinds cheaper than polling.
func (lv *liveSync) turnsToKinds(r *relayState, added int) bool {
	return r.live.kinds == 0 && lv.prefersKinds(r, r.live.unfollowed+added)
}

// followOtherwise follows the items of requests without room by kinds or by polling.
func (lv *liveSync) followOtherwise(r *relayState, reqs requests, kinds bool, now time.Time) {
	items := make(map[Item]struct{})
	states := make(map[string]struct{}) // identifiers
	for _, one := range reqs {
		r.live.unfollowed += len(one.filters)
		for _, f := range one.filters {
			lv.repos.itemsOf(f, items, states)
		}
	}
	if kinds {
		return
	}
	lv.repos.addStates(r, states, items)
	lv.polling.begin(r, slices.Collect(maps.Keys(items)), now)
}

// pack returns requests for items, as full as the relay allows, and the number of filters that are
// too large. With kinds, the first filter is the filter of all kinds.
func (lv *liveSync) pack(r *relayState, items []Item, kinds bool) (requests, int) {
	var fs []nostr.Filter
	if kinds {
		fs = append(fs, fit(r.limits, filters.Live(nostr.Filter{Kinds: filters.Kinds()}))...)
	}
	fs = append(fs, lv.filters(r, items)...)
	return packed(r.limits, fs)
}

func (lv *liveSync) filters(r *relayState, items []Item) (fs []nostr.Filter) {
	for _, g := range lv.repos.groups(items, nil) {
		for _, f := range lv.repos.itemFilters(g.items) {
			fs = append(fs, fit(r.limits, filters.Live(f))...)
		}
	}
	return r.live.withoutResting(fs)
}

func (lv *liveSync) open(r *relayState, reqs requests) {
	lv.threads.makeWay(r, len(r.live.subs)+len(reqs), r.live.size()+reqs.size(), r.liveRoom()+r.spareRoom())
	for _, one := range reqs {
		s := &liveSub{filters: one.filters, size: one.size, since: lv.now}
		r.live.subs[lv.subscriptions.open(r, s.filters)] = s
		r.live.filters += len(s.filters)
	}
}

// filtersAfterConsolidation returns the number of filters that a consolidation would need.
func (lv *liveSync) filtersAfterConsolidation(r *relayState) int {
	return 1 + filtersFor(r.limits, r.history.ofKind)
}

func (lv *liveSync) filtersOf(r *relayState, items iter.Seq[Item]) int {
	var n [itemKinds]int
	for it := range items {
		n[lv.repos.infos[it].kind]++
	}
	return n[itemLayer1] + filtersFor(r.limits, n)
}

// limitsChanged consolidates if the subscriptions exceed the new limits, or if items without room
// may have room now.
func (lv *liveSync) limitsChanged(r *relayState, old relaylimits.Requests) {
	l := &r.live
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

// closed handles a subscription that the relay closed. Its filters are opened again after
// RetryBase, or after a wait that grows with each refusal. The missed time is fetched.
func (lv *liveSync) closed(r *relayState, in LiveClosed, now time.Time) {
	s := r.live.remove(in.Live)
	if s == nil {
		return
	}
	if in.Why == wire.RefusalRestricted && in.Live != r.live.kinds && in.Stood < lv.cfg.RetryBase {
		lv.refused(r, s, now)
		return
	}
	r.live.lost, r.live.waitUntil = append(r.live.lost, s.filters...), time.Time{}
	lv.learnFrom(r, in)
	// After an overload the relay is tried again immediately, unless it was tried less than
	// RetryBase ago. A refusal during a wait belongs to the earlier refusal.
	atOnce := in.Why == wire.RefusalOverflow && now.Sub(s.since) >= lv.cfg.RetryBase
	if !atOnce && !now.Before(r.live.retryAt) {
		if in.Stood > 0 || now.Sub(r.live.retryAt) > lv.cfg.RetryMax {
			r.live.refused = 0
		}
		r.live.refused++
		r.live.retryAt = now.Add(lv.retryAfter(r.live.refused))
	}
	lv.catchUp.missedSome(r, now)
}

// learnFrom learns from the reason why a subscription was closed. The subscription must be removed
// before.
func (lv *liveSync) learnFrom(r *relayState, in LiveClosed) {
	switch in.Why {
	case wire.RefusalTooManySubs:
		// Leave one slot to history, which could not be fetched otherwise.
		r.live.takes(max(1, len(r.live.subs)+r.threads.liveSubs()-1), lv.now.Add(relaylimits.Believed))
	case wire.RefusalRateLimited, wire.RefusalAuthRequired, wire.RefusalOverflow, wire.RefusalTooManyBytes:
	default:
		if in.Live == r.live.kinds && in.Stood < lv.cfg.RetryBase {
			r.live.noKinds, r.live.noKindsUntil = true, lv.now.Add(relaylimits.Believed)
		}
	}
	if in.Live == r.live.kinds {
		r.live.kinds, r.live.stale = 0, true
	}
}

// Some relays, such as private ones, answer requests but refuse subscriptions to some filters. Such
// filters rest for a day and are then tried once. A catch-up fetches the missed events. Other
// filters are not affected.

const (
	restFor = 24 * time.Hour
	// mostResting is the maximum number of separate refusals.
	mostResting = 64
)

// refusedFilters are live filters that a relay refuses.
type refusedFilters struct {
	filters []nostr.Filter
	until   time.Time
	since   time.Time // later events are missed
}

// refused handles the refusal of a subscription. Filters that were refused together are tried
// separately once.
func (lv *liveSync) refused(r *relayState, s *liveSub, now time.Time) {
	parts := byRole(s.filters)
	unknown := slices.ContainsFunc(parts, func(fs []nostr.Filter) bool { return !r.live.refusedAlone(roleOf(fs[0])) })
	if c := (subscriptionChange{reqs: measured(parts)}); len(parts) > 1 && unknown && c.fits(r) {
		lv.apply(r, c, now)
		lv.catchUp.lookSince(r, now)
		lv.catchUp.queueItems(r, lv.repos.itemsOfAll(r, s.filters))
		return
	}
	lv.leaveAlone(r, refusedFilters{filters: s.filters, since: now}, now)
}

// leaveAlone records refused filters, which are not tried for a day.
func (lv *liveSync) leaveAlone(r *relayState, k refusedFilters, now time.Time) {
	k.until = now.Add(lv.longer(restFor))
	if n := len(r.live.resting); n > 0 && r.live.resting[n-1].until.Sub(now) > restFor-time.Hour {
		k.until = r.live.resting[n-1].until // too many separate refusals: tried together with the last
	}
	r.live.resting = append(r.live.resting, k)
	if len(r.live.resting) > mostResting {
		all := r.live.resting[0]
		for _, k := range r.live.resting[1:] {
			all.filters = append(all.filters, k.filters...)
			if k.since.Before(all.since) {
				all.since = k.since
			}
		}
		all.filters = joined(r, all.filters)
		r.live.resting = []refusedFilters{all}
	}
}

// resume follows filters again that have rested for a day.
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

// byRole groups filters of the same form, because a refusal concerns the form more often than the
// values.
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

// connected starts a connection without subscriptions.
func (l *liveState) connected() {
	l.retryAt, l.refused = time.Time{}, 0
	l.reset()
}

// reset drops all subscriptions and keeps the refusals.
func (l *liveState) reset() {
	*l = liveState{
		subs:    make(map[LiveID]*liveSub),
		retryAt: l.retryAt, refused: l.refused, learnedRoom: l.learnedRoom, resting: l.resting,
	}
}

func (l *liveState) remove(id LiveID) *liveSub {
	s := l.subs[id]
	if s == nil {
		return nil
	}
	delete(l.subs, id)
	l.filters -= len(s.filters)
	return s
}

func (l *liveState) wakes(consider func(time.Time)) {
	consider(l.retryAt)
	consider(l.mostUntil)
	consider(l.noKindsUntil)
	consider(l.waitUntil)
	for _, k := range l.resting {
		consider(k.until)
	}
	if l.poll != nil {
		consider(l.poll.at)
	}
}

func (l *liveState) jumped(back time.Duration) {
	if l.poll != nil {
		for _, g := range l.poll.groups {
			setBack(back, &g.since)
		}
	}
}

func (l *liveState) method() LiveMethod {
	switch {
	case l.kinds != 0:
		return LiveKinds
	case l.poll != nil:
		return LivePolling
	}
	return LiveAll
}

func (l *liveState) refusedAlone(as filterRole) bool {
	other := func(f nostr.Filter) bool { return roleOf(f) != as }
	return slices.ContainsFunc(l.resting, func(k refusedFilters) bool { return !slices.ContainsFunc(k.filters, other) })
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

func (l *liveState) size() int { return sizeOfSubs(l.subs) }
