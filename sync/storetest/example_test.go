package storetest_test

import (
	"testing"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/storetest"
)

// Test a Store, here memstore. Each check opens an empty Store. Close it with t.Cleanup, and put
// files in t.TempDir(). The examples of package sync include a Store in a map.
func ExampleRun() {
	TestStore := func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) relaysync.Store {
			return memstore.New()
		})
	}
	_ = TestStore // in a test file: func TestStore(t *testing.T) { ... }
}
