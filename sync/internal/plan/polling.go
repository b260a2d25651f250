package plan

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
)

// polling asks in rotation for what finds no room in the standing subscriptions.
type polling struct {
	*core
	repos    *repoSyncIndex
	pending  *pendingSyncIndex
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

// begin starts to poll these items, and no others.
func (pl *polling) begin(r *relayState, items []Item, now time.Time) {
	r.live.poll = &pollState{}
	for _, g := range pl.repos.groups(items, nil) {
		r.live.poll.groups = append(r.live.poll.groups, &pollGroup{items: g.items, since: now})
	}
	r.live.poll.at = now.Add(pl.after(r))
}

// add polls these items besides those that are polled, if any are. They were wanted just
// now: their history will bring what they have.
func (pl *polling) add(r *relayState, items []Item, now time.Time) {
	l := r.live.poll
	if l == nil {
		return
	}
	last := l.groups[len(l.groups)-1]
	for _, g := range pl.repos.groups(items, nil) {
		// Of the last group there may be nothing left that is wanted.
		alike := len(last.items) == 0 || pl.repos.infos[g.items[0]].kind == pl.repos.infos[last.items[0]].kind
		if alike && len(last.items)+len(g.items) <= filters.MaxValues {
			last.items = append(last.items, g.items...)
			continue
		}
		l.groups = append(l.groups, &pollGroup{items: g.items, since: now})
	}
}

// after is how long to wait between two polls: each group has its turn at least
// once in PollEvery.
func (pl *polling) after(r *relayState) time.Duration {
	return pl.longer(pl.cfg.PollEvery * 10 / 11 / time.Duration(len(r.live.poll.groups)))
}

func (pl *polling) due(r *relayState, now time.Time) bool {
	return r.live.poll != nil && !now.Before(r.live.poll.at)
}

// start asks for what is new of the next group. Items whose history is still to
// be fetched are left out. A full round also asks about some of the root events in
// rotation.
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
	g.items = slices.DeleteFunc(g.items, func(it Item) bool { return r.history.items.Get(it) == 0 }) // not wanted any more
	items := slices.DeleteFunc(slices.Clone(g.items), func(it Item) bool {
		return r.history.items.Get(it) == todo && r.history.resume[it] == nil
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

// lost does nothing: what is polled ends with the connection.
func (pl *polling) lost(*relayState, *batch, []Cursor) {}
