package sync

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// oddStore answers what it is told to.
type oddStore struct {
	Store
	has []bool
	err error
}

// Has implements [Store].
func (s *oddStore) Has(context.Context, []graspsync.EventID) ([]bool, error) { return s.has, s.err }

// bench is a pipeline whose steps a test takes one by one.
type bench struct {
	*ingest
	n uint64
}

func newBench(t *testing.T, store Store, inFlight int64) *bench {
	t.Helper()
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	cfg := Config{Limits: Limits{InFlight: inFlight}}.withDefaults()
	x := newWholeIndex(store, nil, nip34.Identity{})
	return &bench{ingest: newIngest(cfg, store, NewGRASPPolicy(identity), x, newFeed(x.index, 1, 1), newReport(Config{}), nil)}
}

func (b *bench) id() (id graspsync.EventID) {
	b.n++
	binary.BigEndian.PutUint64(id[:], b.n)
	return id
}

// The Store's error is told, and so is that it answers another question.
func TestHasOfAnOddStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &oddStore{}
		b := newBench(t, store, 0)
		ids := []graspsync.EventID{b.id(), b.id()}
		for _, err := range []error{nil, errors.New("disk on fire")} {
			for n := range 4 {
				store.has, store.err = make([]bool, n), err
				_, got := b.store.has(t.Context(), ids)
				switch {
				case err != nil:
					require.Equal(t, err, got)
				case n != len(ids):
					require.EqualError(t, got, fmt.Sprintf("%d answers on 2 ids", n))
				default:
					require.NoError(t, got)
				}
			}
		}
	})
}
