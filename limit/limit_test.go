package limit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func host(name string) limit.Stranger { return limit.Stranger{ID: name} }

// network returns an address of the network 192.0.2.0/24.
func network(i int) limit.Stranger {
	return limit.Client(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
}

func TestClient(t *testing.T) {
	for addr, want := range map[string]limit.Stranger{
		"192.0.2.7":              {ID: "192.0.2.7", Group: "192.0.2.0/24"},
		"::ffff:192.0.2.7":       {ID: "192.0.2.7", Group: "192.0.2.0/24"},
		"2001:db8:1:2:3:4:5:6":   {ID: "2001:db8:1:2::/64", Group: "2001:db8:1::/48"},
		"2001:db8:1:2:ff::1%eth": {ID: "2001:db8:1:2::/64", Group: "2001:db8:1::/48"},
	} {
		assert.Equal(t, want, limit.Client(netip.MustParseAddr(addr)), addr)
	}
	assert.Zero(t, limit.Client(netip.Addr{}))
}

func keys(table *limit.Table[string, int]) (all []string) {
	for k := range table.All() {
		all = append(all, k)
	}
	return all
}

func TestTableEvictsTheOldestOfTheLargest(t *testing.T) {
	table := limit.NewTable[string, int](4, 0)
	for i, k := range []string{"a1", "b1", "a2", "a3"} {
		_, ok := table.Put(k, host(k[:1]), 0, i)
		require.True(t, ok, "free room is usable by one owner")
	}
	evicted, ok := table.Put("c1", host("c"), 0, 9)
	require.True(t, ok)
	assert.Equal(t, []limit.Entry[string, int]{{Key: "a1", Value: 0}}, evicted)
	table.Touch("a2")
	evicted, ok = table.Put("a4", host("a"), 0, 9)
	require.True(t, ok)
	assert.Equal(t, "a3", evicted[0].Key, "an owner that has most makes its own room, the entry first that was not used for longest")
	evicted, ok = table.Put("d1", host("d"), 0, 9)
	require.True(t, ok)
	assert.Equal(t, "a2", evicted[0].Key)
	evicted, ok = table.Put("e1", host("e"), 0, 9)
	assert.False(t, ok, "every owner has one entry, and new owners cost nothing")
	assert.Empty(t, evicted)
	assert.Equal(t, []string{"b1", "c1", "a4", "d1"}, keys(table))
	assert.EqualValues(t, 4, table.Evicted())
	evicted, ok = table.Put("b1", host("b"), 0, 7)
	require.True(t, ok, "an entry is replaced in its own place")
	assert.Empty(t, evicted)
}

func TestTableBoundsBytes(t *testing.T) {
	table := limit.NewTable[string, int](100, 1000)
	_, ok := table.Put("large", host("a"), 1001, 0)
	assert.False(t, ok, "larger than the table")
	table.Put("a1", host("a"), 600, 0)
	table.Put("b1", host("b"), 300, 0)
	evicted, ok := table.Put("c1", host("c"), 300, 0)
	require.True(t, ok)
	assert.Equal(t, "a1", evicted[0].Key, "one large entry is more than a small one")
	assert.EqualValues(t, 600, table.Bytes())
	require.True(t, table.Delete("b1"))
	require.False(t, table.Delete("b1"))
	assert.EqualValues(t, 300, table.Bytes())
}

// 250 addresses of one network have four parts together, beside two other owners.
func TestTableCountsANetworkAsOne(t *testing.T) {
	table := limit.NewTable[string, int](60, 0)
	for i := range 250 {
		table.Put(fmt.Sprint("net", i), network(i), 0, 0)
	}
	for i := range 30 {
		_, ok := table.Put(fmt.Sprint("x", i), host("x"), 0, 0)
		require.True(t, ok || i >= 10)
		_, ok = table.Put(fmt.Sprint("y", i), host("y"), 0, 0)
		require.True(t, ok || i >= 10)
	}
	count := map[byte]int{}
	for k := range table.All() {
		count[k[0]]++
	}
	assert.Equal(t, map[byte]int{'n': 40, 'x': 10, 'y': 10}, count)
}

// A naive table that scans all entries evicts the same entries.
func TestTableEqualsTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const most = 20
	table := limit.NewTable[int, string](most, 0)
	var twin []struct {
		key   int
		owner string
	}
	for range 20_000 {
		key, owner := r.IntN(200), fmt.Sprint(r.IntN(12)*r.IntN(3))
		for i, e := range twin {
			if e.key == key {
				twin = append(twin[:i:i], twin[i+1:]...)
				break
			}
		}
		twin = append(twin, struct {
			key   int
			owner string
		}{key, owner})
		if len(twin) > most {
			count := map[string]int{}
			for _, e := range twin {
				count[e.owner]++
			}
			largest := owner
			for o, n := range count {
				if n > count[largest] {
					largest = o
				}
			}
			if count[largest] > count[owner] { // among equal owners, follow the table
				evicted, ok := table.Put(key, host(owner), 0, owner)
				require.True(t, ok)
				require.Equal(t, count[largest], count[evicted[0].Value])
				largest = evicted[0].Value
			} else {
				table.Put(key, host(owner), 0, owner)
			}
			for i, e := range twin {
				if e.owner == largest {
					twin = append(twin[:i:i], twin[i+1:]...)
					break
				}
			}
		} else {
			table.Put(key, host(owner), 0, owner)
		}
		var want, got []int
		for _, e := range twin {
			want = append(want, e.key)
		}
		for k := range table.All() {
			got = append(got, k)
		}
		require.Equal(t, want, got)
	}
}

