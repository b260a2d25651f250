package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// storeReader reads the events of the index, and their replies, from a [Store].
type storeReader struct {
	store    Store       // read-only
	index    *eventIndex // read-only
	counters *counters   // read-only; may be nil
}

// scan reads all events from the Store, calls show with each, and returns a scan for replaceAll. It
// does not change the index and may take long. Only the last started scan can be used. missed is
// the error of a Store that may have more events.
func (r storeReader) scan(ctx context.Context, show func(graspsync.Event)) (_ *indexScan, missed, err error) {
	s := r.index.begin()
	defer func() {
		if err != nil {
			r.index.finish(s)
		}
	}()
	defer r.counters.recovered(&err, whoseStore)
	missed, err = r.read(ctx, s, show)
	if err != nil {
		return nil, nil, fmt.Errorf("scanning the store: %w", err)
	}
	if s.complete = missed == nil; missed != nil {
		err = r.retain(ctx, s)
	}
	if err == nil {
		err = r.retainNodes(ctx, s)
	}
	return s, missed, err
}

// read reads all events and adds them to a scan on another goroutine.
func (r storeReader) read(ctx context.Context, s *indexScan, show func(graspsync.Event)) (missed, err error) {
	found := make(chan []indexUpdate, 1)
	var keeper sync.WaitGroup
	keeper.Go(func() {
		for ops := range found {
			for _, op := range ops {
				r.index.keep(s, op)
			}
		}
	})
	defer keeper.Wait()
	defer close(found) // the Store may panic
	var ops []indexUpdate
	for ev, err := range r.store.Events(ctx, nostr.Filter{Kinds: append(filters.Kinds(), graspsync.KindVanish)}) {
		if errors.Is(err, ErrIncomplete) {
			missed = err
			break
		}
		if err != nil {
			return nil, err
		}
		if op := r.index.found(ev); op != nil {
			ops = append(ops, op)
		}
		if len(ops) == keptAtOnce {
			found <- ops
			ops = make([]indexUpdate, 0, keptAtOnce)
		}
		show(ev)
	}
	found <- ops
	return missed, nil
}

// keptAtOnce is the number of updates per message between the two goroutines.
const keptAtOnce = 256

// retain adds the known events that a scan did not find and that are still stored, because their
// absence from an incomplete scan proves nothing.
func (r storeReader) retain(ctx context.Context, s *indexScan) error {
	unseen := r.index.unseen(s)
	return r.stillHere(ctx, slices.Collect(maps.Keys(unseen)), func(id graspsync.EventID) { r.index.keep(s, unseen[id]) })
}

// retainNodes adds the known replies that are still stored. New replies are searched later.
func (r storeReader) retainNodes(ctx context.Context, s *indexScan) error {
	known := r.index.descendants()
	ids, byID := make([]graspsync.EventID, len(known)), make(map[graspsync.EventID]*threadReply, len(known))
	for i, a := range known {
		ids[i], byID[a.id] = a.id, a
	}
	return r.stillHere(ctx, ids, func(id graspsync.EventID) {
		r.index.keep(s, func(t *indexTables, c *indexChange) { t.addNode(byID[id], c) })
	})
}

// stillHere calls take with the ids of those events that are stored, in order.
func (r storeReader) stillHere(ctx context.Context, ids []graspsync.EventID, take func(graspsync.EventID)) error {
	for chunk := range slices.Chunk(ids, saveBatch) {
		has, err := r.store.Has(ctx, chunk)
		if err == nil && len(has) != len(chunk) {
			err = fmt.Errorf("%d answers on %d ids", len(has), len(chunk))
		}
		if err != nil {
			return fmt.Errorf("reading the store: %w", err)
		}
		for i, id := range chunk {
			if has[i] {
				take(id)
			}
		}
	}
	return nil
}

// descend searches the Store for replies in the repositories in of, nil for all, and calls take
// with each. It proceeds by depth. Replies to a reply without room are not searched.
func (r storeReader) descend(ctx context.Context, of map[graspsync.RepoRef]struct{}, take func(graspsync.Event)) error {
	var missed error
	ask := func(values []string, names ...string) error {
		for some := range slices.Chunk(values, tagsAtOnce) {
			for _, name := range names {
				for ev, err := range r.store.Events(ctx, nostr.Filter{Tags: nostr.TagMap{name: some}}) {
					if errors.Is(err, ErrIncomplete) {
						missed = err
						break
					}
					if err != nil {
						return fmt.Errorf("looking for descendants: %w", err)
					}
					if threadReplyOf(ev) != nil {
						take(ev)
					}
				}
			}
		}
		return nil
	}
	for depth := range uint8(maxDepth) {
		ids, addresses := r.index.atDepth(depth, of)
		if err := ask(texts(ids), "e", "E", "q"); err != nil {
			return err
		}
		if err := ask(addresses, "a", "A", "q"); err != nil {
			return err
		}
	}
	return missed
}

// lookUp returns the repositories of the events that belong to at least one. It omits events of the
// last ten minutes, because their time of arrival is unknown after a restart.
func (r storeReader) lookUp(ctx context.Context, ids []graspsync.EventID) (out [][]graspsync.RepoRef, err error) {
	defer r.counters.recovered(&err, whoseStore)
	for _, f := range filters.ByID(ids, saveBatch) {
		f.Limit = 0
		for ev, err := range r.store.Events(ctx, f) {
			if err != nil {
				return out, err
			}
			if refs := r.index.reposOf(ev); len(refs) > 0 && time.Since(ev.CreatedAt.Time()) >= lackingAfter {
				out = append(out, refs)
			}
		}
	}
	return out, nil
}
