package plan

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
)

// To ask for what is wanted takes filters that name all of it, and where nearly all of it is
// here they are larger than what comes of them: at a relay of 100,000 events that has nothing
// new, by 20,000 times. So a relay of which much is wanted from the start is first compared
// with as a whole, with one filter that names nothing. That has an end of its own: it
// may take a part of the bytes that the others would. If it comes to its end, what was
// wanted then is fetched; else everything is asked for as if there had been no such attempt.

// broad compares a relay as a whole, before the difference is asked for item by item.
type broad struct {
	*common
	want        *want
	batches     *batches
	history     *history
	descendants *descendants
}

// broadState is whether a relay is, or was, compared as a whole.
type broadState struct {
	running bool
	vain    bool      // it was of no use on this connection, in this pass
	rests   time.Time // it is not tried before: a connection was lost over it
}

const (
	// broadBytes is how many bytes the whole may take for each item that is wanted: a
	// quarter of what its address or id takes in the three filters that it goes into.
	broadBytes = 3 * 85 / 4
	// broadRest is how long it is not tried after the connection was lost meanwhile: there are
	// relays that end it over what they can't answer.
	broadRest = 4 * time.Hour
)

// connected begins anew: what was of no use with the last connection may be with this one.
func (s *broadState) connected() { s.running, s.vain = false, false }

// due reports whether so much is wanted of a relay that it may be worth it.
func (br *broad) due(r *relay, now time.Time) bool {
	s, least := &r.broad, br.cfg.BroadItems
	if least == 0 || s.running || s.vain || now.Before(s.rests) {
		return false
	}
	n := r.history.todo.Len()
	if d := r.descendants; br.takes(d, now) {
		n += len(d.fresh)
		if n < least && n+filters.MaxValues*(len(d.urgent)+d.daily) >= least {
			for _, g := range d.groups {
				if g.isWhole() {
					n += len(g.items)
				}
			}
		}
	}
	return n >= least
}

// isWhole reports whether a group is to be asked about from the start, and nothing else.
func (g *descGroup) isWhole() bool {
	return (g.first || g.daily) && g.resume == nil && len(g.behind) == 0
}

// takes reports whether descendants may be asked about now.
func (br *broad) takes(d *descendantsState, now time.Time) bool {
	return d != nil && !d.running && !now.Before(d.retryAt)
}

// start compares the relay as a whole for all that is to be asked for from the start.
func (br *broad) start(r *relay, now time.Time) {
	b := &batch{of: br, kind: History, broad: true}
	for it := range r.history.todo.All() {
		c := r.history.resume[it]
		if c != nil && len(c.at) > 0 {
			continue // it goes on where it got to
		}
		if c != nil && c.daily {
			b.kind = DailyHistory
		}
		b.items = append(b.items, it)
	}
	b.below = len(b.items) == 0
	b.wanted = len(b.items)
	if d := r.descendants; br.takes(d, now) {
		br.descendants.group(d)
		for _, g := range d.groups {
			if g.isWhole() {
				b.groups = append(b.groups, g)
				b.wanted += len(g.items)
			}
		}
	}
	if b.wanted < br.cfg.BroadItems { // of most a part was fetched, which is done by pages
		r.broad.vain = true
		return
	}
	if len(b.items) == 0 && !slices.ContainsFunc(b.groups, func(g *descGroup) bool { return g.first }) {
		b.kind = DailyHistory
	}
	slices.Sort(b.items)
	for _, it := range b.items {
		r.history.set(it, inFlight)
	}
	r.broad.running = true
	if len(b.groups) > 0 {
		r.descendants.begin(b.groups, now)
	}
	br.batches.start(r, b, []Query{{Filter: nostr.Filter{}, Broad: b.wanted * broadBytes}}, now)
}

// done takes note that all of it was fetched that the relay has.
func (br *broad) done(r *relay, b *batch, gaps bool) {
	r.broad.running = false
	br.history.confirm(r, b.items, gaps)
	for _, g := range b.groups {
		r.descendants.asked(g, true)
	}
	if len(b.groups) > 0 {
		r.descendants.ended(time.Time{})
	}
}

// failed has it asked for item by item. That nothing can be saved here says nothing of the
// relay: then the items wait until then.
func (br *broad) failed(r *relay, b *batch, in Done, until time.Time) {
	if !in.Unsaved {
		r.broad.vain, until = true, time.Time{}
	}
	br.giveBack(r, b, until)
	if in.Unsaved {
		items := slices.DeleteFunc(b.items, func(it Item) bool { return r.history.items.Get(it) != todo })
		r.history.park(items, until)
	}
}

// lost does the same for the next connection.
func (br *broad) lost(r *relay, b *batch, _ []Cursor) {
	r.broad.rests = br.now.Add(br.longer(broadRest))
	br.giveBack(r, b, time.Time{})
}

// giveBack makes what a batch was to fetch todo again. Of descendants it is not before until.
func (br *broad) giveBack(r *relay, b *batch, until time.Time) {
	r.broad.running = false
	for _, it := range b.items {
		r.history.set(it, todo)
	}
	for _, g := range b.groups {
		r.descendants.notAsked(g)
	}
	if len(b.groups) > 0 {
		r.descendants.ended(until)
	}
}

// jumped sets back what depends on a clock that was set back.
func (s *broadState) jumped(back time.Duration) { setBack(back, &s.rests) }
