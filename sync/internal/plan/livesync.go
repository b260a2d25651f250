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
	"github.com/graspsync/graspsync/sync/internal/dense"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/standing"
	"github.com/graspsync/graspsync/sync/wire"
)

// LiveID names a standing subscription of one connection.
type LiveID uint64

// LiveMethod is how what is new on a relay gets here.
type LiveMethod uint8

// The methods.
const (
	// LiveAll: everything is followed by standing subscriptions.
	LiveAll LiveMethod = iota
	// LiveKinds: for what finds no room in them, one filter without tags brings all
	// events of the kinds of NIP-34, those of strangers too.
	LiveKinds
	// LivePolling: what finds no room is asked for in rotation.
	LivePolling
)

// String returns "live", "live+kinds" or "live+polling".
func (m LiveMethod) String() string {
	return [...]string{"live", "live+kinds", "live+polling"}[m]
}

// live follows what is wanted of a relay by standing subscriptions.
type liveSync struct {
	*core
	repos         *repoSyncIndex
	catchUp       *catchUp
	polling       *polling
	threads       *threads
	subscriptions *subscriptions
}

// liveSub is a standing subscription.
type liveSub struct {
	filters standing.Filters // shared with whoever keeps it open
	size    int              // bytes of its request
	level   int              // how often what it has was opened anew together with more
	since   time.Time        // when it was opened
}

// liveState is what is followed on a connection.
type liveState struct {
	subs    map[LiveID]*liveSub
	filters int              // of all
	missing dense.Set[Item]  // items that no subscription covers yet
	lost    standing.Filters // of subscriptions that the relay closed
	stale   bool             // all must be opened anew: in another form, or in another way
	retryAt time.Time        // a relay closed a subscription: nothing is opened before
	refused int              // closed by the relay in a row
	// postponed is since when a rebuild has been put off, zero if none is; putOff how
	// many items were missing then, 0 if there may be room by now.
	postponed time.Time
	putOff    int
	// idle counts what is not wanted any more, and is followed all the same, since it was
	// last looked for.
	idle int
	// unwanted counts the same since all was subscribed anew, and what may be: as long as there
	// is none, all that is followed is wanted.
	unwanted int
	// unfollowed counts the filters for which the relay has no room, tooLarge those
	// that it would take in no message.
	unfollowed, tooLarge int
	kinds                LiveID     // the subscription that follows by kinds; 0: none
	poll                 *pollState // what is asked for instead; nil: nothing

	learnedRoom
	resting []refusedFilters // what it refused, which outlives a connection as well
}

// experience is what refusals taught about a relay. It outlives a connection, but relays change:
// like all that is learned it is believed for a while.
type learnedRoom struct {
	most         int // standing subscriptions that the relay takes; 0: as many as limits say
	mostUntil    time.Time
	noKinds      bool // it refused the filter of kinds without tags
	noKindsUntil time.Time
}

// doubt gives up what is not believed any more, and reports whether there was any of that.
func (e *learnedRoom) doubt(now time.Time) (any bool) {
	if e.most > 0 && !now.Before(e.mostUntil) {
		e.most, any = 0, true
	}
	if e.noKinds && !now.Before(e.noKindsUntil) {
		e.noKinds, any = false, true
	}
	return any
}

// takes notes that the relay took no more than so many standing subscriptions.
func (e *learnedRoom) takes(most int, until time.Time) {
	if e.most == 0 || most <= e.most {
		e.most, e.mostUntil = most, until
	}
}

// subscriptions opens and closes standing subscriptions.
type subscriptions struct {
	*core
	last LiveID
}

// next returns the id of the subscription that is opened next.
func (s *subscriptions) next() LiveID { return s.last + 1 }

// open opens a subscription; last: one that gives way to all others.
func (s *subscriptions) open(r *relayState, fs standing.Filters, last bool) LiveID {
	s.last++
	s.emit(OpenLive{Relay: r.url, Epoch: r.dial.epoch, Live: s.last, Filters: fs, Last: last})
	return s.last
}

// close closes a subscription.
func (s *subscriptions) close(r *relayState, id LiveID) {
	s.emit(CloseLive{Relay: r.url, Epoch: r.dial.epoch, Live: id})
}

