package filters

import (
	"math"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// DefaultLimit is the page size that a [Walk] asks for by default, in events. It
// is the cap of most relays.
const DefaultLimit = 500

// maxKnown bounds how many ids of one second a [Walk] remembers (a few MB).
const maxKnown = 1 << 16

// noUntil is the until of a page that has no upper bound.
const noUntil nostr.Timestamp = math.MaxInt64

// WalkStart says where a [Walk] begins and what is known of the relay. The zero
// value works.
type WalkStart struct {
	// Limit is the page size asked for, in events. If it is above the relay's own
	// cap, an old event that is published right before EOSE passes for the end of
	// the page, and what lies between is missed. Defaults to DefaultLimit.
	Limit int
	// PageSize is the largest page that this relay ever gave, in events, or what
	// it says its limit is. If it is too small, complete seconds are reported as
	// gaps. Defaults to 0, unknown.
	PageSize int
	// Until is where an earlier walk over the same filter had come to ([Walk.Until]),
	// in seconds: everything newer was fetched. Defaults to 0, nothing was.
	Until int64
}

// Step says how a [Walk] goes on.
type Step uint8

// What follows a page.
const (
	// StepMore: ask for Next.
	StepMore Step = iota + 1
	// StepDone: the walk is over.
	StepDone
)

// String returns the name of the step.
func (s Step) String() string {
	switch s {
	case StepMore:
		return "more"
	case StepDone:
		return "done"
	}
	return "invalid"
}

// Walk reads the past of one filter from one relay, page by page, newest first.
//
// A relay answers a REQ with its newest events up to a cap that it may or may not
// tell, so the next page begins where this one ended: at the second of the event
// that came last, inclusive, since more events of that second may have been cut
// off. The walk ends when the relay says that it has sent everything (NIP-67), or
// when there is nothing below the last second. A page's size never ends it.
//
// A second that holds more events than a page can't be read this way. Such a
// second is reported by Gaps, and the walk goes on below it; [Split] reads it.
//
// Nor is there a way to see that a relay leaves out of a page what is newer than
// the end of it. Relays on badger (eventstore) do that now and then, if a filter
// has several values and its limit is reached; NIP-77 finds what is missing.
//
// An event that was published while the page was under way may come in between,
// however old it is: some relays send it on the same subscription. That is why the
// event that came last counts and not the oldest. Only what comes in between
// after the last event of a page is mistaken for its end, and only if the relay's
// cap is below the limit asked for.
//
// Each page but the last two either brings an id that is new or moves until back,
// so a walk ends however the relay behaves, as long as it runs out of events. It
// remembers the ids of one second only, at most 65,536. A Walk must not be used
// concurrently. Times before 1970 are not asked for.
type Walk struct {
	filter nostr.Filter // private copy, without until and limit
	limit  int
	floor  nostr.Timestamp                // the oldest second asked for
	until  nostr.Timestamp                // newest second of this page; noUntil at the top
	known  map[graspsync.EventID]struct{} // of second until: what came
	page   page
	idle   int // pages in a row without anything new

	largest  int // page of this walk
	pageSize int // what was known before

	// suspect is a second that was cut if there is anything below it.
	suspect     nostr.Timestamp
	suspectSize int // of its page; 0: there is none
	gaps        []nostr.Timestamp
	doubt       nostr.Timestamp
	doubtSize   int // 0: there is none

	pages      int
	done       bool
	unfinished bool // it ended though the relay may have more
}

// page is what came since the last EOSE.
type page struct {
	size    int                            // events between floor and until, repetitions included
	rises   int                            // events newer than the one before
	above   int                            // events newer than until: not asked for
	below   int                            // events older than until
	atUntil int                            // ids of second until that were new
	last    nostr.Timestamp                // of the event that came last
	edge    nostr.Timestamp                // where the next page begins
	ids     map[graspsync.EventID]struct{} // of second edge, while that is below until
}

// NewWalk begins a walk over what matches f, whose limit is replaced; its since
// and until are kept. Nothing of f is shared.
func NewWalk(f nostr.Filter, opt WalkStart) *Walk {
	w := &Walk{
		filter:   f.Clone(),
		limit:    opt.Limit,
		pageSize: opt.PageSize,
		until:    noUntil,
		known:    make(map[graspsync.EventID]struct{}),
	}
	w.page.ids = make(map[graspsync.EventID]struct{})
	if w.limit < 1 {
		w.limit = DefaultLimit
	}
	if f.Since != nil {
		w.floor = max(*f.Since, 0)
	}
	if f.Until != nil {
		w.until = *f.Until
	}
	if opt.Until > 0 {
		w.until = min(w.until, nostr.Timestamp(opt.Until))
	}
	w.done = Empty(f) || w.until < w.floor
	return w
}

// Next begins a page and returns its filter. Until End is called it is the same
// filter each time, so a page that failed is repeated by calling Next again: what
// was counted of it is dropped, and events that come again may be reported as new
// again. When the walk is over, Next returns a filter that matches no event.
func (w *Walk) Next() nostr.Filter {
	if w.done {
		return nostr.Filter{IDs: []string{graspsync.EventID{}.String()}, Limit: 1}
	}
	w.page = page{ids: w.page.ids}
	var until *nostr.Timestamp
	if w.until != noUntil {
		until = &w.until
	}
	return Between(w.filter, w.filter.Since, until, w.limit)
}

// Saw counts an event of the page. It must be called for each EVENT as it comes
// off the wire, before any dedupe and whatever becomes of the event: a page of
// events that nobody wants is still a page. It reports whether the event is new to
// this walk, as far as the walk remembers. What lies outside of the page's bounds
// is not, and does not move the walk.
func (w *Walk) Saw(id graspsync.EventID, createdAt nostr.Timestamp) (isNew bool) {
	p := &w.page
	if w.done || createdAt < w.floor {
		return false
	}
	if createdAt > w.until {
		p.above++
		return false
	}
	if p.size > 0 && createdAt > p.last {
		p.rises++
	}
	p.size++
	p.last = createdAt
	w.moveEdge(createdAt)
	if createdAt < w.until {
		p.below++
	}
	if createdAt == w.until {
		isNew, remembered := remember(w.known, id)
		if remembered {
			p.atUntil++
		}
		return isNew
	}
	if createdAt == p.edge {
		isNew, _ = remember(p.ids, id)
		return isNew
	}
	return true
}

// moveEdge lets the next page begin at t, the second of the event that came last.
// If more come than were asked for, some came in between, and the real end of the
// page is among those from the last one asked for on: the newest of these is
// safe. But a relay that sends twice as many plainly ignores limits.
func (w *Walk) moveEdge(t nostr.Timestamp) {
	p := &w.page
	if p.size > 1 && t == p.edge || p.size > w.limit && p.size/2 < w.limit && t < p.edge {
		return
	}
	p.edge = t
	if len(p.ids) > 64 {
		// Clearing takes time in proportion to what a map once held.
		p.ids = make(map[graspsync.EventID]struct{})
	} else {
		clear(p.ids)
	}
}

// remember adds id to a set. An id that the set has no room for is new each time,
// but is never counted as progress.
func remember(ids map[graspsync.EventID]struct{}, id graspsync.EventID) (isNew, remembered bool) {
	if _, again := ids[id]; again {
		return false, false
	}
	if len(ids) >= maxKnown {
		return true, false
	}
	ids[id] = struct{}{}
	return true, true
}

// End closes the page: the relay sent EOSE. complete and more are what NIP-67 says
// with it ("finish", "more"); both are false if it said nothing. A page that was
// broken off, by CLOSED, a time-out or the loss of the connection, has no End.
func (w *Walk) End(complete, more bool) Step {
	if w.done {
		return StepDone
	}
	p := w.page
	w.page = page{ids: p.ids}
	w.pages++
	w.largest = max(w.largest, p.size-p.rises)
	w.judgeSuspect(p)

	switch {
	case complete:
		return w.finish()
	case p.size == 0:
		return w.endEmpty(p, more)
	case p.edge < w.until:
		w.idle = 0
		w.known, w.page.ids = p.ids, make(map[graspsync.EventID]struct{})
		w.until = p.edge
		return StepMore
	case p.atUntil > 0:
		// The whole page is of this second. The next one may bring the rest.
		w.idle = 0
		return StepMore
	}
	w.idle++
	w.judgeSecond(p, more)
	return w.below()
}

// endEmpty ends the walk, unless the relay says that it has more: then it may show
// it on a second try.
func (w *Walk) endEmpty(p page, more bool) Step {
	w.idle++
	if more && w.idle < 2 {
		if w.until == noUntil {
			return StepMore
		}
		return w.below()
	}
	if more || p.above > 0 {
		// It has something that it did not give, or does not know until.
		w.unfinished = true
		known := slices.ContainsFunc(w.gaps, func(t nostr.Timestamp) bool { return t == w.until || t == w.until+1 })
		if w.until != noUntil && !known {
			w.addGap(w.until)
		}
	}
	return w.finish()
}

// judgeSecond decides whether the second until, of which a whole page brought
// nothing new, may hold more than a page. Where the relay gave larger pages the
// next page tells: one that was not cut would hold what comes below. Caps differ
// from filter to filter with some relays, and change.
func (w *Walk) judgeSecond(p page, more bool) {
	switch {
	case more, p.above > 0, p.size >= min(w.limit, w.PageSize()):
		w.addGap(w.until)
	case p.below == 0, p.size >= min(w.limit, w.largest):
		w.suspect, w.suspectSize = w.until, p.size
	}
}

// judgeSuspect decides by the page below a suspect.
func (w *Walk) judgeSuspect(p page) {
	switch {
	case w.suspectSize == 0:
	case p.size > 0:
		w.addGap(w.suspect)
	case w.suspectSize >= min(w.limit, w.largest):
		// All that came is of one second: this may be a cap, or all there is.
		w.doubt, w.doubtSize = w.suspect, w.suspectSize
	}
	w.suspectSize = 0
}

// below goes on under the second until.
func (w *Walk) below() Step {
	if w.until <= w.floor {
		w.judgeSuspect(page{})
		return w.finish()
	}
	w.until--
	w.known = make(map[graspsync.EventID]struct{})
	return StepMore
}

func (w *Walk) finish() Step {
	w.done = true
	w.known, w.page.ids = nil, nil
	return StepDone
}

func (w *Walk) addGap(t nostr.Timestamp) { w.gaps = append(w.gaps, t) }

// Gaps returns the seconds that may hold more events than the relay gave, newest
// first. The slice is the caller's.
func (w *Walk) Gaps() []nostr.Timestamp { return slices.Clone(w.gaps) }

// Doubt returns the one second at the end of a walk that may have been cut although
// the relay gave larger pages for other filters, and how many events it gave: no
// page was larger, and there is nothing below by which to tell. The size is 0 if
// there is no such second.
func (w *Walk) Doubt() (at nostr.Timestamp, size int) { return w.doubt, w.doubtSize }

// Ended reports whether the walk is over and the relay showed that it has nothing
// more, gaps apart.
func (w *Walk) Ended() bool { return w.done && !w.unfinished }

// Done reports whether the walk is over. It is from the start if no event can
// match.
func (w *Walk) Done() bool { return w.done }

// Complete reports whether the walk is over and nothing is left in doubt.
func (w *Walk) Complete() bool { return w.done && !w.unfinished && len(w.gaps) == 0 }

// Until returns the cursor for [WalkStart]: everything newer than this second
// was fetched, gaps apart. It is 0 as long as that is true of nothing. It moves at
// End only, so it is safe to keep when a page is broken off.
func (w *Walk) Until() int64 {
	if w.until == noUntil {
		return 0
	}
	if w.suspectSize > 0 {
		return int64(w.suspect)
	}
	return int64(w.until)
}

// PageSize returns the largest page that this relay is known to have given, in
// events.
func (w *Walk) PageSize() int { return max(w.largest, w.pageSize) }

// Largest returns the largest page of this walk, in events.
func (w *Walk) Largest() int { return w.largest }

// Pages returns how many pages have ended.
func (w *Walk) Pages() int { return w.pages }