func TestSlotsKeepToParts(t *testing.T) {
	slots := limit.NewSlots(10, 2)
	first := slots.TryAcquire(host("a"), 2)
	require.NotNil(t, first)
	assert.Nil(t, slots.TryAcquire(host("a"), 1), "a part is a bound also while others use nothing")
	_, err := slots.Acquire(t.Context(), host("a"), 3)
	require.ErrorIs(t, err, limit.ErrTooLarge)
	first.Release()
	first.Release()
	require.NotNil(t, slots.TryAcquire(host("a"), 2))
	for i := range 4 {
		require.NotNil(t, slots.TryAcquire(network(i), 2))
	}
	used, waiting := slots.Stats()
	assert.EqualValues(t, 10, used)
	assert.Zero(t, waiting)
	slots = limit.NewSlots(10, 2)
	for i := range 5 {
		assert.Equal(t, i < 4, slots.TryAcquire(network(i), 2) != nil, "a network has four parts")
	}
	slots = limit.NewSlots(10, 2)
	require.NotNil(t, slots.TryAcquire(limit.Stranger{}, 10), "a caller of unknown origin is bounded by the total only")
}

// One stranger with a hundred callers delays another stranger by one turn.
func TestSlotsServeStrangersInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := limit.NewSlots(1, 1)
		held, err := slots.Acquire(t.Context(), host("first"), 1)
		require.NoError(t, err)
		var order []string
		call := func(name string) {
			slot, err := slots.Acquire(t.Context(), host(name), 1)
			require.NoError(t, err)
			order = append(order, name)
			slot.Release()
		}
		for range 3 {
			go call("many")
			synctest.Wait()
		}
		go call("few")
		synctest.Wait()
		assert.True(t, held.HasWaiter())
		held.Release()
		synctest.Wait()
		assert.Equal(t, []string{"many", "few", "many", "many"}, order)
		assert.False(t, held.HasWaiter())
	})
}

// Small requests do not overtake a large request forever.
func TestSlotsReserveForALargeCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := limit.NewSlots(4, 4)
		small := slots.TryAcquire(host("a"), 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error)
		go func() {
			_, err := slots.Acquire(ctx, host("b"), 4)
			done <- err
		}()
		synctest.Wait()
		assert.Nil(t, slots.TryAcquire(host("c"), 1), "the free units are reserved")
		assert.True(t, small.HasWaiter())
		gone := errors.New("client is gone")
		cancel(gone)
		require.ErrorIs(t, <-done, gone)
		last := slots.TryAcquire(host("c"), 3)
		require.NotNil(t, last)
		last.Release()
		small.Release()
		used, waiting := slots.Stats()
		assert.Zero(t, used)
		assert.Zero(t, waiting)
	})
}

func TestSlotsFuzzNoUnitIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := limit.NewSlots(7, 3)
		for i := range 300 {
			go func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(100))*time.Millisecond)
				defer cancel()
				slot, err := slots.Acquire(ctx, network(i%9), 1+r.Int64N(3))
				if err == nil {
					time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
					slot.Release()
				}
			}()
		}
		time.Sleep(time.Minute)
		used, waiting := slots.Stats()
		assert.Zero(t, used)
		assert.Zero(t, waiting)
		assert.NotNil(t, slots.TryAcquire(limit.Stranger{}, 7))
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limit.NewRate(1, 2, 3)
		assert.True(t, r.Allow(host("a"), 2))
		assert.False(t, r.Allow(host("a"), 1))
		assert.True(t, r.Allow(host("b"), 2), "others have their own")
		time.Sleep(time.Second)
		assert.True(t, r.Allow(host("a"), 1))
		time.Sleep(time.Second)
		assert.True(t, r.Allow(host("a"), 1))
		assert.True(t, r.Allow(host("b"), 2))
		assert.True(t, r.Allow(host("c"), 1))
		assert.False(t, r.Allow(host("d"), 1), "there is no room for one more stranger")
		time.Sleep(time.Minute)
		assert.True(t, r.Allow(host("d"), 1), "buckets that are full make room")
		assert.True(t, r.Allow(limit.Stranger{}, 1000))

		r = limit.NewRate(1, 2, 100)
		for i := range 5 {
			assert.Equal(t, i < 4, r.Allow(network(i), 2), "a network has four parts")
		}
		time.Sleep(2 * time.Second)
		assert.True(t, r.Allow(network(3), 2), "what the network refused was not taken from the address")
	})
}

// Queued callers are served in turn, without a goroutine for each.
func TestSlotsQueue(t *testing.T) {
	s := limit.NewSlots(2, 1)
	var got []string
	slots := make(map[string]*limit.Slot)
	for _, who := range []string{"a", "a", "b", "c"} {
		s.Queue(limit.Stranger{ID: who}, 1, func(slot *limit.Slot) {
			got = append(got, who)
			slots[who] = slot
		})
	}
	s.Queue(limit.Stranger{ID: "d"}, 3, nil)
	require.Equal(t, []string{"a", "b"}, got)
	slots["a"].Release()
	require.Equal(t, []string{"a", "b", "a"}, got, "it came before c")
	slots["b"].Release()
	require.Equal(t, []string{"a", "b", "a", "c"}, got)
	_, waiting := s.Stats()
	require.Zero(t, waiting)
}
