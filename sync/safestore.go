package sync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
)

// safeStore calls the Store with a timeout. A panic becomes an error.
type safeStore struct {
	of        Store
	timeout   time.Duration // of a call
	telemetry *telemetry
	stays     bool // the Store cannot remove events; owned by the writer
}

func (s *safeStore) has(ctx context.Context, ids []graspsync.EventID) (has []bool, err error) {
	defer s.telemetry.recovered(&err, "store")
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	has, err = s.of.Has(ctx, ids)
	if err == nil && len(has) != len(ids) {
		err = fmt.Errorf("%d answers on %d ids", len(has), len(ids))
	}
	return has, err
}

var errOutcomes = errors.New("the Store gave another number of outcomes than events")

func (s *safeStore) save(ctx context.Context, events []graspsync.Incoming, most time.Duration) (outcomes []graspsync.Outcome, err error) {
	defer s.telemetry.recovered(&err, "store save")
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	outcomes, err = s.of.Save(ctx, events)
	if err == nil && len(outcomes) != len(events) {
		err = errOutcomes
	}
	return outcomes, err
}

// removes reports whether the Store may be able to remove events.
func (s *safeStore) removes() bool { return !s.stays }

func (s *safeStore) remove(ctx context.Context, ev graspsync.Event) (err error) {
	defer s.telemetry.recovered(&err, "store remove")
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err = s.of.Remove(ctx, ev)
	s.stays = s.stays || errors.Is(err, ErrCannotRemove)
	return err
}
