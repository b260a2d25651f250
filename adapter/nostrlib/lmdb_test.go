//go:build lmdb

package nostrlib_test

import (
	"io"
	"testing"

	"fiatjaf.com/nostr/eventstore/lmdb"
	"fiatjaf.com/nostr/eventstore/mmm"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/nostrlib"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/storetest"
)

// These two take a C compiler, and a while: go test -tags lmdb -run 'Lmdb|Mmm' .

func TestSuiteLmdb(t *testing.T) {
	storetest.Run(t, func(t *testing.T) relaysync.Store {
		db := &lmdb.LMDBBackend{Path: t.TempDir(), MapSize: 1 << 30}
		require.NoError(t, db.Init())
		t.Cleanup(db.Close)
		return newStore(t, db, nostrlib.Config{})
	})
}

func TestSuiteMmm(t *testing.T) {
	storetest.Run(t, func(t *testing.T) relaysync.Store {
		quiet := zerolog.New(io.Discard)
		m := &mmm.MultiMmapManager{Dir: t.TempDir(), Logger: &quiet}
		require.NoError(t, m.Init())
		t.Cleanup(m.Close)
		db, err := m.EnsureLayer("all")
		require.NoError(t, err)
		return newStore(t, db, nostrlib.Config{})
	})
}