// follow brings the standing subscriptions of a relay up to date: those for what is
// missing are opened, together with what the smallest of those that stand have if there
// are too many, so that what is sent is in proportion to what has changed; or all are
// rebuilt. What is packed costs as much as what is missing, so first it is found out
// whether anything may be done with it.
func (lv *liveSync) follow(r *relayState, now time.Time) {
	l := &r.live
	if now.Before(l.retryAt) || now.Before(r.coolUntil) {
		return
	}
	lv.resume(r, now)
	if l.doubt(now) && l.unfollowed > 0 {
		l.stale = true // there may be room, or another way
	}
	if lv.dropIdle(r, now); l.stale {
		lv.consolidate(r, now)
		return
	}
	if l.missing.Len()+len(l.lost) == 0 {
		l.postponed, l.putOff = time.Time{}, 0 // what it was for is not wanted any more
		return
	}
	switch {
	case len(l.subs) == 0:
		lv.consolidate(r, now)
		return
	case l.putOff > 0 && l.missing.Len() >= l.putOff && lv.postpone(r, now):
		return
	case l.unfollowed > 0 && r.liveFull():
		lv.followNoMore(r, now)
		return
	}
	fresh := lv.filters(r, slices.Collect(l.missing.All()))
	if len(l.lost) > 0 {
		fresh = lv.joined(r, slices.Concat(l.lost.Spell(), fresh))
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
	case fits && (by.overlaps(r) || l.unfollowed > 0 || !lv.postpone(r, now)):
		lv.addFilters(r, by, now)
	case l.unfollowed == 0 && lv.postpone(r, now):
		l.putOff = max(1, l.missing.Len())
	default:
		lv.consolidate(r, now)
	}
}

// followNoMore takes in what is missing where a rebuild would find no more room than
// the last one did.
func (lv *liveSync) followNoMore(r *relayState, now time.Time) {
	l := &r.live
	added := lv.filtersOf(r, l.missing.All())
	if len(l.lost) > 0 || lv.turnsToKinds(r, added) {
		lv.consolidate(r, now)
		return
	}
	items := slices.Collect(l.missing.All())
	l.unfollowed += added
	lv.polling.add(r, items, now)
	l.missing.Clear()
	lv.opened(r, items)
}

// change is what standing subscriptions are replaced by.
type subscriptionChange struct {
	old      []LiveID // ascending
	reqs     requests
	tooLarge int // filters
	level    int // of what is opened
}

// packed returns the change that opens filters and closes these subscriptions.
func (lv *liveSync) packed(r *relayState, fs []nostr.Filter, old ...LiveID) subscriptionChange {
	reqs, tooLarge := packed(r.limits, fs)
	return subscriptionChange{old: slices.Sorted(slices.Values(old)), reqs: reqs, tooLarge: tooLarge}
}

// fits reports whether there is room for what stands after the change, overlaps whether
// there is for what is opened before anything is closed.
func (c subscriptionChange) fits(r *relayState) bool {
	return len(r.live.subs)-len(c.old)+len(c.reqs) <= r.liveRoom() && r.limits.Retains(r.live.size()-c.closed(r)+c.reqs.size())
}

func (c subscriptionChange) overlaps(r *relayState) bool {
	return len(c.old) == 0 ||
		len(r.live.subs)+len(c.reqs) <= r.liveRoom()+r.spareRoom() && r.limits.Retains(r.live.size()+c.reqs.size())
}

// closed is how many bytes those have that the change closes.
func (c subscriptionChange) closed(r *relayState) (n int) {
	for _, id := range c.old {
		n += r.live.subs[id].size
	}
	return n
}

// filters is by how many more filters are followed after the change.
func (c subscriptionChange) filters(r *relayState) int {
	n := c.reqs.filters()
	for _, id := range c.old {
		n -= len(r.live.subs[id].filters)
	}
	return n
}

// apply makes a change. The new subscriptions are opened before the old ones are
// closed where there is room for both; where there is none, what falls between is
// caught up with.
func (lv *liveSync) apply(r *relayState, c subscriptionChange, now time.Time) {
	overlaps := c.overlaps(r)
	if overlaps {
		lv.open(r, c.reqs, c.level)
	}
	var closed standing.Filters
	for _, id := range c.old {
		closed = append(closed, r.live.remove(id).filters...)
		lv.subscriptions.close(r, id)
	}
	if !overlaps {
		lv.open(r, c.reqs, c.level)
		lv.catchUp.lookSince(r, now)
		lv.catchUp.queueItems(r, lv.repos.itemsOfAll(r, closed.Spell()))
	}
	r.live.tooLarge += c.tooLarge
}

