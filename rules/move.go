package rules

import (
	"context"
	"errors"
	"fmt"

	"github.com/graspsync/graspsync/state"
)

// Migrate moves the records of a [Book] to another store, and returns their number. It is for servers
// that kept rules beside data that may be lost. If both stores contain a key, the record in the
// target stays. Call Move before [Open], never concurrently. It may be called at each start, and
// completes an interrupted move.
func Migrate(ctx context.Context, from, to state.Store) (moved int, err error) {
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

// move moves one record. At each moment at least one store contains the record.
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
