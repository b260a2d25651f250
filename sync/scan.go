package sync

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

func (m *SyncManager) scan(ctx context.Context) {
	first, waited := !m.isReady(), make(map[pending.Key]struct{})
	// Events that begin to wait later find their dependencies in the new index.
	recalls := first && !m.ingest.rejected.Idle()
	authors := authorSample{most: m.cfg.fixed.MaxAuthors}
	announcements := 0
	snap, missed, err := m.reader.scan(ctx, func(ev graspsync.Event) {
		if reason, _ := m.cfg.blocks(ev); ev.Kind == graspsync.KindAnnouncement && reason == "" {
			announcements++
		}
		authors.add(ev)
		if recalls {
			m.ingest.awaited(ev, waited)
		}
	})
	if err != nil {
		m.inbox.put(scanResult{err: err})
		return
	}
	if missed != nil {
		m.telemetry.drop("scans", 1)
		m.cfg.Logger.Warn("reading the store ended early", keyErr, missed)
	}
	m.inbox.put(planInput{plan.Authors(authors.sorted())})
	change, ok := m.self.replaceAll(snap)
	if !ok {
		m.inbox.put(scanResult{err: errScanOvertaken})
		return
	}
	if first {
		close(m.ready)
		if announcements > 0 && m.index.announcedRepos() == 0 {
			m.cfg.Logger.Warn("no stored announcement lists this server, check the domain",
				"announcements", announcements, "us", m.identity.String())
		}
	}
	m.inbox.put(scanResult{})
	// Request events now, because the plan knows the relays.
	if first {
		m.ingest.recalled(waited)
	}
	m.ingest.reprocess.foundAll(change)
}

// descend searches for replies in the repositories in of. A nil of means all.
func (m *SyncManager) descend(ctx context.Context, of map[graspsync.RepoRef]struct{}) {
	err := func() (err error) {
		defer m.telemetry.recovered(&err, "store")
		return m.reader.descend(ctx, of, m.self.descends)
	}()
	m.inbox.put(threadSearchResult{of, err})
}

var errScanOvertaken = errors.New("too many changes while the store was read")

// authorSample contains the authors of stored events, whose deletions are requested. If there are
// more than fit, it is a random sample, in which authors of many events are more likely.
type authorSample struct {
	most    int
	seen    map[graspsync.PubKey]struct{}
	keys    []graspsync.PubKey // in any order
	leftOut int
}

func (w *authorSample) add(ev graspsync.Event) {
	a := ev.PubKey
	if _, known := w.seen[a]; known {
		return
	}
	if len(w.keys) < w.most {
		w.keys = append(w.keys, a)
		lazy.Put(&w.seen, a, struct{}{})
		return
	}
	w.leftOut++
	if i := rand.IntN(w.most + w.leftOut); i < w.most {
		delete(w.seen, w.keys[i])
		w.keys[i] = a
		lazy.Put(&w.seen, a, struct{}{})
	}
}

func (w *authorSample) sorted() []graspsync.PubKey {
	return slices.SortedFunc(maps.Keys(w.seen), graspsync.PubKey.Compare)
}
