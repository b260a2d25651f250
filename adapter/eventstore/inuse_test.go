package eventstoreadapter_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/stretchr/testify/require"

	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	"github.com/graspsync/graspsync/internal/backendcaps"
	"github.com/graspsync/graspsync/nip34"
)

// folderBackend is a backend whose folder several processes can open, like lmdb.
type folderBackend struct {
	eventstore.Store
	folder string
}

func (b folderBackend) Caps() backendcaps.Caps {
	return backendcaps.Caps{Page: 100, Folder: b.folder, Indexed: func(string, string) bool { return true }}
}

// Only one server can use an lmdb. Before, two servers corrupted each other's state.
func TestCaseC17_SecondServerOnFolder(t *testing.T) {
	identity, err := nip34.ParseIdentity("wss://grasp.example.com")
	require.NoError(t, err)
	folder := t.TempDir()
	start := func(folder string) (*khatruadapter.Sync, error) {
		return khatruadapter.New(khatru.NewRelay(), folderBackend{&slicestore.SliceStore{}, folder}, identity, khatruadapter.Config{})
	}
	first, err := start(folder)
	require.NoError(t, err)
	_, err = start(filepath.Join(folder, "..", filepath.Base(folder)) + "/")
	require.ErrorIs(t, err, eventstoreadapter.ErrInUse)
	require.ErrorContains(t, err, fmt.Sprintf("pid %d since ", os.Getpid()))
	require.ErrorContains(t, err, folder)
	other, err := start(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, first.Close())
	second, err := start(folder)
	require.NoError(t, err)
	require.NoError(t, second.Close())
	require.NoError(t, other.Close())
}

// If New fails for another reason, it does not keep the lock.
func TestCaseC17_FailedServer(t *testing.T) {
	identity, err := nip34.ParseIdentity("wss://grasp.example.com")
	require.NoError(t, err)
	db := folderBackend{&slicestore.SliceStore{}, t.TempDir()}
	var cfg khatruadapter.Config
	cfg.Sync.MaxRelaysPerRepo = -1
	_, err = khatruadapter.New(khatru.NewRelay(), db, identity, cfg)
	require.Error(t, err)
	require.NotErrorIs(t, err, eventstoreadapter.ErrInUse)
	s, err := khatruadapter.New(khatru.NewRelay(), db, identity, khatruadapter.Config{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}
