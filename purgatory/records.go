package purgatory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/state"
)

// readEach calls f for all records with a prefix, with the rest of their keys.
func readEach(ctx context.Context, store state.Store, prefix string, f func(key string, value []byte) error) error {
	for r, err := range store.Each(ctx, prefix) {
		if err == nil {
			err = f(strings.TrimPrefix(r.Key, prefix), r.Value)
		}
		if err != nil {
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
