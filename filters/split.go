package filters

import (
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// maxSplitAuthors and maxSplitKinds bound what a [Split] goes by where a filter
// names no authors or kinds itself.
const (
	maxSplitAuthors = MaxValues
	maxSplitKinds   = 64
)

// SplitBounds says what is known of the relay that a [Split] asks.
type SplitBounds struct {
	// Limit is the page size asked for, in events. Defaults to DefaultLimit.
	Limit int
	// Page is the size from which on an answer may have been cut, in events: the
	// largest page that the relay gave for the filter that is split. If it is too
	// large, answers that were cut are taken for whole; if it is too small, more is
	// split than need be. Defaults to Limit.
	Page int
	// Requests is the most pages that are asked for. Defaults to 200.
	Requests int
}

// Split reads one second that holds more events than a page, so that a [Walk]
// can't: the filter is halved at its lists of values, again and again, until the
// answers are smaller than a page.
//
// The two halves of a filter match together what it matches, so once an answer
// that was not cut was had for each part, the second is complete. A filter that
// has nothing left to halve is narrowed by kinds and by authors, as far as they
// occur in this second or are those of [Kinds]. What that brings is worth having,
// but proves nothing: there may be others.
//
// A part both of whose halves bring a full page without any id that is new is given
// up: a relay that always sends the same is soon seen through. The order of
// requests depends on the answers only. A Split must not be used concurrently.
type Split struct {
	at       nostr.Timestamp
	limit    int
	page     int
	left     int // requests
	queue    []splitPart
	leaves   []splitLeaf
	doubtful bool // something can't be proven

	size, fresh int // of the page under way
	ids         map[graspsync.EventID]struct{}
	kinds       []int
	authors     []string
}

// splitPart is a filter that is to be asked for.
type splitPart struct {
	filter nostr.Filter
	of     *splitPair
}

// splitPair is one filter, or the two halves of one, which are judged together.
type splitPair struct {
	size int
	left int            // not answered yet
	idle int            // answered by a full page that brought nothing new
	full []nostr.Filter // answered by a full page
}

// splitLeaf is a filter with nothing left to halve, and how many of the kinds and
// authors that were seen it was narrowed by.
type splitLeaf struct {
	filter         nostr.Filter
	kinds, authors int
}

// NewSplit begins to split what f matches in the second at, of which a full page
// was had. The since, until and limit of f are replaced. Nothing of f is shared.
func NewSplit(f nostr.Filter, at nostr.Timestamp, opt SplitBounds) *Split {
	s := &Split{at: at, limit: opt.Limit, page: opt.Page, left: opt.Requests, ids: make(map[graspsync.EventID]struct{}), kinds: Kinds()}
	if s.limit < 1 {
		s.limit = DefaultLimit
	}
	if s.page < 1 || s.page > s.limit {
		s.page = s.limit
	}
	if s.left < 1 {
		s.left = 200
	}
	f = Between(f, &at, &at, s.limit)
	if !Empty(f) && !s.halve(f) {
		// Its first page is asked for again: it shows who wrote in this second.
		s.push(f)
	}
	return s
}

// Next returns the filter of the page to ask for; until End is called it is the
// same each time, and what was counted of it is dropped. It reports false when
// there is nothing left to ask.
func (s *Split) Next() (f nostr.Filter, ok bool) {
	if s.Done() {
		return nostr.Filter{}, false
	}
	s.size, s.fresh = 0, 0
	return s.queue[0].filter, true
}

// Saw counts an event of the page. It must be called for each EVENT as it comes off
// the wire, wanted or not.
func (s *Split) Saw(id graspsync.EventID, ev *nostr.Event) {
	s.size++
	if ev.CreatedAt == s.at {
		if isNew, _ := remember(s.ids, id); isNew {
			s.fresh++
		}
	}
	s.Heard(ev)
}

// Heard takes in an event that came on another way: if it is of this second, its
// kind and author are among those by which filters are narrowed.
func (s *Split) Heard(ev *nostr.Event) {
	if ev.CreatedAt != s.at {
		return
	}
	if len(s.kinds) < maxSplitKinds && !slices.Contains(s.kinds, ev.Kind) {
		s.kinds = append(s.kinds, ev.Kind)
	}
	if len(s.authors) < maxSplitAuthors && !slices.Contains(s.authors, ev.PubKey) {
		s.authors = append(s.authors, ev.PubKey)
	}
}

// End closes the page: the relay sent EOSE. complete and more are what NIP-67 says
// with it, as in [Walk.End].
func (s *Split) End(complete, more bool) {
	if s.Done() {
		return
	}
	part := s.queue[0]
	s.queue = s.queue[1:]
	s.left--
	pair := part.of
	pair.left--
	if !complete && (more || s.size >= s.page) {
		pair.full = append(pair.full, part.filter)
		if s.fresh == 0 {
			pair.idle++
		}
	}
	if pair.left == 0 {
		s.descend(pair)
	}
	if len(s.queue) == 0 {
		s.widen()
	}
}

// descend splits further what was cut.
func (s *Split) descend(pair *splitPair) {
	if pair.size > 1 && pair.idle == pair.size {
		s.doubtful = true
		return
	}
	for _, f := range pair.full {
		if !s.halve(f) {
			s.doubtful = true
			s.leaves = append(s.leaves, splitLeaf{filter: f})
		}
	}
}

func (s *Split) halve(f nostr.Filter) bool {
	a, b, ok := halve(f)
	if ok {
		s.push(a, b)
	}
	return ok
}

func (s *Split) push(fs ...nostr.Filter) {
	pair := &splitPair{size: len(fs), left: len(fs)}
	for _, f := range fs {
		s.queue = append(s.queue, splitPart{f, pair})
	}
}

// widen narrows the leaves by kinds and authors that they were not narrowed by
// yet: by kinds first, and what is left of a full page by authors.
func (s *Split) widen() {
	for i := range s.leaves {
		switch l := &s.leaves[i]; {
		case l.filter.Kinds == nil && l.kinds < len(s.kinds):
			f := l.filter
			f.Kinds = slices.Clone(s.kinds[l.kinds:])
			l.kinds = len(s.kinds)
			s.ask(f)
		case l.filter.Kinds != nil && l.filter.Authors == nil && l.authors < len(s.authors) && len(s.authors) > 1:
			f := l.filter
			f.Authors = slices.Clone(s.authors[l.authors:])
			l.authors = len(s.authors)
			s.ask(f)
		}
	}
}

// ask asks for the halves of a filter that was just narrowed, since the whole of
// it is as good as what it was before; or for all of it, if there are no halves.
func (s *Split) ask(f nostr.Filter) {
	if !s.halve(f) {
		s.push(f)
	}
}

// Done reports whether there is nothing left to ask, or no request left to ask it
// with.
func (s *Split) Done() bool { return len(s.queue) == 0 || s.left == 0 }

// Complete reports whether all events of the second that match were had.
func (s *Split) Complete() bool { return len(s.queue) == 0 && !s.doubtful }

// Seen returns how many different events of the second came, at most 65,536.
func (s *Split) Seen() int { return len(s.ids) }
