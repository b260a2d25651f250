package statetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/state/statetest"
)

// The test of a store of one's own, here that in a folder: each part of the suite opens an empty one.
func ExampleRun() {
	TestStore := func(t *testing.T) {
		statetest.Run(t, func(t *testing.T) state.Store {
			store, err := state.Open(t.TempDir(), state.Config{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			return store
		})
	}
	_ = TestStore // in a file of tests: func TestStore(t *testing.T) { ... }
}
