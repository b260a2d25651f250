//go:build lmdb

package nostrlib_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/eventstore/lmdb"
	"fiatjaf.com/nostr/eventstore/mmm"
	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
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

// A second Store over one lmdb is refused, and the error names the process that has it.
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

func newMmm(t *testing.T) eventstore.Store {
	t.Helper()
	quiet := zerolog.New(io.Discard)
	m := &mmm.MultiMmapManager{Dir: t.TempDir(), Logger: &quiet}
	require.NoError(t, m.Init())
	t.Cleanup(m.Close)
	db, err := m.EnsureLayer("all")
	require.NoError(t, err)
	return db
}

func TestSuiteMmm(t *testing.T) {
	storetest.Run(t, func(t *testing.T) relaysync.Store { return newStore(t, newMmm(t), nostrlib.Config{}) })
}

// mmm failed to save what is too large for it, so that anybody could have its Store called broken.
func TestTooLargeForMmm(t *testing.T) {
	s := newStore(t, newMmm(t), nostrlib.Config{})
	half := strings.Repeat("x", 33_000)
	for _, e := range []nostr.Event{event(1, start, half+half[:32_500]), event(1, start, half, nostr.Tag{"t", half})} {
		o, err := s.Add(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, graspsync.Refused, o.Result, o.Err)
	}
	o, err := s.Add(t.Context(), event(1, start, half+half[:32_394])) // 65,535 bytes in all
	require.NoError(t, err)
	require.Equal(t, graspsync.Stored, o.Result, o.Err)
}

// mmm writes into the place of what was removed, while somebody reads it: the process ended with SIGBUS, or what was
// read was no event.
func TestMmmIsReadWhileItIsWritten(t *testing.T) {
	s := newStore(t, newMmm(t), nostrlib.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			var notes []nostr.Event
			for i := 0; ctx.Err() == nil; i++ {
				content := fmt.Sprint(w, strings.Repeat(string(rune('a'+i%26)), 50+i*7919%40_000))
				e := event(30617, nostr.Timestamp(start+i), content, nostr.Tag{"d", fmt.Sprint(w, i%5)})
				if i%2 == 0 {
					e = event(1, nostr.Timestamp(start+i), content, nostr.Tag{"t", "x"})
					notes = append(notes, e)
				}
				o, err := s.Add(context.Background(), e)
				assert.NoError(t, err)
				assert.Equal(t, graspsync.Stored, o.Result, o.Err)
				if len(notes) > 5 {
					old, err := nostrlib.FromEvent(notes[0])
					assert.NoError(t, err)
					assert.NoError(t, s.Remove(context.Background(), old))
					notes = notes[1:]
				}
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				for e, err := range s.Events(context.Background(), gonostr.Filter{}) {
					assert.NoError(t, err)
					assert.Equal(t, e.Event.ID, e.GetID())
				}
			}
		})
	}
	wg.Wait()
}
