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

func (n *naive) has(o shares.Owner) bool {
	return slices.ContainsFunc(n.kept, func(m *member) bool { return m.owner == o })
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
		gone := new(member)
		for i := range 300 {
			switch n := len(twin.kept); {
			case n > 0 && rnd.IntN(3) == 0:
				m := twin.kept[rnd.IntN(n)]
				twin.kept = slices.DeleteFunc(twin.kept, func(o *member) bool { return o == m })
				require.Equal(t, !twin.has(m.owner), s.Remove(&m.Member))
				require.False(t, s.Remove(&m.Member), "it is gone")
				gone = m
			case n > 0 && rnd.IntN(3) == 0:
				m := twin.kept[rnd.IntN(n)]
				m.weight = rnd.Int64N(10)
				s.Weigh(&m.Member, m.weight)
				s.Weigh(&gone.Member, 1_000)
			default:
				m := gone // which may come back
				if m.weight == 0 || rnd.IntN(2) == 0 {
					m = new(member)
				}
				gone = new(member)
				m.owner, m.weight, m.Item = shares.Owner(rnd.IntN(5)), rnd.Int64N(5), i
				twin.kept = append(twin.kept, m)
				s.Add(&m.Member, m.owner, m.weight)
			}
			owners := 0
			for o := range shares.Owner(6) {
				if twin.has(o) {
					owners++
				}
				require.Equal(t, twin.weight(o), s.Weight(o))
			}
			require.Equal(t, owners, s.Owners())
			next, want := s.Next(), twin.next()
			if want == nil {
				require.Nil(t, next)
				continue
			}
			require.Same(t, &want.Member, next, "seed %d", seed)
		}
	}
}
