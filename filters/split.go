package filters

import (
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// maxSplitAuthors and maxSplitKinds limit the observed authors and kinds by which a [Split] narrows
// a filter that names none.
const (
	maxSplitAuthors = MaxValues
	maxSplitKinds   = 64
)

// SplitBounds contains the known limits of the relay of a [Split].
type SplitBounds struct {
	// Limit is the requested page size in events. Defaults to DefaultLimit.
	Limit int
	// Page is the number of events from which a page counts as cut. Set it to the largest page that
	// the relay returned for the filter. If it is too large, cut pages count as complete. If it is
	// too small, unnecessary requests are sent. Defaults to Limit.
	Page int
	// Requests is the maximum number of requested pages. Defaults to 200.
	Requests int
}

// Split reads one second that contains more events than a page, which a [Walk] cannot do. It halves
// the filter at its lists of values until each answer is smaller than a page.
//
// Two halves of a filter together match the same events as the filter. The second is complete when
// the answer to each part was not cut. A filter that cannot be halved is narrowed by the kinds and
// authors that occur in this second, and by [Kinds]. Narrowed filters return useful events but do
// not prove that the second is complete, because other kinds and authors may exist.
//
// If both halves of a part return a full page without a new id, the part is given up, because the
// relay probably sends the same events for any filter. The requests depend only on the answers. A
// Split must not be used concurrently.
type Split struct {
	at       nostr.Timestamp
	limit    int
	page     int
	left     int // remaining requests
	queue    []splitPart
	leaves   []splitLeaf
	doubtful bool // completeness of some part cannot be proven

	size, fresh int // of the current page
	ids         map[graspsync.EventID]struct{}
	kinds       []int
	authors     []string
}

// splitPart is a filter that is still to be requested.
type splitPart struct {
	filter nostr.Filter
	of     *splitPair
}

// splitPair is one filter, or the two halves of a filter, which are judged together.
type splitPair struct {
	size int
	left int            // requests without an answer
	idle int            // full pages that brought nothing new
	full []nostr.Filter // filters whose answer was a full page
}

// splitLeaf is a filter that cannot be halved, with the number of observed kinds and authors by
// which it was narrowed.
type splitLeaf struct {
	filter         nostr.Filter
	kinds, authors int
}

// NewSplit returns a Split of the events that match f in the second at, after a full page of that
// second was received. The since, until and limit of f are replaced. The Split shares nothing with
// f.
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
		// The first page is requested again, because it shows authors of this second.
		s.push(f)
	}
	return s
}

// Next returns the filter of the page to request. Until End is called it returns the same filter
// and discards the counts of the interrupted page. It returns false if no request is left.
func (s *Split) Next() (f nostr.Filter, ok bool) {
	if s.Done() {
		return nostr.Filter{}, false
	}
	s.size, s.fresh = 0, 0
	return s.queue[0].filter, true
}

// Saw counts an event of the page. Call it for each received EVENT, whether or not the event is
// wanted.
func (s *Split) Saw(id graspsync.EventID, ev *nostr.Event) {
	s.size++
	if ev.CreatedAt == s.at {
		if isNew, _ := remember(s.ids, id); isNew {
			s.fresh++
		}
	}
	s.Heard(ev)
}

// Heard reports an event that another subscription delivered. If it is of this second, its kind and
// author are used to narrow filters.
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

// End ends the page after EOSE. complete and more are the flags of NIP-67, as in [Walk.End].
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

// descend splits filters whose answer was cut.
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

// widen narrows the leaves by observed kinds that were not used yet. Leaves whose page is still
// full are then narrowed by authors.
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

// ask requests the halves of a filter that was just narrowed, because the whole would probably be
// cut again. A filter that cannot be halved is requested as a whole.
func (s *Split) ask(f nostr.Filter) {
	if !s.halve(f) {
		s.push(f)
	}
}

// Done reports whether all requests were sent or their maximum is reached.
func (s *Split) Done() bool { return len(s.queue) == 0 || s.left == 0 }

// Complete reports whether all matching events of the second were received.
func (s *Split) Complete() bool { return len(s.queue) == 0 && !s.doubtful }

// Seen returns the number of distinct events of the second that were received, at most 65,536.
func (s *Split) Seen() int { return len(s.ids) }
