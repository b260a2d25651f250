package state_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/graspsync/graspsync/state"
)

// Records survive a restart.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "records")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	for range 2 { // each round is a process
		store, err := state.Open(dir, state.Config{})
		if err != nil {
			fmt.Println(err)
			return
		}
		value, err := store.Get(ctx, "example/started")
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			fmt.Println(err)
		}
		fmt.Printf("%q\n", value)
		if err := store.Put(ctx, state.Record{Key: "example/started", Value: []byte("before")}); err != nil {
			fmt.Println(err)
		}
		if err := store.Close(); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// ""
	// "before"
}
