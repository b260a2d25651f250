package statetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/state/statetest"
)

// Test a store, here the store in a folder. Each part of the suite opens an empty one.
func ExampleRun() {
	TestStore := func(t *testing.T) {
		statetest.Run(t, func(t *testing.T) state.Store {
			store, err := state.Open(t.TempDir(), state.Config{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			return store
		})
	}
	_ = TestStore // in a test file: func TestStore(t *testing.T) { ... }
}
