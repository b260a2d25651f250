package ration_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/ration"
)

func event(n int) graspsync.EventID {
	id, _ := graspsync.ParseEventID(fmt.Sprintf("%064x", n+1))
	return id
}

func key(n int) graspsync.PubKey {
	k, _ := graspsync.ParsePubKey(fmt.Sprintf("%064x", n+1))
	return k
}

var limits = ration.Limits{PerAuthor: 100, All: 5_000, Bytes: 1 << 30}

func over(pulls []ration.Pull, l ration.Limits) map[graspsync.EventID]bool {
	out := make(map[graspsync.EventID]bool)
	for _, id := range ration.Over(pulls, l) {
		out[id] = true
	}
	return out
}

// An author who has had a hundred was refused for ever: now his oldest give way, closed
// ones before.
func TestOwnOldestGiveWay(t *testing.T) {
	var pulls []ration.Pull
	for i := range 103 {
		pulls = append(pulls, ration.Pull{ID: event(i), Author: key(1), At: nostr.Timestamp(i), Standing: ration.Open})
	}
	require.Equal(t, []graspsync.EventID{event(0), event(1), event(2)}, ration.Over(pulls, limits))
	pulls[50].Standing, pulls[102].Standing, pulls[0].Standing = ration.Closed, ration.Closed, ration.Regarded
	require.Equal(t, []graspsync.EventID{event(1), event(50), event(102)}, ration.Over(pulls, limits))
	require.Empty(t, ration.Over(pulls[:100], limits))
}

// 5,000 of a stranger's keep no newcomer out, and those who have few lose nothing.
func TestWhoHasMostGivesWay(t *testing.T) {
	for _, keys := range []int{50, 500, 2_499} {
		var pulls []ration.Pull
		for i := range 5_000 {
			pulls = append(pulls, ration.Pull{ID: event(i), Author: key(i % keys), At: nostr.Timestamp(1_000 + i), Standing: ration.Open})
		}
		for i := range 100 { // one each, older than all of his
			pulls = append(pulls, ration.Pull{ID: event(10_000 + i), Author: key(10_000 + i), At: nostr.Timestamp(i), Standing: ration.Open})
		}
		gone := over(pulls, limits)
		require.Len(t, gone, len(pulls)-5_000+5_000/16)
		for i := range 100 {
			require.False(t, gone[event(10_000+i)], "%d keys", keys)
		}
	}
}

// With a key for each nobody can be told from a stranger but by who has a say: what they
// have regarded stays, closed ones go first, then the oldest. Newcomers have room.
func TestAKeyForEach(t *testing.T) {
	var pulls []ration.Pull
	for i := range 5_001 {
		pulls = append(pulls, ration.Pull{ID: event(i), Author: key(i), At: nostr.Timestamp(i), Standing: ration.Open})
	}
	for i := range 100 {
		pulls[i].Standing = ration.Regarded
	}
	pulls[4_000].Standing = ration.Closed
	gone := over(pulls, limits)
	require.Len(t, gone, 1+5_000/16)
	for i := range 100 {
		require.False(t, gone[event(i)])
	}
	require.True(t, gone[event(4_000)])
	require.True(t, gone[event(100)])
	require.False(t, gone[event(5_000)])
	for i := range pulls {
		pulls[i].Standing = ration.Regarded
	}
	pulls[5_000].Standing = ration.Open
	require.True(t, over(pulls, limits)[event(5_000)], "but not what somebody with a say wants")
}

// Of data it is the largest of whoever has the most that goes, and nothing that takes up
// nothing.
func TestBytesAreShared(t *testing.T) {
	const mib = 1 << 20
	pulls := []ration.Pull{
		{ID: event(0), Author: key(0), At: 1, Standing: ration.Closed},
		{ID: event(1), Author: key(0), At: 2, Standing: ration.Open, Bytes: mib},
		{ID: event(2), Author: key(1), At: 3, Standing: ration.Open, Bytes: 600 * mib},
		{ID: event(3), Author: key(1), At: 4, Standing: ration.Open, Bytes: 300 * mib},
		{ID: event(4), Author: key(2), At: 5, Standing: ration.Open, Bytes: 500 * mib},
		{ID: event(5), Author: key(3), At: 6, Standing: ration.Regarded, Bytes: 700 * mib},
	}
	require.Equal(t, []graspsync.EventID{event(2), event(4)}, ration.Over(pulls, limits))
	pulls[5].Bytes = 1<<30 + 1 // nothing can help that
	require.Equal(t, []graspsync.EventID{event(2), event(5)}, ration.Over(pulls, limits))
}

// Whatever there is, the limits hold, no more goes than must, and the order is nothing.
func TestLimitsHold(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	l := ration.Limits{PerAuthor: 5, All: 32, Bytes: 1000}
	for range 2_000 {
		var pulls []ration.Pull
		for i := range r.IntN(60) {
			pulls = append(pulls, ration.Pull{
				ID: event(i), Author: key(r.IntN(20)), At: nostr.Timestamp(r.IntN(20)), Standing: ration.Standing(r.IntN(3)), Bytes: max(0, r.Int64N(120)-40),
			})
		}
		gone := ration.Over(pulls, l)
		shuffled := slices.Clone(pulls)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		require.Equal(t, gone, ration.Over(shuffled, l))
		left := slices.DeleteFunc(pulls, func(p ration.Pull) bool { return slices.Contains(gone, p.ID) })
		require.LessOrEqual(t, len(left), l.All)
		by, bytes := make(map[graspsync.PubKey]int), int64(0)
		for _, p := range left {
			by[p.Author]++
			bytes += p.Bytes
			require.LessOrEqual(t, by[p.Author], l.PerAuthor)
		}
		require.LessOrEqual(t, bytes, l.Bytes)
		require.Empty(t, ration.Over(left, l))
	}
}
