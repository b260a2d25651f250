package admin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/graspsync/graspsync/state"
)

// usedKey is the record with the time of the last accepted request in Unix seconds.
const usedKey = "admin/used"

// used keeps the latest time of an accepted request across restarts. It may be in the future,
// because the clock of a signer may be ahead. A nil *used keeps nothing. It is safe for concurrent
// use.
type used struct {
	store state.Store // read-only

	mu sync.Mutex // held until the record is read or written
	// guarded by mu
	read          bool
	initial, last int64 // at the start, and now
}

// before returns the latest time of a request accepted before the start.
func (u *used) before(ctx context.Context) (int64, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.read {
		if err := u.load(ctx); err != nil {
			return 0, err
		}
		u.initial, u.read = u.last, true
	}
	return u.initial, nil
}

// load reads the record. The caller holds mu.
func (u *used) load(ctx context.Context) error {
	data, err := u.store.Get(ctx, usedKey)
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errKeeping, err)
	}
	at, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return fmt.Errorf("%w: record %q is unreadable", errKeeping, usedKey)
	}
	u.last = max(u.last, at)
	return nil
}

// note saves the time of a request before it is carried out.
func (u *used) note(ctx context.Context, at int64) error {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.load(ctx); err != nil { // another handler may share the record
		return err
	}
	if at <= u.last {
		return nil
	}
	if err := u.store.Put(ctx, state.Record{Key: usedKey, Value: strconv.AppendInt(nil, at, 10)}); err != nil {
		return fmt.Errorf("%w: %w", errKeeping, err)
	}
	u.last = at
	return nil
}
