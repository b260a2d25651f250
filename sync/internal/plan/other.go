package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/wire"
)

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

func (l *liveState) method() LiveMethod {
	switch {
	case l.kinds != 0:
		return LiveKinds
	case l.poll != nil:
		return LivePolling
	}
	return LiveAll
}

// prefersKinds reports whether the kinds are followed, and not polling, if so many
// filters find no room. A filter costs a request each time it is polled, with what
// came since the last time but one; twenty of them in ten minutes are a request every
// half minute. The filter of kinds costs no request, but brings all that strangers
// write to the relay about their repositories, and nothing of other kinds before the
// next daily pass: a relay on which more than a subscription's worth of ours finds no
// room is a hub, and most of what is written to it is ours.
func (lv *live) prefersKinds(r *relay, left int) bool {
	return left > lv.cfg.PollFilters && !r.live.noKinds
}

// turnsToKinds reports whether so many more filters make polling the dearer way.
func (lv *live) turnsToKinds(r *relay, added int) bool {
	return r.live.kinds == 0 && lv.prefersKinds(r, r.live.unfollowed+added)
}

// liveRoom is how many standing subscriptions the relay takes.
func (r *relay) liveRoom() int {
	most := r.limits.LiveSubscriptions()
	if r.live.most > 0 {
		most = min(most, r.live.most)
	}
	return most
}

// spareRoom is how many more there may be for a moment: history lends one of its places
// where it has two.
func (r *relay) spareRoom() int {
	if r.live.most == 0 && r.limits.MaxSubscriptions-r.limits.LiveSubscriptions() >= keptHistoric {
		return 1
	}
	return 0
}

// learn takes in the reason why a subscription was closed, which is no longer
// among those that stand.
func (lv *live) learn(r *relay, in LiveClosed) {
	switch in.Why {
	case wire.RefusalTooManySubs:
		// One of those that stand is left to history: if they are all that the relay
		// takes, nothing could be fetched any more.
		stood := max(1, len(r.live.subs)+r.descendants.live()-1)
		if r.live.most == 0 || stood < r.live.most {
			r.live.most = stood
		}
	case wire.RefusalRateLimited, wire.RefusalAuthRequired, wire.RefusalOverflow, wire.RefusalTooManyBytes:
	default:
		if in.Live == r.live.kinds {
			r.live.noKinds = true
		}
	}
	if in.Live == r.live.kinds {
		r.live.kinds, r.live.stale = 0, true
	}
}

// limitsChanged fits what is followed into other limits, if it does not fit any more or
// there may be room now for what had none.
func (lv *live) limitsChanged(r *relay, old Limits) {
	l := &r.live
	if r.limits.MaxMessage < old.MaxMessage || l.unfollowed+l.tooLarge > 0 || len(l.subs) > r.liveRoom() ||
		!r.limits.retains(l.size()) {
		l.stale = true
	}
	l.putOff = 0
	for _, s := range l.subs {
		if len(s.filters) > r.limits.MaxFilters {
			l.stale = true
		}
	}
}

// polling asks in rotation for what finds no room in the standing subscriptions.
type polling struct {
	*common
	want     *want
	batches  *batches
	rotation *rotation
}

// pollState is what is polled of a relay.
type pollState struct {
	groups []*pollGroup
	next   int
	at     time.Time // of the next poll
}

// pollGroup is a chunk of items that are asked for together.
type pollGroup struct {
	items   []Item
	since   time.Time // what they had before is here
	running bool
}

// oldest returns up to when all groups are complete.
func (l *pollState) oldest() time.Time {
	oldest := l.groups[0].since
	for _, g := range l.groups[1:] {
		if g.since.Before(oldest) {
			oldest = g.since
		}
	}
	return oldest
}

// followOtherwise follows what these requests would have: the kinds do, or it is
// polled from now on.
func (lv *live) followOtherwise(r *relay, reqs [][]nostr.Filter, kinds bool, now time.Time) {
	items := make(map[Item]struct{})
	states := make(map[string]struct{}) // identifiers
	for _, fs := range reqs {
		r.live.unfollowed += len(fs)
		for _, f := range fs {
			lv.want.itemsOf(f, items, states)
		}
	}
	if kinds {
		return
	}
	lv.want.addStates(r, states, items)
	lv.polling.begin(r, slices.Collect(maps.Keys(items)), now)
}

// itemsOf adds the items that a filter asks for. Of states it adds the identifiers:
// an identifier may look like an id or an address, and be that of several
// repositories.
func (w *want) itemsOf(f nostr.Filter, items map[Item]struct{}, states map[string]struct{}) {
	if len(f.Tags) == 0 {
		items[Layer1] = struct{}{}
	}
	for tag, values := range f.Tags {
		for _, v := range values {
			if tag == "d" {
				states[v] = struct{}{}
			} else if it, ok := w.itemOf(v); ok {
				items[it] = struct{}{}
			}
		}
	}
}

