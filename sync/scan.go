package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/index"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

const (
	// Waits before the Store is read again after a failure. They double. Before the first success
	// the maximum is lower, because nothing is followed.
	rescanFirst     = 10 * time.Second
	rescanMostFirst = time.Minute
	rescanMost      = time.Hour

	// repairAfter is the time after a panic of the index or the Policy when the Store is read again.
	// It is long, because the event that caused the panic may cause it again.
	repairAfter = time.Hour
)

// scan reads the Store at the start and daily, because the relay may remove events by moderation or
// expiry without a report.
func (l *loop) scan(ctx context.Context) {
	l.rescanAt = time.Time{}
	if l.scanning {
		return
	}
	l.scanning = true
	l.m.wg.Go(func() { l.m.scan(ctx) })
}

func (msg scanResult) handle(ctx context.Context, l *loop) {
	l.scanning = false
	if msg.err != nil {
		if ctx.Err() == nil {
			l.status.storeErr = graspsync.Printable(msg.err.Error())
			l.m.cfg.Logger.Warn("reading the store failed", keyErr, msg.err)
		}
		most := rescanMost
		if !l.started {
			most = rescanMostFirst
		}
		l.scanFailures++
		l.rescanBefore(backoff.Doubled(rescanFirst, most, l.scanFailures))
		return
	}
	l.scanFailures = 0
	l.status.unread, l.status.storeErr = false, ""
	least, most := l.m.cfg.Times.passBetween()
	l.rescanBefore(least + rand.N(most-least+1))
	if !l.started {
		l.started = true
		l.followBootstrap(ctx)
	}
	l.window = nil
	l.closeWindow(ctx)
	l.searchLater(l.plan.Refs()...)
	l.searchReplies(ctx)
	if l.scanAgain {
		l.scanAgain = false
		l.scan(ctx)
	}
}

func (l *loop) rescanBefore(wait time.Duration) {
	if at := time.Now().Add(wait); l.rescanAt.IsZero() || at.Before(l.rescanAt) {
		l.rescanAt = at
	}
}

func (m *SyncManager) scan(ctx context.Context) {
	first, waited := !m.isReady(), make(map[pending.Key]struct{})
	// Events that begin to wait later find their dependencies in the index.
	recalls := first && !m.ingest.rejected.Idle()
	authors := make(map[graspsync.PubKey]struct{}) // the plan requests their deletions
	var news plan.Authors
	announcements, listed := 0, ""
	s := m.index.Begin()
	missed, err := m.scanStore(ctx, s, func(ev graspsync.Event) {
		if m.self.apply(func() index.Change { return s.Add(ev) }) && !first {
			m.ingest.fulfil(ev)
		}
		if reason, _ := m.cfg.blocks(ev); ev.Kind == graspsync.KindAnnouncement && reason == "" {
			announcements++
			if a, err := nip34.ParseAnnouncement(ev); listed == "" && err == nil && len(a.Relays) > 0 {
				listed = a.Relays[0].String()
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
	})
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

// scanStore calls show with each stored event, and removes the other known events from the index.
// missed is the error of a Store that may have more events.
func (m *SyncManager) scanStore(ctx context.Context, s index.Scan, show func(graspsync.Event)) (missed, err error) {
	defer m.telemetry.recovered(&err, whoseStore)
	for ev, err := range m.store.Events(ctx, nostr.Filter{Kinds: append(filters.Kinds(), graspsync.KindVanish)}) {
		if errors.Is(err, ErrIncomplete) {
			missed = err
			break
		}
		if err != nil {
			return nil, fmt.Errorf("scanning the store: %w", err)
		}
		show(ev)
	}
	for chunk := range slices.Chunk(s.Unseen(), saveBatch) {
		has, err := m.ingest.has(ctx, chunk)
		if err != nil {
			return nil, fmt.Errorf("reading the store: %w", err)
		}
		for i, id := range chunk {
			if !has[i] {
				m.self.apply(func() index.Change { return s.Missing(id) })
			}
		}
	}
	return missed, nil
}

// searchLater adds repositories in which stored replies are searched (layer 4).
func (l *loop) searchLater(refs ...graspsync.RepoRef) {
	for _, ref := range refs {
		lazy.Put(&l.toSearch, ref, struct{}{})
	}
}

// searchReplies starts the search for stored replies, one search at a time.
func (l *loop) searchReplies(ctx context.Context) {
	if l.searching || len(l.toSearch) == 0 || time.Now().Before(l.searchAt) {
		return
	}
	of := l.toSearch
	l.searching, l.toSearch = true, nil
	l.m.wg.Go(func() { l.m.inbox.put(searchResult{of, l.m.findReplies(ctx, of)}) })
}

func (msg searchResult) handle(ctx context.Context, l *loop) {
	l.searching = false
	// If the Store is incomplete, the found replies count, and a scan reports the error.
	if msg.err != nil && !errors.Is(msg.err, ErrIncomplete) && ctx.Err() == nil {
		l.m.cfg.Logger.Warn("reading the store failed", keyErr, msg.err)
		l.searchAt = time.Now().Add(rescanMostFirst)
		l.searchLater(slices.Collect(maps.Keys(msg.of))...)
	}
	l.searchReplies(ctx)
}

// findReplies searches the Store for replies in repositories.
func (m *SyncManager) findReplies(ctx context.Context, of map[graspsync.RepoRef]struct{}) (err error) {
	defer m.telemetry.recovered(&err, whoseStore)
	var missed error
	ask := func(values []string, names ...string) error {
		for some := range slices.Chunk(values, tagsAtOnce) {
			for _, name := range names {
				for ev, err := range m.store.Events(ctx, nostr.Filter{Tags: nostr.TagMap{name: some}}) {
					if errors.Is(err, ErrIncomplete) {
						missed = err
						break
					}
					if err != nil {
						return fmt.Errorf("looking for replies: %w", err)
					}
					m.self.apply(func() index.Change { return m.index.Reply(ev) })
				}
			}
		}
		return nil
	}
	for depth := range uint8(index.MaxDepth) {
		ids, addresses := m.index.AtDepth(depth, of)
		if err := ask(texts(ids), "e", "E", "q"); err != nil {
			return err
		}
		if err := ask(addresses, "a", "A", "q"); err != nil {
			return err
		}
	}
	return missed
}
