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
	var keys []string
	for key, err := range from.Keys(ctx, prefix) {
		if err != nil {
			return 0, fmt.Errorf("moving the rules: %w", err)
		}
		keys = append(keys, key)
	}
	for _, key := range keys {
		if err := move(ctx, from, to, key); err != nil {
			return moved, fmt.Errorf("moving the rules: %q: %w", key, err)
		}
		moved++
	}
	return moved, nil
}

// move takes one record over. It is in one of the stores at any moment.
func move(ctx context.Context, from, to state.Store, key string) error {
	value, version, err := from.Get(ctx, key)
	if err != nil {
		return err
	}
	if _, err := to.CompareAndSwap(ctx, key, state.Absent, value); err != nil && !errors.Is(err, state.ErrConflict) {
		return err
	}
	return from.Delete(ctx, key, version)
}
