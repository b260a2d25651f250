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

func pull(id, author, at int) ration.Pull {
	return ration.Pull{ID: event(id), Author: key(author), At: nostr.Timestamp(at)}
}

func asks(p ration.Pull) ration.Pull {
	p.New = true
	return p
}

var limits = ration.Limits{PerAuthor: 100, All: 5_000, Bytes: 1 << 30}

func TestAuthorLosesTheOldest(t *testing.T) {
	var pulls []ration.Pull
	for i := range 100 {
		pulls = append(pulls, pull(i, 1, i))
	}
	require.Empty(t, ration.Over(pulls, limits))
	pulls = append(pulls, asks(pull(100, 1, 100)), asks(pull(101, 1, 101)))
	require.Equal(t, []graspsync.EventID{event(0), event(1)}, ration.Over(pulls, limits))
	pulls[50].Merged = true
	require.Equal(t, []graspsync.EventID{event(0), event(50)}, ration.Over(pulls, limits))
	pulls[101].At = -1
	require.Equal(t, []graspsync.EventID{event(50), event(101)}, ration.Over(pulls, limits), "the oldest is a new one")
}

// Free keys with a ref each take no ref from each other, and what is merged gives way to all.
func TestNoOnlyRefIsLost(t *testing.T) {
	var pulls []ration.Pull
	for i := range 5_000 {
		pulls = append(pulls, pull(i, i, i))
	}
	for i := range 5_000 {
		pulls = append(pulls, asks(pull(10_000+i, 10_000+i, i-3_000)))
	}
	gone := ration.Over(pulls, limits)
	require.Len(t, gone, 5_000)
	require.Equal(t, event(10_000), gone[0])
	pulls = pulls[:5_001]
	pulls[3].Merged = true
	require.Equal(t, []graspsync.EventID{event(3)}, ration.Over(pulls, limits))
	pulls[3].Merged, pulls[7].Author = false, key(9)
	require.Equal(t, []graspsync.EventID{event(7)}, ration.Over(pulls, limits), "the author has two")
	pulls[5_000].Author = key(9)
	require.Equal(t, []graspsync.EventID{event(10_000)}, ration.Over(pulls, limits), "which is the oldest of the author's three")
}

func TestBytesAreBounded(t *testing.T) {
	const mib = 1 << 20
	size := func(p ration.Pull, n int64) ration.Pull {
		p.Bytes = n * mib
		return p
	}
	pulls := []ration.Pull{
		pull(0, 0, 1), size(pull(1, 0, 2), 600), size(pull(2, 1, 3), 200), size(pull(3, 1, 4), 200),
	}
	over := func(more ...ration.Pull) []graspsync.EventID { return ration.Over(append(pulls, more...), limits) }
	require.Empty(t, over(asks(size(pull(4, 2, 5), 24))))
	require.Equal(t, []graspsync.EventID{event(2)}, over(asks(size(pull(4, 2, 5), 200))), "the oldest of who has most with bytes")
	require.Equal(t, []graspsync.EventID{event(4)}, over(asks(size(pull(4, 2, 5), 300))), "nobody loses a ref in vain")
	require.Equal(t, []graspsync.EventID{event(4)}, over(asks(size(pull(4, 2, 5), 1025))))
	require.Equal(t, []graspsync.EventID{event(1)}, over(asks(size(pull(4, 0, 5), 500))), "who asks makes room")
	pulls[1].Bytes = 2000 * mib
	require.Empty(t, over(asks(pull(4, 2, 5))), "which brings nothing")
}

func TestLimitsHold(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	l := ration.Limits{PerAuthor: 5, All: 32, Bytes: 1000}
	for range 2_000 {
		var pulls []ration.Pull
		for i := range 80 {
			p := asks(pull(i, r.IntN(20), r.IntN(20)))
			if p.Merged = r.IntN(9) == 0; !p.Merged {
				p.Bytes = max(0, r.Int64N(120)-40)
			}
			pulls = append(pulls, p)
			if i%20 != 19 {
				continue
			}
			gone := ration.Over(pulls, l)
			r.Shuffle(len(pulls), func(i, j int) { pulls[i], pulls[j] = pulls[j], pulls[i] })
			require.Equal(t, gone, ration.Over(pulls, l), "the order is nothing")
			by, bytes := make(map[graspsync.PubKey]int), int64(0)
			lost := make(map[graspsync.PubKey]int)
			for _, p := range pulls {
				if slices.Contains(gone, p.ID) {
					if !p.New && !p.Merged {
						lost[p.Author]++
					}
					continue
				}
				by[p.Author]++
				bytes += p.Bytes
			}
			for author := range lost {
				require.Positive(t, by[author])
			}
			pulls = slices.DeleteFunc(pulls, func(p ration.Pull) bool { return slices.Contains(gone, p.ID) })
			for i := range pulls {
				pulls[i].New = false
			}
			require.LessOrEqual(t, len(pulls), l.All)
			require.LessOrEqual(t, bytes, l.Bytes)
			for _, n := range by {
				require.LessOrEqual(t, n, l.PerAuthor)
			}
			require.Empty(t, ration.Over(pulls, l))
		}
	}
}
