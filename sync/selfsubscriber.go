package sync

import (
	"context"
	"slices"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/index"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// selfSubscriber collects the changes by events that our relay stores and removes, for one batch
// window. Senders never block. The limit grows with the index, because reading a large index takes
// longer.
type selfSubscriber struct {
	index *index.Index
	most  int           // maximum number of changes, or a quarter of the index
	wake  chan struct{} // one slot

	authorsMost int

	mu sync.Mutex
	// guarded by mu
	batch selfBatch                     // of the open window
	seen  map[graspsync.PubKey]struct{} // recently reported authors, at most authorsMost
}

func newSelfSubscriber(x *index.Index, most, authors int) *selfSubscriber {
	return &selfSubscriber{index: x, most: most, authorsMost: authors, wake: make(chan struct{}, 1), seen: make(map[graspsync.PubKey]struct{})}
}

// selfBatch contains the changes of a window.
type selfBatch struct {
	change  index.Change
	held    map[graspsync.RepoRef]*nip34.Announcement // held by the Policy
	unheld  []*nip34.Announcement                     // not held any more
	authors []graspsync.PubKey
	all     bool // change is, or must become, the whole index
}

func (b *selfBatch) empty() bool {
	return b.change.Empty() && len(b.held)+len(b.unheld)+len(b.authors) == 0 && !b.all
}

func (f *selfSubscriber) stored(ev graspsync.Event) {
	f.update(func() {
		f.add(f.index.Stored(ev))
		f.addAuthor(ev)
	})
}

// descends applies a stored event that may be a reply.
func (f *selfSubscriber) descends(ev graspsync.Event) {
	f.update(func() {
		f.add(f.index.Reply(ev))
	})
}

func (f *selfSubscriber) addAuthor(ev graspsync.Event) {
	a := ev.PubKey
	if _, known := f.seen[a]; known || len(f.batch.authors) >= f.authorsMost {
		return
	}
	if len(f.seen) >= f.authorsMost {
		clear(f.seen) // reporting an author twice is harmless
	}
	f.seen[a] = struct{}{}
	f.batch.authors = append(f.batch.authors, a)
}

func (f *selfSubscriber) removed(ev graspsync.Event) {
	f.update(func() {
		f.add(f.index.Removed(ev))
		if ev.Kind == graspsync.KindAnnouncement {
			if a, err := nip34.ParseAnnouncement(ev); err == nil && len(f.batch.unheld) < f.most {
				f.batch.unheld = append(f.batch.unheld, a)
			}
		}
	})
}

func (f *selfSubscriber) hold(a *nip34.Announcement) {
	f.update(func() {
		if len(f.batch.held) < f.most {
			lazy.Put(&f.batch.held, a.Ref, index.WithoutEvent(a))
			f.batch.unheld = slices.DeleteFunc(f.batch.unheld, func(o *nip34.Announcement) bool { return o.ID == a.ID })
		}
	})
}

// found applies an event that a scan shows, and reports whether it was unknown.
func (f *selfSubscriber) found(s index.Scan, ev graspsync.Event) (news bool) {
	f.update(func() {
		c := s.Add(ev)
		news = !c.Empty()
		f.add(c)
	})
	return news
}

// missing applies that a known event is not stored.
func (f *selfSubscriber) missing(s index.Scan, id graspsync.EventID) {
	f.update(func() { f.add(s.Missing(id)) })
}

// tellAll makes the loop read the whole index.
func (f *selfSubscriber) tellAll() {
	f.update(func() {
		f.overrunBy(f.batch.change)
	})
}

func (f *selfSubscriber) add(c index.Change) {
	if f.batch.all || f.tooMany(&c) {
		c = c.Beside()
		f.overrunBy(f.batch.change)
	}
	f.batch.change.Merge(c)
	if f.tooMany(&f.batch.change) {
		f.overrunBy(f.batch.change)
	}
}

func (f *selfSubscriber) tooMany(c *index.Change) bool {
	return c.Size() > f.most && c.Size() > f.index.Size()/overrunShare
}

// overrunBy replaces the changes by the whole index if there are too many.
func (f *selfSubscriber) overrunBy(c index.Change) {
	f.batch.change, f.batch.all = c.Beside(), true
}

// overrunShare is the divisor of the index size.
const overrunShare = 4

// update runs change and wakes the loop if the batch has changes.
func (f *selfSubscriber) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	if !f.batch.empty() {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// take returns the changes since the last call.
func (f *selfSubscriber) take() selfBatch {
	b := f.takeChanges()
	if b.all {
		beside := b.change
		b.change = f.index.All()
		b.change.Merge(beside)
	}
	return b
}

func (f *selfSubscriber) takeChanges() selfBatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.batch
	f.batch = selfBatch{}
	return b
}

// pending reports whether there are changes. Replies do not count, because a relay is synced
// without them.
func (f *selfSubscriber) pending() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.batch
	b.change.Descendants, b.change.LeftOut, b.change.Fresh = nil, 0, nil
	return !b.empty()
}

// scan compares the index with the Store.
func (m *SyncManager) scan(ctx context.Context) {
	first, waited := !m.isReady(), make(map[pending.Key]struct{})
	// Events that begin to wait later find their dependencies in the index.
	recalls := first && !m.ingest.rejected.Idle()
	authors := make(map[graspsync.PubKey]struct{}) // the plan requests their deletions
	var news plan.Authors
	announcements, listed := 0, ""
	s := m.index.Begin()
	missed, err := m.scanStore(ctx, func(ev graspsync.Event) {
		if m.self.found(s, ev) && !first {
			m.ingest.fulfil(ev)
		}
		if reason, _ := m.cfg.blocks(ev); ev.Kind == graspsync.KindAnnouncement && reason == "" {
			announcements++
			if first && listed == "" {
				listed = listedRelay(ev)
			}
		}
		if _, known := authors[ev.PubKey]; !known {
			authors[ev.PubKey] = struct{}{}
			if news = append(news, ev.PubKey); len(news) >= maxAuthors {
				m.inbox.put(planInput{news})
				news = nil
				clear(authors) // naming an author twice is harmless
			}
		}
		if recalls {
			m.ingest.awaited(ev, waited)
		}
	}, s.Unseen, func(id graspsync.EventID) { m.self.missing(s, id) })
	if err != nil {
		m.inbox.put(scanResult{err: err})
		return
	}
	if missed != nil {
		m.telemetry.drop("scans", 1)
		m.cfg.Logger.Warn("reading the store ended early", keyErr, missed)
	}
	m.inbox.put(planInput{news})
	s.End(missed != nil)
	if first {
		close(m.ready)
		if announcements > 0 && m.index.Hosted() == 0 {
			m.cfg.Logger.Warn("no stored announcement lists this server, check the domain",
				"announcements", announcements, "us", m.identity.String(), "listed", listed)
		}
	}
	m.inbox.put(scanResult{})
	// Request events now, because the plan knows the relays.
	if first {
		m.ingest.recalled(waited)
	}
	m.ingest.reprocess.poke()
}

// descend searches for replies in the repositories in of. A nil of means all.
func (m *SyncManager) descend(ctx context.Context, of map[graspsync.RepoRef]struct{}) {
	m.inbox.put(threadSearchResult{of, m.findReplies(ctx, of, m.self.descends)})
}

// listedRelay returns a relay that an announcement lists, or "".
func listedRelay(ev graspsync.Event) string {
	a, err := nip34.ParseAnnouncement(ev)
	if err != nil || len(a.Relays) == 0 {
		return ""
	}
	return a.Relays[0].String()
}
