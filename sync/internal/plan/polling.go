package plan

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync/filters"
)

// polling requests items without room in live subscriptions, in turn. Layer 4 gets one request per
// rotateEvery, because anyone can add to it.
type polling struct {
	*core
	repos   *repoSyncIndex
	pending *pendingSyncIndex
	catchUp *catchUp
}

const rotateEvery = time.Minute

// pollState contains the polled items of a relay. It outlives connections.
type pollState struct {
	groups []*pollGroup
	at     [tiers]time.Time
}

type pollGroup struct {
	items   []Item
	tier    tier
	since   time.Time // all events before it were fetched
	running bool
}

// next returns the group of a tier that has waited longest, or nil, and their number.
func (l *pollState) next(t tier) (next *pollGroup, n int) {
	for _, g := range l.groups {
		if g.tier != t {
			continue
		}
		n++
		if !g.running && (next == nil || g.since.Before(next.since)) {
			next = g
		}
	}
	return next, n
}

func (l *pollState) items() (items []Item) {
	for _, g := range l.groups {
		items = append(items, g.items...)
	}
	return items
}

// oldest returns the earliest time in a tier, or zero.
func (l *pollState) oldest(t tier) (oldest time.Time) {
	for _, g := range l.groups {
		if g.tier == t && (oldest.IsZero() || g.since.Before(oldest)) {
			oldest = g.since
		}
	}
	return oldest
}

// begin sets the polled items. A catch-up fetches their events since the last poll.
func (pl *polling) begin(r *relayState, items []Item, now time.Time) {
	l := &r.live.poll
	for t := range tiers {
		var polled []Item
		for _, g := range l.groups {
			if g.tier == t {
				polled = append(polled, g.items...)
			}
		}
		if len(polled) > 0 {
			pl.catchUp.queueItems(r, polled, pl.catchUp.since(l.oldest(t)))
		}
	}
	l.groups = nil
	pl.add(r, items, now)
}

// add polls further items.
func (pl *polling) add(r *relayState, items []Item, now time.Time) {
	l := &r.live.poll
	for _, g := range pl.repos.groups(items, nil) {
		if n := len(l.groups); n > 0 {
			last := l.groups[n-1]
			alike := len(last.items) > 0 && pl.repos.infos[g.items[0]].kind == pl.repos.infos[last.items[0]].kind
			if alike && len(last.items)+len(g.items) <= filters.MaxValues {
				last.items = append(last.items, g.items...)
				continue
			}
		}
		l.groups = append(l.groups, &pollGroup{items: g.items, tier: pl.repos.tier(g.items[0]), since: now})
	}
	pl.schedule(r, now)
}

func (pl *polling) schedule(r *relayState, now time.Time) {
	l := &r.live.poll
	for t := range tiers {
		if _, n := l.next(t); n > 0 && l.at[t].Before(now) {
			l.at[t] = now.Add(pl.after(r, t))
		}
	}
}

func (pl *polling) after(r *relayState, t tier) time.Duration {
	if t == threadTier {
		return pl.longer(rotateEvery)
	}
	_, n := r.live.poll.next(t)
	return pl.longer(pl.cfg.PollEvery * 10 / 11 / time.Duration(max(1, n)))
}

func (pl *polling) due(r *relayState, now time.Time) bool { return r.live.poll.due(now) != nil }

func (l *pollState) due(now time.Time) *pollGroup {
	for t, at := range l.at {
		if g, _ := l.next(tier(t)); g != nil && !now.Before(at) {
			return g
		}
	}
	return nil
}

func (pl *polling) start(r *relayState, now time.Time) {
	g := r.live.poll.due(now)
	r.live.poll.at[g.tier] = now.Add(pl.after(r, g.tier))
	g.items = slices.DeleteFunc(g.items, func(it Item) bool { return r.history.items[it] == 0 })
	items := slices.DeleteFunc(slices.Clone(g.items), func(it Item) bool {
		return r.history.items[it] == todo && r.history.resume[it] == nil
	})
	qs := pl.pending.queries(r, pl.repos.itemFilters(items), pl.catchUp.since(g.since), nil)
	if len(qs) == 0 {
		g.since = now
		return
	}
	g.running = true
	pl.pending.start(r, &batch{of: pl, kind: Recent, items: items, poll: g}, qs, now)
}

func (pl *polling) done(_ *relayState, b *batch) {
	b.poll.running, b.poll.since = false, b.begun
}

func (pl *polling) failed(_ *relayState, b *batch, _ Done) { b.poll.running = false }
