package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
)

// LiveID names a standing subscription of one connection.
type LiveID uint64

// liveState is what is followed on a connection.
type liveState struct {
	subs    map[LiveID]int // filters of each
	filters int            // filters of all
	missing []Item         // items that no subscription covers yet
	stale   bool           // some subscription covers what is no longer wanted
	retryAt time.Time      // a relay closed a subscription: nothing is opened before
	refused int            // closed by the relay in a row
	// postponed is since when a rebuild has been put off; zero if none is.
	postponed time.Time
	idle      int // displaced root events that are still followed
	// unfollowed counts the filters for which the relay has no room, tooLarge those
	// that it would take in no message.
	unfollowed, tooLarge int
	kinds                LiveID   // the subscription that follows by kinds; 0: none
	poll                 *polling // what is asked for instead; nil: nothing
}

// reset forgets all subscriptions, but not that the relay refused some.
func (l *liveState) reset() {
	*l = liveState{subs: make(map[LiveID]int), retryAt: l.retryAt, refused: l.refused}
}

// Limits are what a connection may be asked for.
type Limits struct {
	MaxMessage       int // bytes of one request
	MaxFilters       int // filters of one request
	MaxSubscriptions int // live and historic together
	// MaxValues is how long a list of a live filter may be, 0 if unknown. NeedsKinds
	// says that no filter goes without kinds. Whoever sends history sees to it there.
	MaxValues  int
	NeedsKinds bool
}

const (
	maxHistoric  = 8 // historic requests open at once where there is room
	keptHistoric = 2 // subscriptions that live ones leave to history
)

// LiveSubscriptions is how many of the relay's subscriptions may be standing ones.
func (l Limits) LiveSubscriptions() int {
	return max(1, l.MaxSubscriptions-min(keptHistoric, l.MaxSubscriptions/2))
}

// Historic is how many historic requests may be open at once, as far as the standing
// subscriptions leave room for them.
func (l Limits) Historic() int { return max(1, min(maxHistoric, l.MaxSubscriptions/2)) }

// follow brings the standing subscriptions of a relay up to date: those for what
// is missing are opened, or all are rebuilt when that takes fewer.
func (p *Plan) follow(r *relay, now time.Time) {
	if now.Before(r.live.retryAt) || now.Before(r.coolUntil) {
		return
	}
	if !r.live.stale && len(r.live.missing) == 0 {
		r.live.postponed = time.Time{} // what it was for is not wanted any more
		return
	}
	reqs, tooLarge := p.pack(r, r.live.missing, false)
	added := 0
	for _, fs := range reqs {
		added += len(fs)
	}
	total := r.live.filters + added
	crowded := total > p.cfg.RebuildFilters && 4*total > 5*p.rebuiltFilters(r)
	full := len(r.live.subs)+len(reqs) > r.liveRoom()
	switch {
	case full && !r.live.stale && r.live.unfollowed > 0 && !p.turnsToKinds(r, added):
		// A rebuild would find no more room than the last one did.
		r.live.unfollowed += added
		r.live.tooLarge += tooLarge
		p.alsoPoll(r, r.live.missing, now)
		r.live.missing = nil
		p.postponedEnds(r)
	case r.live.stale, crowded && !full, full && (len(r.live.subs) == 0 || r.live.unfollowed > 0 || !p.postpone(r, now)):
		p.rebuild(r, now)
	case full: // put off
	default:
		r.live.missing = nil
		r.live.tooLarge += tooLarge
		p.open(r, reqs)
		p.postponedEnds(r)
	}
}

// postponedEnds catches up with what was missed while a rebuild was put off that is
// not needed now.
func (p *Plan) postponedEnds(r *relay) {
	if !r.live.postponed.IsZero() {
		p.missedSince(r, r.live.postponed)
		r.live.postponed = time.Time{}
		p.queueCatchUp(r)
	}
}

// mostPostponed is how long a rebuild may wait for more to be found.
const mostPostponed = 5 * time.Minute

