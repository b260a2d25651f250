package sync

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/index"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

const (
	// Waits before the Store is read again after a failure. They double. Before the first success
	// the maximum is lower, because nothing is followed.
	firstRescanWait    = 10 * time.Second
	maxFirstRescanWait = time.Minute
	maxRescanWait      = time.Hour

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
			l.storeErr = graspsync.Printable(msg.err.Error())
			l.m.cfg.Logger.Warn("reading the store failed", keyErr, msg.err)
		}
		most := maxRescanWait
		if !l.started {
			most = maxFirstRescanWait
		}
		l.scanFailures++
		l.rescanBefore(backoff.Doubled(firstRescanWait, most, l.scanFailures))
		return
	}
	l.scanFailures = 0
	l.storeErr = ""
	least, most := l.m.cfg.passBetween()
	l.rescanBefore(least + rand.N(most-least+1))
	if l.started {
		l.m.self.notifyAllChanged() // items that a limit left out may have room now
	} else {
		l.started = true
		l.followBootstrap(ctx)
	}
	l.window = nil
	l.closeWindow(ctx)
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
			m.ingest.wakeForStored(ev)
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
	s.End()
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
		m.ingest.resumePending(waited)
	}
	m.ingest.wakeFor(nil)
	ctx, end := context.WithCancel(ctx)
	defer end()
	if earlier := m.endSearch.Swap(&end); earlier != nil {
		(*earlier)()
	}
	for n := 1; n <= replyTries; n++ {
		if err := m.findReplies(ctx); err == nil || errors.Is(err, ErrIncomplete) || ctx.Err() != nil {
			return
		}
		m.cfg.Logger.Warn("reading the store failed", keyErr, err)
		select {
		case <-time.After(backoff.Doubled(firstRescanWait, maxRescanWait, n)):
		case <-ctx.Done():
		}
	}
}

// replyTries is the number of searches for replies after a scan. The last wait is 43 minutes.
const replyTries = 10

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

// findReplies searches the Store for replies in hosted repositories (layer 4), one level of
// references after another.
func (m *SyncManager) findReplies(ctx context.Context) (err error) {
	defer m.telemetry.recovered(&err, whoseStore)
	var missed error
	seen := make(map[graspsync.EventID]struct{})
	ids, addresses := m.index.Tops()
	for len(ids)+len(addresses) > 0 {
		var nextIDs, nextAddresses []string
		apply := func(ev graspsync.Event) {
			is := false
			m.self.apply(func() (c index.Change) {
				c, is = m.index.Reply(ev)
				return c
			})
			if _, known := seen[ev.ID]; known || !is {
				return
			}
			seen[ev.ID] = struct{}{}
			nextIDs = append(nextIDs, ev.ID.String())
			if a, ok := ev.Address(); ok {
				nextAddresses = append(nextAddresses, a.String())
			}
		}
		for _, f := range append(tagFilters(ids, "e", "E", "q"), tagFilters(addresses, "a", "A", "q")...) {
			for ev, err := range m.store.Events(ctx, f) {
				if errors.Is(err, ErrIncomplete) {
					missed = err
					break
				}
				if err != nil {
					return fmt.Errorf("looking for replies: %w", err)
				}
				apply(ev)
			}
		}
		ids, addresses = nextIDs, nextAddresses
	}
	return missed
}
