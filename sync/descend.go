package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// descend looks in the Store for what descends from repositories that are ours, one step
// after the other, and has take told of each event that may; of all if none is named. It asks
// for as much as is followed: what there was no room for leads nowhere.
func (x *index) descend(ctx context.Context, of map[graspsync.RepoRef]struct{}, take func(*nostr.Event)) error {
	var missed error
	ask := func(values []string, names ...string) error {
		for some := range slices.Chunk(values, tagsAtOnce) {
			for _, name := range names {
				for ev, err := range x.store.Events(ctx, nostr.Filter{Tags: nostr.TagMap{name: some}}) {
					if errors.Is(err, ErrIncomplete) {
						missed = err
						break
					}
					if err != nil {
						return fmt.Errorf("looking for descendants: %w", err)
					}
					if nodeOf(ev) != nil {
						take(ev)
					}
				}
			}
		}
		return nil
	}
	for depth := range uint8(maxDepth) {
		ids, addresses := x.atDepth(depth, of)
		if err := ask(texts(ids), "e", "E", "q"); err != nil {
			return err
		}
		if err := ask(addresses, "a", "A", "q"); err != nil {
			return err
		}
	}
	return missed
}

// atDepth returns what is so far from repositories or their root events, and ours: 0 for these
// themselves.
func (x *index) atDepth(depth uint8, of map[graspsync.RepoRef]struct{}) (ids []graspsync.EventID, addresses []string) {
	x.mu.RLock()
	t := x.tables
	x.mu.RUnlock()
	top := func(ref graspsync.RepoRef, r *indexRepo) {
		if r != nil && r.ann != nil {
			addresses = append(addresses, ref.String())
		}
	}
	root := func(id graspsync.EventID) {
		if _, _, is := t.top(refKey(id)); is {
			ids = append(ids, id)
		}
	}
	below := func(n *node) {
		if n.place.depth != depth {
			return
		}
		ids = append(ids, n.id)
		if n.key.Address != "" {
			addresses = append(addresses, n.key.Address)
		}
	}
	switch {
	case of == nil && depth == 0:
		each(x, t.repos, top)
		each(x, t.roots, func(id graspsync.EventID, _ indexRoot) { root(id) })
	case of == nil:
		each(x, t.descent.nodes, func(k refKey, n *node) {
			if k == n.keys()[0] {
				below(n)
			}
		})
	default:
		x.mu.RLock()
		defer x.mu.RUnlock()
		for ref := range of {
			r := t.repos[ref]
			if r == nil {
				continue
			}
			if depth == 0 {
				top(ref, r)
			}
			branches := []refKey{addressRef(ref.String())}
			for id := range r.roots {
				if depth == 0 {
					root(id)
				}
				branches = append(branches, refKey(id))
			}
			for _, k := range branches {
				if b := t.descent.branches[k]; b != nil && depth > 0 {
					for n := range b.nodes {
						below(n)
					}
				}
			}
		}
	}
	slices.SortFunc(ids, graspsync.EventID.Compare)
	slices.Sort(addresses)
	return slices.Compact(ids), slices.Compact(addresses)
}

// descending is when the Store is asked next for what descends from what is ours. It belongs
// to the loop.
type descending struct {
	running  bool
	all      bool                           // of all repositories
	of       map[graspsync.RepoRef]struct{} // or of these
	failures int                            // in a row
	at       time.Time                      // not before
}

// descended says that the Store was asked for what descends from repositories; nil: all.
type descended struct {
	of  map[graspsync.RepoRef]struct{}
	err error
}

// descend starts to look for what descends from repositories that have become ours, or of all
// after a scan, unless that is under way. It is of less concern than anything else, and nobody
// waits for it.
func (l *loop) descend(ctx context.Context, now time.Time) {
	d := &l.descending
	if d.running || !d.all && len(d.of) == 0 || now.Before(d.at) {
		return
	}
	of := d.of
	if d.all {
		of = nil
	}
	d.running, d.all, d.of = true, false, nil
	m := l.m
	m.wg.Go(func() {
		err := m.descend(ctx, of)
		m.post(descended{of, err})
	})
}

func (m *SyncManager) descend(ctx context.Context, of map[graspsync.RepoRef]struct{}) (err error) {
	defer m.counters.recovered(&err, "store")
	return m.index.descend(ctx, of, m.feed.descends)
}

func (l *loop) onDescended(ctx context.Context, msg descended) {
	d := &l.descending
	d.running = false
	switch {
	case msg.err == nil:
		d.failures, d.at = 0, time.Time{}
	case errors.Is(msg.err, ErrIncomplete): // what came counts, and a scan says that there is more
		d.failures, d.at = 0, time.Time{}
	case ctx.Err() == nil:
		l.m.cfg.Logger.Warn("reading the store failed", keyErr, msg.err)
		d.failures++
		d.at = time.Now().Add(backoff.Doubled(rescanFirst, rescanMost, d.failures))
		d.all = d.all || msg.of == nil
		for ref := range msg.of {
			lazy.Put(&d.of, ref, struct{}{})
		}
	}
	l.descend(ctx, time.Now())
}
