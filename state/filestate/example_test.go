package filestate_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/state/filestate"
)

// What was written is there after a restart.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "records")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	for range 2 { // each is a process
		store, err := filestate.Open(dir, filestate.Config{})
		if err != nil {
			fmt.Println(err)
			return
		}
		value, version, err := store.Get(ctx, "example/started")
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			fmt.Println(err)
		}
		fmt.Printf("%q\n", value)
		if _, err := store.CompareAndSwap(ctx, "example/started", version, []byte("before")); err != nil {
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
