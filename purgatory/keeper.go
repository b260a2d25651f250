package purgatory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/state"
)

// keeper keeps things in a [state.Store]. Each key has one writer at a time, so that
// a conflict is somebody else's doing.
type keeper struct{ store state.Store }

// maxConflicts is how often something is written again that somebody else wrote.
const maxConflicts = 5

// put makes value what is kept under key, durably.
func (k keeper) put(ctx context.Context, key string, value []byte) error {
	for range maxConflicts {
		_, version, err := k.store.Get(ctx, key)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return fmt.Errorf("keeping %s: %w", key, err)
		}
		if _, err = k.store.CompareAndSwap(ctx, key, version, value); err == nil {
			return nil
		}
		if !errors.Is(err, state.ErrConflict) {
			return fmt.Errorf("keeping %s: %w", key, err)
		}
	}
	return fmt.Errorf("keeping %s: %w", key, state.ErrConflict)
}

// drop has nothing kept under key, durably.
func (k keeper) drop(ctx context.Context, key string) error {
	for range maxConflicts {
		_, version, err := k.store.Get(ctx, key)
		if err == nil {
			err = k.store.Delete(ctx, key, version)
		}
		switch {
		case err == nil, errors.Is(err, state.ErrNotFound):
			return nil
		case !errors.Is(err, state.ErrConflict):
			return fmt.Errorf("dropping %s: %w", key, err)
		}
	}
	return fmt.Errorf("dropping %s: %w", key, state.ErrConflict)
}

// each calls f for everything under a prefix.
func (k keeper) each(ctx context.Context, prefix string, f func(key string, value []byte) error) error {
	for key, err := range k.store.Keys(ctx, prefix) {
		if err != nil {
			return fmt.Errorf("reading what was kept: %w", err)
		}
		value, _, err := k.store.Get(ctx, key)
		if errors.Is(err, state.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", key, err)
		}
		if err := f(strings.TrimPrefix(key, prefix), value); err != nil {
			return err
		}
	}
	return nil
}

// hashed is a key for a repository whose name a stranger chose.
func hashed(ref graspsync.RepoRef) string { return hashedText(ref.String()) }

func hashedText(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}
