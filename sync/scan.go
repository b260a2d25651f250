package sync

import (
	"context"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// scan compares the index with the Store.
func (m *SyncManager) scan(ctx context.Context) {
	first, waited := !m.isReady(), make(map[pending.Key]struct{})
	// Events that begin to wait later find their dependencies in the index.
	recalls := first && !m.ingest.rejected.Idle()
	authors := make(map[graspsync.PubKey]struct{}) // the plan requests their deletions
	var news plan.Authors
	announcements, listed := 0, ""
	s := m.index.Begin()
	missed, err := m.reader.scan(ctx, func(ev graspsync.Event) {
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
	err := func() (err error) {
		defer m.telemetry.recovered(&err, "store")
		return m.reader.descend(ctx, of, m.self.descends)
	}()
	m.inbox.put(threadSearchResult{of, err})
}

// listedRelay returns a relay that an announcement lists, or "".
func listedRelay(ev graspsync.Event) string {
	a, err := nip34.ParseAnnouncement(ev)
	if err != nil || len(a.Relays) == 0 {
		return ""
	}
	return a.Relays[0].String()
}
