package nostrlib_test

import (
	"path/filepath"
	"testing"

	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/eventstore/boltdb"
	"fiatjaf.com/nostr/eventstore/slicestore"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/nostrlib"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/storetest"
)

func newSlice(t testing.TB) *slicestore.SliceStore {
	t.Helper()
	db := &slicestore.SliceStore{}
	require.NoError(t, db.Init())
	return db
}

func newBolt(t testing.TB) *boltdb.BoltBackend {
	t.Helper()
	db := &boltdb.BoltBackend{Path: filepath.Join(t.TempDir(), "events")}
	require.NoError(t, db.Init())
	db.DB.NoSync = true // what a test keeps needs not survive the machine
	t.Cleanup(db.Close)
	return db
}

func newStore(t testing.TB, db eventstore.Store, cfg nostrlib.Config) *nostrlib.Store {
	t.Helper()
	s, err := nostrlib.NewStore(db, cfg)
	require.NoError(t, err)
	return s
}

func TestSuiteSlicestore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) relaysync.Store { return newStore(t, newSlice(t), nostrlib.Config{}) })
}

func TestSuiteBoltdb(t *testing.T) {
	storetest.Run(t, func(t *testing.T) relaysync.Store { return newStore(t, newBolt(t), nostrlib.Config{}) })
}