// postpone puts a rebuild for which there is no room beside the old subscriptions
// off as long as the relay is being fetched from: what is found there would mean
// another one soon, and each has to be followed by a catch-up. What is missed
// meanwhile is part of that.
func (p *Plan) postpone(r *relay, now time.Time) bool {
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
func (p *Plan) rebuild(r *relay, now time.Time) {
	items := make([]Item, 0, len(r.items))
	for it := range r.items {
		items = append(items, it)
	}
	old, postponed, poll := r.live.subs, r.live.postponed, r.live.poll
	r.live.reset()
	most := r.liveRoom()
	reqs, tooLarge := p.pack(r, items, false)
	reqs = squeeze(reqs, most, r.limits)
	r.live.tooLarge = tooLarge
	kinds := false
	if left := leftOver(reqs, most); p.prefersKinds(r, left) {
		kinds = true
		reqs, _ = p.pack(r, items, true)
		reqs = squeeze(reqs, most, r.limits)
	}
	if len(reqs) > most {
		p.followOtherwise(r, reqs[most:], kinds, now)
		reqs = reqs[:most]
	}
	if poll != nil {
		p.missedSince(r, poll.oldest())
	}
	if kinds {
		r.live.kinds = p.lastLive + 1 // it is packed into the first
	}
	overlap := len(old)+len(reqs) <= most
	if overlap {
		p.open(r, reqs)
	}
	for _, id := range slices.Sorted(maps.Keys(old)) {
		p.emit(CloseLive{Relay: r.url, Epoch: r.epoch, Live: id})
	}
	if !overlap {
		p.open(r, reqs)
		p.missedSince(r, now)
	}
	if !postponed.IsZero() {
		p.missedSince(r, postponed)
	}
	if r.missed {
		p.queueCatchUp(r)
	}
}

// missedSince notes that events may have been missed since shortly before t.
func (p *Plan) missedSince(r *relay, t time.Time) {
	since := nostr.Timestamp(t.Add(-p.cfg.Overlap).Unix())
	if r.catchSince == 0 || since < r.catchSince {
		r.catchSince = since
	}
	r.missed = true
}

// pack returns the requests that follow items, packed as full as the relay allows,
// and the number of filters that are too large for it. With kinds the filter of
// kinds is the first of the first request.
func (p *Plan) pack(r *relay, items []Item, kinds bool) ([][]nostr.Filter, int) {
	var fs []nostr.Filter
	if kinds {
		fs = append(fs, r.limits.fit(filters.Live(nostr.Filter{Kinds: filters.Kinds()}))...)
	}
	for _, g := range p.groups(items, nil) {
		for _, f := range p.itemFilters(g.items) {
			fs = append(fs, r.limits.fit(filters.Live(f))...)
		}
	}
	if len(fs) == 0 {
		return nil, 0
	}
	reqs, tooLarge := filters.Pack(fs, r.limits.MaxMessage, r.limits.MaxFilters)
	return reqs, len(tooLarge)
}

// fit returns a filter as the relay takes it, as several if need be.
func (l Limits) fit(f nostr.Filter) []nostr.Filter {
	if l.NeedsKinds && f.Kinds == nil {
		f = filters.WithKinds(f)
	}
	return filters.AtMost(f, l.MaxValues)
}

func (p *Plan) open(r *relay, reqs [][]nostr.Filter) {
	for _, fs := range reqs {
		p.lastLive++
		r.live.subs[p.lastLive] = len(fs)
		r.live.filters += len(fs)
		p.emit(OpenLive{Relay: r.url, Epoch: r.epoch, Live: p.lastLive, Filters: fs})
	}
}

// rebuiltFilters is how many filters a rebuild would need.
func (p *Plan) rebuiltFilters(r *relay) int {
	size, times := filters.MaxValues, 1
	if n := r.limits.MaxValues; n > 0 {
		size = min(size, n)
		if r.limits.NeedsKinds {
			times = (len(filters.Kinds()) + n - 1) / n
		}
	}
	chunks := func(n int) int { return (n + size - 1) / size }
	states, repos, roots := r.ofKind[itemStates], r.ofKind[itemRepo], r.ofKind[itemRoot]
	return 1 + chunks(states) + chunks(2*repos) + times*(3*chunks(repos)+3*chunks(roots))
}
