// Package inuse waits for a repository that somebody else is at.
package inuse

import (
	"context"
	"errors"
	"time"

	"github.com/graspsync/graspsync/purgatory"
)

const (
	waitFor = 30 * time.Second // a repository is waited for
	every   = 100 * time.Millisecond
)

// Wait does something again until nobody uses the repository.
func Wait(ctx context.Context, do func() error) error {
	limit := time.Now().Add(waitFor)
	for {
		err := do()
		if !errors.Is(err, purgatory.ErrInUse) || time.Now().After(limit) {
			return err
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return err
		}
	}
}
