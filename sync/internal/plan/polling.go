package plan

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
)

// polling requests items without room in live subscriptions, in turn.
type polling struct {
	*core
	repos    *repoSyncIndex
	pending  *pendingSyncIndex
	rotation *rotation
}

// pollState contains the polled items of a relay.
type pollState struct {
	groups []*pollGroup
	next   int
	at     time.Time // the next poll
}

// pollGroup is a chunk of items that are requested together.
type pollGroup struct {
	items   []Item
	since   time.Time // all events before it were fetched
	running bool
}

// oldest returns the earliest time in all groups.
func (l *pollState) oldest() time.Time {
	oldest := l.groups[0].since
	for _, g := range l.groups[1:] {
		if g.since.Before(oldest) {
			oldest = g.since
		}
	}
	return oldest
}

func (pl *polling) begin(r *relayState, items []Item, now time.Time) {
	r.live.poll = &pollState{}
	for _, g := range pl.repos.groups(items, nil) {
		r.live.poll.groups = append(r.live.poll.groups, &pollGroup{items: g.items, since: now})
	}
	r.live.poll.at = now.Add(pl.after(r))
}

// add adds items if polling is in use. They are new, so their history is fetched anyway.
func (pl *polling) add(r *relayState, items []Item, now time.Time) {
	l := r.live.poll
	if l == nil {
		return
	}
	last := l.groups[len(l.groups)-1]
	for _, g := range pl.repos.groups(items, nil) {
		// The last group may have no wanted items left.
		alike := len(last.items) == 0 || pl.repos.infos[g.items[0]].kind == pl.repos.infos[last.items[0]].kind
		if alike && len(last.items)+len(g.items) <= filters.MaxValues {
			last.items = append(last.items, g.items...)
			continue
		}
		l.groups = append(l.groups, &pollGroup{items: g.items, since: now})
	}
}

// after returns the time between two polls. Each group is polled once in PollEvery.
func (pl *polling) after(r *relayState) time.Duration {
	return pl.longer(pl.cfg.PollEvery * 10 / 11 / time.Duration(len(r.live.poll.groups)))
}

func (pl *polling) due(r *relayState, now time.Time) bool {
	return r.live.poll != nil && !now.Before(r.live.poll.at)
}

// start requests new events of the next group, except for items whose history is not fetched. Each
// full round also requests some untracked root events.
func (pl *polling) start(r *relayState, now time.Time) {
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
	g.items = slices.DeleteFunc(g.items, func(it Item) bool { return r.history.items[it] == 0 }) // no longer a target
	items := slices.DeleteFunc(slices.Clone(g.items), func(it Item) bool {
		return r.history.items[it] == todo && r.history.resume[it] == nil
	})
	since := nostr.Timestamp(g.since.Add(-pl.cfg.Overlap).Unix())
	qs, roles := pl.pending.queries(r, pl.repos.itemFilters(items), since, nil)
	if len(qs) == 0 {
		g.since = now
		return
	}
	g.running = true
	pl.pending.start(r, &batch{of: pl, kind: Recent, items: items, roles: roles, poll: g}, qs, now)
}

func (pl *polling) done(_ *relayState, b *batch, _ bool) {
	b.poll.running, b.poll.since = false, b.begun
}

func (pl *polling) failed(r *relayState, b *batch, _ Done, until time.Time) {
	b.poll.running = false
	if r.live.poll != nil && until.After(r.live.poll.at) {
		r.live.poll.at = until
	}
}

// lost does nothing, because polling ends with the connection.
func (pl *polling) lost(*relayState, *batch, []Cursor) {}