// itemOf returns what a value of a filter stands for, if anybody wants it: an id or an
// address.
func (w *want) itemOf(value string) (Item, bool) {
	if id, err := graspsync.ParseEventID(value); err == nil {
		it, ok := w.roots[id]
		return it, ok
	}
	if a, err := graspsync.ParseAddress(value); err == nil {
		if ref, ok := a.Repo(); ok {
			if repo, ok := w.repos[ref]; ok {
				return repo.item, true
			}
		}
	}
	return 0, false
}

// itemsOfAll returns the items that filters ask for.
func (w *want) itemsOfAll(r *relay, fs []nostr.Filter) []Item {
	items, states := make(map[Item]struct{}), make(map[string]struct{})
	for _, f := range fs {
		w.itemsOf(f, items, states)
	}
	w.addStates(r, states, items)
	return slices.Collect(maps.Keys(items))
}

// addStates adds the items for the states of these identifiers.
func (w *want) addStates(r *relay, identifiers map[string]struct{}, items map[Item]struct{}) {
	if len(identifiers) == 0 {
		return
	}
	for it := range r.history.items {
		if in := &w.infos[it]; in.kind == itemStates {
			if _, ok := identifiers[in.repo.ref.Identifier]; ok {
				items[it] = struct{}{}
			}
		}
	}
}

// poll has these items polled, and no others.
func (pl *polling) begin(r *relay, items []Item, now time.Time) {
	r.live.poll = &pollState{}
	for _, g := range pl.want.groups(items, nil) {
		r.live.poll.groups = append(r.live.poll.groups, &pollGroup{items: g.items, since: now})
	}
	r.live.poll.at = now.Add(pl.after(r))
}

// alsoPoll has items polled besides those that are, if any are. They were wanted
// just now: their history will bring what they have.
func (pl *polling) add(r *relay, items []Item, now time.Time) {
	l := r.live.poll
	if l == nil {
		return
	}
	last := l.groups[len(l.groups)-1]
	for _, g := range pl.want.groups(items, nil) {
		// Of the last group there may be nothing left that is wanted.
		alike := len(last.items) == 0 || pl.want.infos[g.items[0]].kind == pl.want.infos[last.items[0]].kind
		if alike && len(last.items)+len(g.items) <= filters.MaxValues {
			last.items = append(last.items, g.items...)
			continue
		}
		l.groups = append(l.groups, &pollGroup{items: g.items, since: now})
	}
}

// pollAfter is how long to wait between two polls: each group has its turn at least
// once in PollEvery.
func (pl *polling) after(r *relay) time.Duration {
	return pl.longer(pl.cfg.PollEvery * 10 / 11 / time.Duration(len(r.live.poll.groups)))
}

func (pl *polling) due(r *relay, now time.Time) bool {
	return r.live.poll != nil && !now.Before(r.live.poll.at)
}

// start asks for what is new of the next group. Items whose history is still to
// be fetched are left out. A full round also asks about some of the root events in
// rotation.
func (pl *polling) start(r *relay, now time.Time) {
	l := r.live.poll
	g := l.groups[l.next]
	if l.next++; l.next == len(l.groups) {
		l.next = 0
		pl.rotation.queue(r, filters.MaxValues)
	}
	l.at = now.Add(pl.after(r))
	if g.running {
		return
	}
	g.items = slices.DeleteFunc(g.items, func(it Item) bool { return r.history.items[it] == 0 }) // not wanted any more
	items := slices.DeleteFunc(slices.Clone(g.items), func(it Item) bool {
		return r.history.items[it] == todo && r.history.resume[it] == nil
	})
	since := nostr.Timestamp(g.since.Add(-pl.cfg.Overlap).Unix())
	qs, roles := pl.batches.queries(r, pl.want.itemFilters(items), since, nil)
	if len(qs) == 0 {
		g.since = now
		return
	}
	g.running = true
	pl.batches.start(r, &batch{of: pl, kind: Recent, items: items, roles: roles, poll: g}, qs, now)
}

func (pl *polling) done(_ *relay, b *batch, _ bool) { b.poll.running, b.poll.since = false, b.begun }

func (pl *polling) failed(r *relay, b *batch, _ Done, until time.Time) {
	b.poll.running = false
	if r.live.poll != nil && until.After(r.live.poll.at) {
		r.live.poll.at = until
	}
}

// lost does nothing: what is polled ends with the connection.
func (pl *polling) lost(*relay, *batch, []Cursor) {}
