package filters

import (
	"math"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// DefaultLimit is the default page size of a [Walk] in events. Most relays return at most that
// many.
const DefaultLimit = 500

// maxKnown is the maximum number of ids of one second that a [Walk] remembers.
const maxKnown = 1 << 16

const noUntil nostr.Timestamp = math.MaxInt64

// WalkStart contains the starting point of a [Walk] and known properties of the relay. The zero
// value is valid.
type WalkStart struct {
	// Limit is the requested page size in events, at most the maximum of the relay. Defaults to
	// DefaultLimit.
	Limit int
	// PageSize is the largest page that the relay has returned, or its published limit. With a
	// smaller value, complete seconds are reported as gaps. Defaults to 0, unknown.
	PageSize int
	// Until is the position of an earlier walk of the same filter ([Walk.Until]), or 0.
	Until int64
}

// Walk reads the history of one filter from one relay, page by page, the newest events first.
//
// A relay answers a REQ with its newest events, up to a maximum that it may keep secret. The next
// page begins at the second of the last received event, inclusive, because more events of that
// second may have been cut off. The page ends at the last received event, not at the oldest, because
// some relays send newly published events on the same subscription. The walk ends when the relay
// declares the answer complete (NIP-67), or when nothing below the last second is left.
//
// A relay that omits newer events from a page, as badger (eventstore) sometimes does, is not
// detected. NIP-77 finds these events. Each page except the last two brings a new id or lowers
// until, so a walk of finitely many events ends, whatever the relay sends. A Walk must not be used
// concurrently.
type Walk struct {
	filter nostr.Filter // private copy, without until and limit
	limit  int
	floor  nostr.Timestamp                // oldest requested second
	until  nostr.Timestamp                // newest second of this page, or noUntil
	known  map[graspsync.EventID]struct{} // received ids of second until
	page   page
	idle   int // consecutive pages without a new id

	largest  int // page of this walk
	pageSize int // from WalkStart

	// suspect is a second that was cut if any older event exists.
	suspect     nostr.Timestamp
	suspectSize int // of its page, or 0
	gaps        []nostr.Timestamp
	doubt       nostr.Timestamp
	doubtSize   int // 0 if there is no doubt

	pages      int
	done       bool
	unfinished bool // the walk ended although the relay may have more
}

type page struct {
	size    int                            // events between floor and until, with repetitions
	rises   int                            // events newer than the event before
	above   int                            // events newer than until, which were not requested
	below   int                            // events older than until
	atUntil int                            // new ids of second until
	last    nostr.Timestamp                // of the last received event
	edge    nostr.Timestamp                // until of the next page
	ids     map[graspsync.EventID]struct{} // of second edge, while it is below until
}

// NewWalk returns a walk of the events that match f. It keeps the since and until of f, and shares
// nothing with f.
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

// Next begins a page and returns its filter, the same until End is called. When the walk is over,
// the filter matches no event.
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

// Saw counts a received event, before deduplication, and reports whether it is new to this walk. An
// event outside the bounds of the page is never new.
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

// moveEdge sets the beginning of the next page to t, the second of the last received event. If more
// events came than requested, some were published just now, and the real end is the newest of the
// events from number limit on. A relay that sends twice the limit ignores limits.
func (w *Walk) moveEdge(t nostr.Timestamp) {
	p := &w.page
	if p.size > 1 && t == p.edge || p.size > w.limit && p.size/2 < w.limit && t < p.edge {
		return
	}
	p.edge = t
	if len(p.ids) > 64 {
		// clear takes time in proportion to the largest size that the map had.
		p.ids = make(map[graspsync.EventID]struct{})
	} else {
		clear(p.ids)
	}
}

// remember adds id to a set. If the set is full, an unknown id is new but never progress.
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

// End ends the page after EOSE. complete and more are the flags "finish" and "more" of NIP-67.
func (w *Walk) End(complete, more bool) {
	if w.done {
		return
	}
	p := w.page
	w.page = page{ids: p.ids}
	w.pages++
	w.largest = max(w.largest, p.size-p.rises)
	w.judgeSuspect(p)

	switch {
	case complete:
		w.finish()
	case p.size == 0:
		w.endEmpty(p, more)
	case p.edge < w.until:
		w.idle = 0
		w.known, w.page.ids = p.ids, make(map[graspsync.EventID]struct{})
		w.until = p.edge
	case p.atUntil > 0:
		// The whole page is of this second. The next page may bring the rest.
		w.idle = 0
	default:
		w.idle++
		w.judgeSecond(p, more)
		w.below()
	}
}

// endEmpty ends the walk after an empty page, or repeats it once if the relay claims more events.
func (w *Walk) endEmpty(p page, more bool) {
	if w.idle++; more && w.idle < 2 {
		if w.until != noUntil {
			w.below()
		}
		return
	}
	if more || p.above > 0 {
		// The relay withholds events, or ignores until.
		w.unfinished = true
		known := slices.ContainsFunc(w.gaps, func(t nostr.Timestamp) bool { return t == w.until || t == w.until+1 })
		if w.until != noUntil && !known {
			w.gaps = append(w.gaps, w.until)
		}
	}
	w.finish()
}

// judgeSecond decides whether the second until may contain more events than a page, after a full
// page of that second without news. If the relay returned larger pages, the next page decides,
// because a page that was not cut would contain older events.
func (w *Walk) judgeSecond(p page, more bool) {
	switch {
	case more, p.above > 0, p.size >= min(w.limit, w.PageSize()):
		w.gaps = append(w.gaps, w.until)
	case p.below == 0, p.size >= min(w.limit, w.largest):
		w.suspect, w.suspectSize = w.until, p.size
	}
}

// judgeSuspect judges the suspect second by the page below it.
func (w *Walk) judgeSuspect(p page) {
	switch {
	case w.suspectSize == 0:
	case p.size > 0:
		w.gaps = append(w.gaps, w.suspect)
	case w.suspectSize >= min(w.limit, w.largest):
		// All events are of one second. The page was cut, or the second has no more events.
		w.doubt, w.doubtSize = w.suspect, w.suspectSize
	}
	w.suspectSize = 0
}

func (w *Walk) below() {
	if w.until <= w.floor {
		w.judgeSuspect(page{})
		w.finish()
		return
	}
	w.until--
	w.known = make(map[graspsync.EventID]struct{})
}

func (w *Walk) finish() {
	w.done = true
	w.known, w.page.ids = nil, nil
}

// Gaps returns a copy of the seconds that may contain more events than were received, the newest
// first.
func (w *Walk) Gaps() []nostr.Timestamp { return slices.Clone(w.gaps) }

// Doubt returns a last second that is the largest page of this walk, and the number of its events.
// It may have been cut, and no older event can prove its end. The size is 0 if there is none.
func (w *Walk) Doubt() (at nostr.Timestamp, size int) { return w.doubt, w.doubtSize }

// Ended reports whether the walk is over and the relay has nothing more, except for gaps.
func (w *Walk) Ended() bool { return w.done && !w.unfinished }

// Done reports whether the walk is over. It is over from the start if no event can match.
func (w *Walk) Done() bool { return w.done }

// Complete reports whether the walk is over without gaps or doubt.
func (w *Walk) Complete() bool { return w.done && !w.unfinished && len(w.gaps) == 0 }

// Until returns the cursor for [WalkStart]: newer events were fetched, except for gaps. It is 0
// before the first page has ended.
func (w *Walk) Until() int64 {
	if w.until == noUntil {
		return 0
	}
	if w.suspectSize > 0 {
		return int64(w.suspect)
	}
	return int64(w.until)
}

// PageSize returns the largest page that the relay is known to have returned, in events.
func (w *Walk) PageSize() int { return max(w.largest, w.pageSize) }

// Largest returns the largest page of this walk, in events.
func (w *Walk) Largest() int { return w.largest }

// Pages returns the number of ended pages.
func (w *Walk) Pages() int { return w.pages }
