package sync_test

import (
	"testing"

	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/storetest"
)

// The Store of the example passes the suite.
func TestMapStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) relaysync.Store { return newMapStore(nip34.Identity{}) })
}
