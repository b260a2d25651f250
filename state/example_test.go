package state_test

import (
	"context"
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
		for record, err := range store.Each(ctx, "example/") {
			fmt.Printf("%s %q %v\n", record.Key, record.Value, err)
		}
		if err := store.Put(ctx, state.Record{Key: "example/started", Value: []byte("before")}); err != nil {
			fmt.Println(err)
		}
		if err := store.Close(); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// example/started "before" <nil>
}
