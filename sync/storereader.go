package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/index"
)

// storeReader reads the events of the index, and their replies, from a [Store].
type storeReader struct {
	store     Store        // read-only
	index     *index.Index // read-only
	telemetry *telemetry   // read-only
}

// scan reads all events from the Store and calls show with each. Then it calls gone with each id of
// unseen that is not stored. missed is the error of a Store that may have more events.
func (r storeReader) scan(
	ctx context.Context, show func(graspsync.Event), unseen func() []graspsync.EventID, gone func(graspsync.EventID),
) (missed, err error) {
	defer r.telemetry.recovered(&err, whoseStore)
	for ev, err := range r.store.Events(ctx, nostr.Filter{Kinds: append(filters.Kinds(), graspsync.KindVanish)}) {
		if errors.Is(err, ErrIncomplete) {
			missed = err
			break
		}
		if err != nil {
			return nil, fmt.Errorf("scanning the store: %w", err)
		}
		show(ev)
	}
	for chunk := range slices.Chunk(unseen(), saveBatch) {
		has, err := r.store.Has(ctx, chunk)
		if err == nil && len(has) != len(chunk) {
			err = fmt.Errorf("%d answers on %d ids", len(has), len(chunk))
		}
		if err != nil {
			return nil, fmt.Errorf("reading the store: %w", err)
		}
		for i, id := range chunk {
			if !has[i] {
				gone(id)
			}
		}
	}
	return missed, nil
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
					if index.IsReply(ev) {
						take(ev)
					}
				}
			}
		}
		return nil
	}
	for depth := range uint8(index.MaxDepth) {
		ids, addresses := r.index.AtDepth(depth, of)
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
// last ten minutes, because relays may still receive them.
func (r storeReader) lookUp(ctx context.Context, ids []graspsync.EventID) (out [][]graspsync.RepoRef, err error) {
	defer r.telemetry.recovered(&err, whoseStore)
	for _, f := range filters.ByID(ids, saveBatch) {
		f.Limit = 0
		for ev, err := range r.store.Events(ctx, f) {
			if err != nil {
				return out, err
			}
			if refs := r.index.ReposOf(ev); len(refs) > 0 && time.Since(ev.CreatedAt.Time()) >= lackingAfter {
				out = append(out, refs)
			}
		}
	}
	return out, nil
}
