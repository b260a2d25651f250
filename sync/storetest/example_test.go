package storetest_test

import (
	"testing"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/storetest"
)

// The test of a Store of one's own, here memstore's: each check opens an empty one. What a Store
// has to close it gives to t.Cleanup, and what it keeps on the disk is in t.TempDir(). A Store in
// a map is among the examples of package sync.
func ExampleRun() {
	TestStore := func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) relaysync.Store {
			return memstore.New()
		})
	}
	_ = TestStore // in a file of tests: func TestStore(t *testing.T) { ... }
}