// openMissing makes a change that opens what is missing.
func (lv *liveSync) addFilters(r *relayState, c subscriptionChange, now time.Time) {
	l := &r.live
	items := slices.Collect(l.missing.All())
	items = append(items, lv.repos.itemsOfAll(r, l.lost.Spell())...)
	l.missing.Clear()
	l.lost = nil
	lv.apply(r, c, now)
	lv.opened(r, items)
}

// opened catches up with what was missed of items while they were not followed: since
// a rebuild was put off that is not needed now, or the relay closed a subscription.
func (lv *liveSync) opened(r *relayState, items []Item) {
	if !r.live.postponed.IsZero() {
		lv.catchUp.missedSome(r, r.live.postponed)
		r.live.postponed, r.live.putOff = time.Time{}, 0
	}
	switch {
	case r.catchUp.missedAll:
		lv.catchUp.queueAll(r)
	case r.catchUp.missed:
		r.catchUp.missed = false
		lv.catchUp.queueItems(r, items)
	}
}

// merged returns the change that opens fresh filters together with those of
// subscriptions that stand: of those that were merged least often as many as go into one
// request, the smallest first. So with room for k of them, of C(k+d, d) changes none is
// sent again more than d times: of a thousand changes none more than five times where
// there is room for eight. If that finds no room it is all that are not about as full as
// can be. It reports false if nothing finds any.
func (lv *liveSync) merged(r *relayState, fresh []nostr.Filter) (c subscriptionChange, ok bool) {
	l := &r.live
	capacity := min(r.limits.MaxMessage, max(1, r.limits.MaxFilters)*fullFilter)
	var small []LiveID // merged least often first
	for id := range l.subs {
		if id != l.kinds {
			small = append(small, id)
		}
	}
	slices.SortFunc(small, func(a, b LiveID) int {
		x, y := l.subs[a], l.subs[b]
		return cmp.Or(cmp.Compare(x.level, y.level), cmp.Compare(x.size, y.size), cmp.Compare(a, b))
	})
	var notFull, first []LiveID
	for _, id := range small {
		if 4*l.subs[id].size <= 3*capacity {
			notFull = append(notFull, id)
		}
	}
	if len(notFull) == 0 {
		notFull = small[:min(1, len(small))]
	}
	size := 0
	for _, f := range fresh {
		size += filters.Size(f) + 1
	}
	level := 1
	for _, id := range notFull {
		s := l.subs[id]
		if size += s.size; len(first) > 0 && s.level > l.subs[first[0]].level {
			break
		}
		if len(first) > 0 && size > r.limits.MaxMessage {
			if len(first) == 1 {
				level = 0 // it grows until it is full, and stays with those of its level
			}
			break
		}
		first = append(first, id)
	}
	for _, ids := range [][]LiveID{first, notFull} {
		if len(ids) == 0 {
			continue
		}
		fs := slices.Clone(fresh)
		for _, id := range ids {
			fs = append(fs, l.subs[id].filters.Spell()...)
		}
		m := lv.packed(r, lv.joined(r, fs), ids...)
		m.level = l.subs[ids[0]].level + level
		switch {
		case !m.fits(r):
		case m.overlaps(r):
			return m, true
		case !ok:
			c, ok = m, true
		}
	}
	return c, ok
}

// fullFilter is what a filter of as many ids as we put into one takes, in bytes.
const fullFilter = filters.MaxValues * len(`"",`+"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")

// idleValues is how many items that are not wanted any more may be followed all the
// same, before anything is opened anew because of them.
const idleValues = filters.MaxValues

// dropIdle stops following what is not wanted any more, once that is more than what is:
// what still comes of it is judged like anything else, and so to be rid of it is not
// worth sending again what it shares subscriptions with. Where something found no room
// it is sooner, since there may be some now.
func (lv *liveSync) dropIdle(r *relayState, now time.Time) {
	l := &r.live
	if l.idle <= idleValues {
		return
	}
	if l.unfollowed > 0 {
		l.stale = l.stale || l.idle > r.history.items.Len()/4
		return
	}
	if l.idle <= r.history.items.Len() || l.stale {
		return
	}
	l.idle = 0
	wanted := lv.repos.wantedValues(r)
	var old []LiveID
	var left []nostr.Filter
	for _, id := range slices.Sorted(maps.Keys(l.subs)) {
		n, idle := 0, 0
		fs := l.subs[id].filters.Spell()
		for _, f := range fs {
			for tag, values := range f.Tags {
				n += len(values)
				for _, v := range values {
					if !wanted(tag, v) {
						idle++
					}
				}
			}
		}
		if 2*idle > n {
			old = append(old, id)
			left = append(left, fs...)
		}
	}
	if len(old) > 0 {
		lv.apply(r, lv.packed(r, lv.joined(r, left), old...), now)
	}
}

