//go:build lmdb

package nostrlib_test

import (
	"fmt"
	"os"
	"testing"

	"fiatjaf.com/nostr/eventstore/lmdb"
	"github.com/stretchr/testify/require"

	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/storetest"
)

// Needs a C compiler and some time: go test -tags lmdb -run Lmdb .

func TestSuiteLmdb(t *testing.T) {
	storetest.Run(t, func(t *testing.T) relaysync.Store {
		db := &lmdb.LMDBBackend{Path: t.TempDir(), MapSize: 1 << 30}
		require.NoError(t, db.Init())
		t.Cleanup(db.Close)
		return newStore(t, db, nostrlib.Config{})
	})
}

// A second Store on one lmdb is refused, and the error names the process that uses it.
func TestCaseC17_SecondStoreOverLmdb(t *testing.T) {
	path := t.TempDir()
	open := func() (*nostrlib.Store, error) {
		db := &lmdb.LMDBBackend{Path: path, MapSize: 1 << 30}
		require.NoError(t, db.Init())
		t.Cleanup(db.Close)
		return nostrlib.NewStore(db, nostrlib.Config{})
	}
	first, err := open()
	require.NoError(t, err)
	_, err = open()
	require.ErrorIs(t, err, eventstoreadapter.ErrInUse)
	require.ErrorContains(t, err, fmt.Sprintf("pid %d since ", os.Getpid()))
	require.NoError(t, first.Close())
	second, err := open()
	require.NoError(t, err)
	require.NoError(t, second.Close())
}
