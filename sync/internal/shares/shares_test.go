package shares_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/shares"
)

// naive is the same in few words.
type naive struct {
	kept  []*member // oldest first
	spare int64     // of owner 0
}

type member struct {
	shares.Member[int]
	owner  shares.Owner
	weight int64
}

func (n *naive) weight(o shares.Owner) (sum int64) {
	for _, m := range n.kept {
		if m.owner == o {
			sum += m.weight
		}
	}
	return sum
}

func (n *naive) counted(o shares.Owner) int64 {
	if o == 0 {
		return n.weight(o) - n.spare
	}
	return n.weight(o)
}

func (n *naive) next() *member {
	if len(n.kept) == 0 {
		return nil
	}
	return slices.MinFunc(n.kept, func(a, b *member) int { return cmp.Compare(n.counted(b.owner), n.counted(a.owner)) })
}

func TestSharesAgainstNaiveTwin(t *testing.T) {
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var s shares.Shares[int]
		twin := &naive{spare: 20}
		s.Spare(0, 20)
		for i := range 300 {
			if n := len(twin.kept); n > 0 && rnd.IntN(3) == 0 {
				m := twin.kept[rnd.IntN(n)]
				twin.kept = slices.DeleteFunc(twin.kept, func(o *member) bool { return o == m })
				require.Equal(t, twin.weight(m.owner) == 0, s.Remove(&m.Member))
				require.False(t, s.Remove(&m.Member), "it is gone")
			} else {
				m := &member{owner: shares.Owner(rnd.IntN(5)), weight: 1 + rnd.Int64N(4)}
				m.Item = i
				twin.kept = append(twin.kept, m)
				s.Add(&m.Member, m.owner, m.weight)
			}
			next, want := s.Next(), twin.next()
			if want == nil {
				require.Nil(t, next)
				continue
			}
			require.Same(t, &want.Member, next, "seed %d", seed)
			for o := range shares.Owner(5) {
				require.Equal(t, twin.weight(o), s.Weight(o))
			}
		}
	}
}
