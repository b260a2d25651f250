package state_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/graspsync/graspsync/state"
)

// update changes a value by read, change, swap, and again where somebody else was
// faster.
func update(ctx context.Context, s state.Store, key string, change func([]byte) []byte) error {
	for {
		value, version, err := s.Get(ctx, key)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
		_, err = s.CompareAndSwap(ctx, key, version, change(value))
		if !errors.Is(err, state.ErrConflict) {
			return err
		}
	}
}

func Example() {
	ctx := context.Background()
	store := state.NewMemory()
	for _, word := range []string{"read", "change", "swap"} {
		err := update(ctx, store, "example/words", func(value []byte) []byte {
			return append(value, word+" "...)
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	value, _, err := store.Get(ctx, "example/words")
	fmt.Printf("%q %v\n", value, err)
	// Output: "read change swap " <nil>
}
