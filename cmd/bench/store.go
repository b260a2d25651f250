package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
)

// store is a Store that reports when it contains the expected number of events.
type store struct {
	relaysync.Store
	left atomic.Int64
	full chan time.Time // one slot
}

func newStore(s relaysync.Store, missing int) *store {
	counting := &store{Store: s, full: make(chan time.Time, 1)}
	counting.left.Store(int64(missing))
	return counting
}

// Save implements [relaysync.Store].
func (s *store) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	out, err := s.Store.Save(ctx, events)
	for _, o := range out {
		if o.Result == graspsync.Stored && s.left.Add(-1) == 0 {
			s.full <- time.Now()
		}
	}
	return out, err
}

// saveBatch is the batch size of a SyncManager.
const saveBatch = 256

// fill saves the events of a data set in batches, except every but-th event; 0 saves all. It
// returns the number of events left out.
func fill(ctx context.Context, s relaysync.Store, d *dataset, but int) (left int, err error) {
	var batch []graspsync.Incoming
	i := 0
	for ev, err := range d.events() {
		if err != nil {
			return left, err
		}
		if i++; but > 0 && i%but == 0 {
			left++
			continue
		}
		if batch = append(batch, graspsync.Incoming{Event: ev}); len(batch) == saveBatch {
			if err := saveAll(ctx, s, batch); err != nil {
				return left, err
			}
			batch = batch[:0]
		}
	}
	return left, saveAll(ctx, s, batch)
}

func saveAll(ctx context.Context, s relaysync.Store, batch []graspsync.Incoming) error {
	outcomes, err := s.Save(ctx, batch)
	for _, o := range outcomes {
		if o.Result != graspsync.Stored {
			return fmt.Errorf("an event is %s: %w", o.Result, o.Err)
		}
	}
	return err
}

// check returns an error unless the store contains exactly the unchanged events of a data set.
func check(ctx context.Context, s relaysync.Store, d *dataset) error {
	n := 0
	for ev, err := range s.Events(ctx, nostr.Filter{}) {
		switch {
		case err != nil:
			return err
		case !d.has(ev.ID):
			return fmt.Errorf("foreign event %s", ev)
		case !ev.CheckID():
			return fmt.Errorf("changed event %s", ev)
		}
		n++
	}
	if n != len(d.ids) {
		return fmt.Errorf("%w: %d of %d", errIncomplete, n, len(d.ids))
	}
	return nil
}
