package dense_test

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/dense"
)

func idOf(n uint64) (id graspsync.EventID) {
	binary.BigEndian.PutUint64(id[:], n)
	return id
}

// A Finder agrees with a map.
func TestFinderTwin(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var ids []graspsync.EventID
		var free []uint32
		f := dense.NewFinder(func(n uint32) *graspsync.EventID { return &ids[n] })
		twin := make(map[graspsync.EventID]uint32)
		add := uint64(1 + rng.IntN(4)) // of 5
		for range 5000 {
			id := idOf(rng.Uint64N(1500))
			got, ok := f.Find(id)
			want, is := twin[id]
			require.Equal(t, is, ok)
			require.Equal(t, want, got)
			switch {
			case ok:
				if rng.Uint64N(5) >= add {
					f.Remove(got)
					delete(twin, id)
					free = append(free, got)
				}
			case rng.Uint64N(5) < add:
				n := uint32(len(ids))
				if len(free) > 0 {
					n, free = free[0], free[1:]
					ids[n] = id
				} else {
					ids = append(ids, id)
				}
				f.Add(n)
				twin[id] = n
			}
			require.Equal(t, len(twin), f.Len())
		}
		for n := range uint64(1500) {
			got, ok := f.Find(idOf(n))
			want, is := twin[idOf(n)]
			require.Equal(t, is, ok)
			require.Equal(t, want, got)
		}
	}
}

// A Map agrees with a map.
func TestMapTwin(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var m dense.Map[uint32, uint8]
		twin := make(map[uint32]uint8)
		keys, step := 1+rng.IntN(300), uint32(1)<<rng.IntN(20)
		for range 4000 {
			k, v := uint32(rng.IntN(keys))*step, uint8(rng.IntN(4))
			if rng.IntN(500) == 0 {
				m.Clear()
				clear(twin)
			}
			m.Set(k, v)
			if v == 0 {
				delete(twin, k)
			} else {
				twin[k] = v
			}
			k = uint32(rng.IntN(keys)) * step
			require.Equal(t, twin[k], m.Get(k))
			require.Equal(t, len(twin), m.Len())
		}
		require.Equal(t, twin, maps.Collect(m.All()))
		for k := range twin {
			m.Set(k, 0)
		}
		require.Empty(t, maps.Collect(m.All()))
	}
}