// joined returns filters that ask for what is still wanted of fs: the values of filters
// that are equal but for these go together, each once.
func (lv *liveSync) joined(r *relayState, fs []nostr.Filter) (out []nostr.Filter) {
	wanted := lv.repos.wantedValues(r)
	if r.live.unwanted == 0 {
		wanted = func(string, string) bool { return true }
	}
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
		for tag, vs := range f.Tags {
			s := shape{roleOf(f), fmt.Sprint(f.Kinds)}
			like[s] = f
			for _, v := range vs {
				if wanted(tag, v) {
					values[s] = append(values[s], v)
				}
			}
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
			vs = last // as of another tag, mostly: one list will do
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

// mostPostponed is how long a rebuild may wait for more to be found.
const mostPostponed = 5 * time.Minute

// postpone puts a rebuild for which there is no room beside the old subscriptions
// off as long as the relay is being fetched from: what is found there would mean
// another one soon, and each has to be followed by a catch-up. What is missed
// meanwhile is part of that.
func (lv *liveSync) postpone(r *relayState, now time.Time) bool {
	if !r.busy() {
		return false
	}
	if r.live.postponed.IsZero() {
		r.live.postponed = now
	}
	return now.Before(r.live.postponed.Add(mostPostponed))
}

// rebuild replaces all standing subscriptions by as few as cover everything, or as
// there is room for; the rest is followed another way. The new ones are opened
// before the old ones are closed where there is room for both; where there is none,
// what falls between is caught up with.
func (lv *liveSync) consolidate(r *relayState, now time.Time) {
	items := slices.AppendSeq(make([]Item, 0, r.history.items.Len()), r.history.items.Keys())
	old, postponed, poll := r.live.subs, r.live.postponed, r.live.poll
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
		r.live.kinds = lv.subscriptions.next() // it is packed into the first
	}
	overlap := len(old)+len(reqs) <= most && r.limits.Retains(sizeOfSubs(old)+reqs.size())
	if overlap {
		lv.threads.makeWay(r, len(old)+len(reqs), sizeOfSubs(old)+reqs.size())
		lv.open(r, reqs, 0)
	}
	for _, id := range slices.Sorted(maps.Keys(old)) {
		lv.subscriptions.close(r, id)
	}
	if !overlap {
		lv.open(r, reqs, 0)
		lv.catchUp.missedSince(r, now)
	}
	if !postponed.IsZero() {
		lv.catchUp.missedSince(r, postponed)
	}
	if r.catchUp.missed {
		lv.catchUp.queueAll(r)
	}
}

// prefersKinds reports whether the kinds are followed, and not polling, if so many
// filters find no room. A filter costs a request each time it is polled, with what
// came since the last time but one; twenty of them in ten minutes are a request every
// half minute. The filter of kinds costs no request, but brings all that strangers
// write to the relay about their repositories, and nothing of other kinds before the
// next daily pass: a relay on which more than a subscription's worth of ours finds no
// room is a hub, and most of what is written to it is ours.
func (lv *liveSync) prefersKinds(r *relayState, left int) bool {
	return left > lv.cfg.PollFilters && !r.live.noKinds
}

// turnsToKinds reports whether so many more filters make polling the dearer way.
func (lv *liveSync) turnsToKinds(r *relayState, added int) bool {
	return r.live.kinds == 0 && lv.prefersKinds(r, r.live.unfollowed+added)
}

// followOtherwise follows what these requests would have: the kinds do, or it is
// polled from now on.
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

// pack returns the requests that follow items, packed as full as the relay allows,
// and the number of filters that are too large for it. With kinds the filter of
// kinds is the first of the first request.
func (lv *liveSync) pack(r *relayState, items []Item, kinds bool) (requests, int) {
	var fs []nostr.Filter
	if kinds {
		fs = append(fs, fit(r.limits, filters.Live(nostr.Filter{Kinds: filters.Kinds()}))...)
	}
	fs = append(fs, lv.filters(r, items)...)
	return packed(r.limits, fs)
}

// filters returns the filters that follow items, as the relay takes them.
func (lv *liveSync) filters(r *relayState, items []Item) (fs []nostr.Filter) {
	for _, g := range lv.repos.groups(items, nil) {
		for _, f := range lv.repos.itemFilters(g.items) {
			fs = append(fs, fit(r.limits, filters.LiveShared(f))...)
		}
	}
	return r.live.withoutResting(fs)
}

func (lv *liveSync) open(r *relayState, reqs requests, level int) {
	lv.threads.makeWay(r, len(r.live.subs)+len(reqs), r.live.size()+reqs.size())
	sealer := lv.repos.sealer()
	for _, one := range reqs {
		s := &liveSub{filters: sealer.Seal(one.filters), size: one.size, level: level, since: lv.now}
		r.live.subs[lv.subscriptions.open(r, s.filters, false)] = s
		r.live.filters += len(s.filters)
	}
}

// filtersAfterRebuild is how many filters a rebuild would need.
func (lv *liveSync) filtersAfterConsolidation(r *relayState) int {
	return 1 + filtersFor(r.limits, r.history.ofKind)
}

// filtersOf is how many filters items need.
func (lv *liveSync) filtersOf(r *relayState, items iter.Seq[Item]) int {
	var n [itemKinds]int
	for it := range items {
		n[lv.repos.infos[it].kind]++
	}
	return n[itemLayer1] + filtersFor(r.limits, n)
}

// limitsChanged fits what is followed into other limits, if it does not fit any more or
// there may be room now for what had none.
func (lv *liveSync) limitsChanged(r *relayState, old relaylimits.Requests) {
	l := &r.live
	if r.limits.MaxMessage < old.MaxMessage || l.unfollowed+l.tooLarge > 0 || len(l.subs) > r.liveRoom() ||
		!r.limits.Retains(l.size()) {
		l.stale = true
	}
	l.putOff = 0
	for _, s := range l.subs {
		if len(s.filters) > r.limits.MaxFilters {
			l.stale = true
		}
	}
}

// closed notes that the relay ended a subscription. Its filters are subscribed again after RetryBase, or
// after a wait that grows with each refusal at the opening, and the missed time is fetched.
func (lv *liveSync) closed(r *relayState, in LiveClosed, now time.Time) {
	s := r.live.remove(in.Live)
	if s == nil {
		return
	}
	if in.Why == wire.RefusalRestricted && in.Live != r.live.kinds && in.Stood < lv.cfg.RetryBase {
		lv.refused(r, s, now)
		return
	}
	r.live.lost, r.live.putOff = append(r.live.lost, s.filters...), 0
	lv.learnFrom(r, in)
	// What the relay could not keep up with for once is followed again at once, unless it
	// was so a moment ago. A refusal that came while another one is waited for belongs to
	// that.
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

// refusedBelow takes in that the relay has closed a subscription of descendants because it
// would not have it.
func (lv *liveSync) refusedBelow(r *relayState, in LiveClosed, rests bool, now time.Time) {
	if rests {
		lv.leaveAlone(r, refusedFilters{below: true, since: now}, now)
	}
	lv.learnFrom(r, in)
	r.live.stale = r.live.stale || len(r.live.subs) > r.liveRoom()
}

// learnFrom notes what the reason for which a subscription was closed says about the relay.
// The subscription is no longer among those that stand.
func (lv *liveSync) learnFrom(r *relayState, in LiveClosed) {
	switch in.Why {
	case wire.RefusalTooManySubs:
		// One of those that stand is left to history: if they are all that the relay
		// takes, nothing could be fetched any more.
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

// Some relays answer what we ask and will not have us follow it, or a part of it: private
// ones, those that serve members. To ask again within the hour, for ever, is no use to
// anybody. What they refuse rests for a day, is then asked for once, and what came
// meanwhile is caught up with; all else stays as it is.

const (
	restFor = 24 * time.Hour
	// mostResting is how many refusals are kept apart.
	mostResting = 64
)

// resting are live filters that a relay refuses.
type refusedFilters struct {
	filters standing.Filters
	below   bool // of layer 4: nothing of it is followed live as long as anything rests
	until   time.Time
	since   time.Time // what came later is missed
}

// refused takes in that the relay will not have us follow what a subscription has. What is
// refused together with other things is asked for apart from these, unless it was refused
// so before.
func (lv *liveSync) refused(r *relayState, s *liveSub, now time.Time) {
	parts := byRole(s.filters.Spell())
	unknown := slices.ContainsFunc(parts, func(fs []nostr.Filter) bool { return !r.live.refusedAlone(roleOf(fs[0])) })
	if c := (subscriptionChange{reqs: measured(parts)}); len(parts) > 1 && unknown && c.fits(r) {
		lv.apply(r, c, now)
		lv.catchUp.lookSince(r, now)
		lv.catchUp.queueItems(r, lv.repos.itemsOfAll(r, s.filters.Spell()))
		return
	}
	lv.leaveAlone(r, refusedFilters{filters: s.filters, since: now}, now)
}

// leaveAlone notes what the relay refuses, and does not ask for it for a day.
func (lv *liveSync) leaveAlone(r *relayState, k refusedFilters, now time.Time) {
	k.until = now.Add(lv.longer(restFor))
	if n := len(r.live.resting); n > 0 && r.live.resting[n-1].until.Sub(now) > restFor-time.Hour {
		k.until = r.live.resting[n-1].until // they are asked for together
	}
	r.live.resting = append(r.live.resting, k)
	if len(r.live.resting) > mostResting {
		all := r.live.resting[0]
		for _, k := range r.live.resting[1:] {
			all.filters = append(all.filters, k.filters...)
			all.below = all.below && k.below
			if k.since.Before(all.since) {
				all.since = k.since
			}
		}
		r.live.unwanted++ // some have rested for long
		all.filters = lv.repos.sealer().Seal(lv.joined(r, all.filters.Spell()))
		r.live.resting = []refusedFilters{all}
	}
}

// resume follows again what has rested for long enough.
func (lv *liveSync) resume(r *relayState, now time.Time) {
	kept := r.live.resting[:0]
	for _, k := range r.live.resting {
		if now.Before(k.until) {
			kept = append(kept, k)
			continue
		}
		if !k.below { // else it was asked for in rotation
			r.live.lost, r.live.putOff = append(r.live.lost, k.filters...), 0
			r.live.unwanted++ // it rested for long
			lv.catchUp.missedSome(r, k.since)
		}
	}
	clear(r.live.resting[len(kept):])
	r.live.resting = kept
}

// byRole puts the filters together that ask in the same way: a refusal is about that, more
// often than about values.
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

// connected begins a connection, with nothing followed and nothing refused yet.
func (l *liveState) connected() {
	l.retryAt, l.refused = time.Time{}, 0
	l.reset()
}

// reset forgets all subscriptions, but not that the relay refused some.
func (l *liveState) reset() {
	*l = liveState{
		subs:    make(map[LiveID]*liveSub),
		retryAt: l.retryAt, refused: l.refused, learnedRoom: l.learnedRoom, resting: l.resting,
	}
}

// remove forgets a subscription and returns it; nil if there is none.
func (l *liveState) remove(id LiveID) *liveSub {
	s := l.subs[id]
	if s == nil {
		return nil
	}
	delete(l.subs, id)
	l.filters -= len(s.filters)
	return s
}

// wakes names what becomes due on a connection.
func (l *liveState) wakes(consider func(time.Time)) {
	consider(l.retryAt)
	consider(l.mostUntil)
	consider(l.noKindsUntil)
	if !l.postponed.IsZero() {
		consider(l.postponed.Add(mostPostponed))
	}
	for _, k := range l.resting {
		consider(k.until)
	}
	if l.poll != nil {
		consider(l.poll.at)
	}
}

// jumped sets back what depends on a clock that was set back.
func (l *liveState) jumped(back time.Duration) {
	setBack(back, &l.postponed)
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

// refusedAlone reports whether nothing but filters of this role were refused.
func (l *liveState) refusedAlone(as filterRole) bool {
	other := func(f standing.Filter) bool {
		rest, tag := f.Form()
		return roleAt(tag, rest.Kinds) != as
	}
	return slices.ContainsFunc(l.resting, func(k refusedFilters) bool { return !k.below && !slices.ContainsFunc(k.filters, other) })
}

// withoutResting takes from filters what rests.
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
		for _, f := range k.filters.Spell() {
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

// restingFilters is how many filters rest.
func (l *liveState) restingFilters() (n int) {
	for _, k := range l.resting {
		n += len(k.filters)
	}
	return n
}

// size is how many bytes the standing subscriptions have.
func (l *liveState) size() int { return sizeOfSubs(l.subs) }
