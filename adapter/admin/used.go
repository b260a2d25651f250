package admin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/graspsync/graspsync/state"
)

// usedKey is the record of when the last request that was obeyed is dated, in Unix seconds.
const usedKey = "admin/used"

// used remembers over restarts how late requests are dated that were obeyed: as a signer's clock may be
// ahead of ours, later than that may be. A nil one remembers nothing. All methods may be called
// concurrently.
type used struct {
	store state.Store // read-only

	mu sync.Mutex // held while it is read or kept: nothing is obeyed before it is
	// guarded by mu
	read          bool
	initial, last int64 // when we were started, and now
}

// before returns how late requests were dated that were obeyed before we were started.
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

// load reads the record with mu held.
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

// note keeps when a request is dated that is about to be obeyed.
func (u *used) note(ctx context.Context, at int64) error {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.load(ctx); err != nil { // another handler may have the same records
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
