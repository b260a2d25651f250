package sync

import (
	"context"
	"slices"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// feed is the own feed: what our relay stored and removed, from whatever source,
// as changes of what is wanted. Whoever reports to it is never blocked: changes of
// one thing are merged, and when too many things have changed the loop is told all
// there is instead. That takes as long as there is much, so it takes more changes where
// there is more.
type selfSubscriber struct {
	index *eventIndex
	most  int           // changes in a window, or a share of what there is
	wake  chan struct{} // one slot

	authorsMost int

	mu sync.Mutex
	// guarded by mu
	change  indexChange
	held    map[graspsync.RepoRef]*nip34.Announcement // held back by the policy
	unheld  []*nip34.Announcement                     // not any more, if these were
	authors []graspsync.PubKey
	seen    map[graspsync.PubKey]struct{} // authors reported lately, at most authorsMost
	overrun bool                          // change is incomplete
}

func newSelfSubscriber(x *eventIndex, most, authors int) *selfSubscriber {
	return &selfSubscriber{index: x, most: most, authorsMost: authors, wake: make(chan struct{}, 1), seen: make(map[graspsync.PubKey]struct{})}
}

// feedBatch is what a window brought.
type selfBatch struct {
	change  indexChange
	held    map[graspsync.RepoRef]*nip34.Announcement
	unheld  []*nip34.Announcement
	authors []graspsync.PubKey
	all     bool // change is all there is, not what is new
}

// stored reports an event that is durable now.
func (f *selfSubscriber) stored(ev graspsync.Event) {
	f.update(func() bool {
		f.add(f.index.stored(ev))
		f.addAuthor(ev)
		return f.something()
	})
}

// descends reports a stored event that may descend from something of ours.
func (f *selfSubscriber) descends(ev graspsync.Event) {
	f.update(func() bool {
		f.add(f.index.descending(ev))
		return f.something()
	})
}

func (f *selfSubscriber) addAuthor(ev graspsync.Event) {
	a := ev.PubKey
	if _, known := f.seen[a]; known || len(f.authors) >= f.authorsMost {
		return
	}
	if len(f.seen) >= f.authorsMost {
		clear(f.seen) // who comes later counts as well; twice does no harm
	}
	f.seen[a] = struct{}{}
	f.authors = append(f.authors, a)
}

// something reports whether there is anything to take. f.mu is held.
func (f *selfSubscriber) something() bool {
	return !f.change.empty() || len(f.held)+len(f.unheld)+len(f.authors) > 0 || f.overrun
}

// removed reports an event that is gone.
func (f *selfSubscriber) removed(ev graspsync.Event) {
	f.update(func() bool {
		f.add(f.index.removed(ev))
		if ev.Kind == graspsync.KindAnnouncement {
			if a, err := nip34.ParseAnnouncement(ev); err == nil && len(f.unheld) < f.most {
				f.unheld = append(f.unheld, a)
			}
		}
		return f.something()
	})
}

// hold reports an announcement that the Policy holds back.
func (f *selfSubscriber) hold(a *nip34.Announcement) {
	f.update(func() bool {
		if len(f.held) < f.most {
			lazy.Put(&f.held, a.Ref, withoutEvent(a))
			f.unheld = slices.DeleteFunc(f.unheld, func(o *nip34.Announcement) bool { return o.ID == a.ID })
		}
		return true
	})
}

// replaceAll makes the index what a scan found. The difference takes its place among
// the other changes, and is returned. It is false if the scan is of no use.
func (f *selfSubscriber) replaceAll(snap *indexScan) (c indexChange, ok bool) {
	f.update(func() bool {
		if c, ok = f.index.replaceAll(snap); ok {
			f.add(c)
		}
		return f.something()
	})
	return c, ok
}

// tellAll has the loop told everything anew.
func (f *selfSubscriber) tellAll() {
	f.update(func() bool {
		f.overrunBy(f.change)
		return true
	})
}

func (f *selfSubscriber) add(c indexChange) {
	if f.overrun || f.tooMany(&c) {
		c = c.beside()
		f.overrunBy(f.change)
	}
	f.change.merge(c)
	if f.tooMany(&f.change) {
		f.overrunBy(f.change)
	}
}

func (f *selfSubscriber) tooMany(c *indexChange) bool {
	return c.size() > f.most && c.size() > f.index.size()/overrunShare
}

// overrunBy has the loop told all there is, and of a change only what that does not say.
func (f *selfSubscriber) overrunBy(c indexChange) {
	f.change, f.overrun = c.beside(), true
}

// overrunShare of what is known are so many changes that the loop may as well be told
// everything.
const overrunShare = 4

func (f *selfSubscriber) update(change func() (wake bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if change() {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// take returns what has come since the last call. What changes while everything is
// gathered comes with the next one: whoever reports it does not wait for that.
func (f *selfSubscriber) take() selfBatch {
	b := f.takeChanges()
	if b.all {
		beside := b.change
		b.change = f.index.all()
		b.change.merge(beside)
	}
	return b
}

func (f *selfSubscriber) takeChanges() selfBatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := selfBatch{change: f.change, held: f.held, unheld: f.unheld, authors: f.authors, all: f.overrun}
	f.change, f.held, f.unheld, f.authors, f.overrun = indexChange{}, nil, nil, nil, false
	return b
}

// pending reports whether there is something to take. What descends from others does not
// count: relays are synced without it.
func (f *selfSubscriber) pending() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.change
	c.descendants, c.leftOut, c.fresh = nil, 0, nil
	return !c.empty() || len(f.held)+len(f.unheld)+len(f.authors) > 0 || f.overrun
}

// maxSubmissions is how many events may wait to be taken in, of which the embedder has said that our
// relay has stored them. They are seldom more than a few.
const maxSubmissions = 256

// submissions is what the embedder says that our relay has stored, until it is taken in, which is soon, and
// in order. Whoever says it waits for nobody who goes through much that is known, unless so much is
// said at once that there is no room: nothing is left out.
type submissionQueue struct {
	take func(graspsync.Event) // takes in one of them
	wake chan struct{}         // one slot: there is something

	mu     sync.Mutex        // held for a moment
	events []graspsync.Event // guarded by mu

	turn  sync.Mutex        // held by who takes them in; taken before mu
	taken []graspsync.Event // guarded by turn: room for the next ones, empty
}

func newSubmissionQueue(take func(graspsync.Event)) *submissionQueue {
	return &submissionQueue{take: take, wake: make(chan struct{}, 1)}
}

// run takes in what is said until ctx ends.
func (s *submissionQueue) run(ctx context.Context) {
	for {
		select {
		case <-s.wake:
			s.takeIn()
		case <-ctx.Done():
			return
		}
	}
}

// stored says that an event was stored.
func (s *submissionQueue) stored(ev graspsync.Event) {
	for !s.add(ev) {
		s.takeIn()
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *submissionQueue) add(ev graspsync.Event) (fits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) >= maxSubmissions {
		return false
	}
	s.events = append(s.events, ev)
	return true
}

// takeIn takes in all that was said before.
func (s *submissionQueue) takeIn() {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	events := s.events
	s.events = s.taken
	s.mu.Unlock()
	for i, ev := range events {
		events[i] = graspsync.Event{} // it may be large
		s.take(ev)
	}
	s.taken = events[:0]
}
