package sync_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/storetest"
)

// The Store of the example passes the suite.
func TestMapStore(t *testing.T) {
	identity, err := nip34.ParseIdentity(us)
	require.NoError(t, err)
	storetest.RunAs(t, identity, func(*testing.T) relaysync.Store { return newMapStore(identity) })
}
