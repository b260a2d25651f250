package sync

import (
	"slices"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
)

// feed is the own feed: what our relay stored and removed, from whatever source,
// as changes of what is wanted. Whoever reports to it is never blocked: changes of
// one thing are merged, and when too many things have changed the loop is told all
// there is instead.
type feed struct {
	index *index
	most  int           // changes in a window
	wake  chan struct{} // one slot

	authorsMost int

	mu sync.Mutex
	// guarded by mu
	change  indexChange
	held    map[filters.RepoRef]*nip34.Announcement // held back by the policy
	unheld  []*nip34.Announcement                   // not any more, if these were
	authors []filters.PubKey
	seen    map[filters.PubKey]struct{} // authors ever reported, at most authorsMost
	overrun bool                        // change is incomplete
}

func newFeed(x *index, most, authors int) *feed {
	return &feed{index: x, most: most, authorsMost: authors, wake: make(chan struct{}, 1), seen: make(map[filters.PubKey]struct{})}
}

// feedBatch is what a window brought.
type feedBatch struct {
	change  indexChange
	held    map[filters.RepoRef]*nip34.Announcement
	unheld  []*nip34.Announcement
	authors []filters.PubKey
	all     bool // change is all there is, not what is new
}

// stored reports an event that is durable now.
func (f *feed) stored(ev *nostr.Event) {
	f.index.mention(ev)
	f.update(func() bool {
		f.add(f.index.stored(ev))
		f.addAuthor(ev)
		return f.something()
	})
}

// superseded reports an event that was accepted, but is not stored since a newer
// version or a deletion of it is here.
func (f *feed) superseded(ev *nostr.Event) {
	f.index.mention(ev)
	f.update(func() bool {
		f.add(f.index.superseded(ev))
		return f.something()
	})
}

func (f *feed) addAuthor(ev *nostr.Event) {
	a, err := filters.ParsePubKey(ev.PubKey)
	if _, known := f.seen[a]; err != nil || known || len(f.seen) >= f.authorsMost {
		return
	}
	f.seen[a] = struct{}{}
	f.authors = append(f.authors, a)
}

// something reports whether there is anything to take. f.mu is held.
func (f *feed) something() bool {
	return !f.change.empty() || len(f.held)+len(f.unheld)+len(f.authors) > 0 || f.overrun
}

// removed reports an event that is gone.
func (f *feed) removed(ev *nostr.Event) {
	f.update(func() bool {
		f.add(f.index.removed(ev))
		if ev.Kind == filters.KindAnnouncement {
			if a, err := nip34.ParseAnnouncement(ev); err == nil && len(f.unheld) < f.most {
				f.unheld = append(f.unheld, a)
			}
		}
		return f.something()
	})
}

// hold reports an announcement that the Policy holds back.
func (f *feed) hold(a *nip34.Announcement) {
	f.update(func() bool {
		if len(f.held) < f.most {
			put(&f.held, a.Ref, withoutEvent(a))
			f.unheld = slices.DeleteFunc(f.unheld, func(o *nip34.Announcement) bool { return o.ID == a.ID })
		}
		return true
	})
}

// replaceAll makes the index what a scan found. The difference takes its place among
// the other changes, and is returned. It is false if the scan is of no use.
func (f *feed) replaceAll(snap *snapshot) (c indexChange, ok bool) {
	f.update(func() bool {
		if c, ok = f.index.replaceAll(snap); ok {
			f.add(c)
		}
		return f.something()
	})
	return c, ok
}

// tellAll has the loop told everything anew.
func (f *feed) tellAll() {
	f.update(func() bool {
		f.change, f.overrun = indexChange{}, true
		return true
	})
}

func (f *feed) add(c indexChange) {
	if f.overrun {
		return
	}
	f.change.merge(c)
	if len(f.change.repos)+len(f.change.roots) > f.most {
		f.change, f.overrun = indexChange{}, true
	}
}

func (f *feed) update(change func() (wake bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if change() {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// take returns what has come since the last call.
func (f *feed) take() feedBatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := feedBatch{change: f.change, held: f.held, unheld: f.unheld, authors: f.authors, all: f.overrun}
	if b.all {
		b.change = f.index.all()
	}
	f.change, f.held, f.unheld, f.authors, f.overrun = indexChange{}, nil, nil, nil, false
	return b
}

// pending reports whether there is something to take.
func (f *feed) pending() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.something()
}

// all returns everything that is known, as one change from nothing.
func (x *index) all() indexChange {
	x.write.Lock()
	defer x.write.Unlock()
	return newIndexTables().difference(x.tables)
}

// announcement returns the accepted announcement of a repository, nil if there is
// none.
func (x *index) announcement(ref filters.RepoRef) *nip34.Announcement {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tables.announcement(ref)
}
