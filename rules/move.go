package rules

import (
	"context"
	"errors"
	"fmt"

	"github.com/graspsync/graspsync/state"
)

// Move takes what a [Book] keeps out of one store into another, and returns how many records that
// were: for who has kept it among what can be lost. Of what both have, that of the other one stays. It
// is called before [Open], by nobody else at the same time, and may be called at each start: what it
// was killed at the next call ends.
func Move(ctx context.Context, from, to state.Store) (moved int, err error) {
	for r, err := range from.Each(ctx, prefix) {
		if err == nil {
			err = move(ctx, from, to, r)
		}
		if err != nil {
			return moved, fmt.Errorf("moving the rules: %q: %w", r.Key, err)
		}
		moved++
	}
	return moved, nil
}

// move moves one record. It is in one of the stores at any moment.
func move(ctx context.Context, from, to state.Store, r state.Record) error {
	_, err := to.Get(ctx, r.Key)
	if errors.Is(err, state.ErrNotFound) {
		err = to.Put(ctx, r)
	}
	if err != nil {
		return err
	}
	return from.Delete(ctx, r.Key)
}
