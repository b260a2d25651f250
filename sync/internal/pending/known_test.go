package pending_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/pending"
)

// A Known always contains the newest half of its maximum.
func TestKnownAgainstNaiveTwin(t *testing.T) {
	for most, half := range map[int]int{0: 1, 1: 1, 2: 1, 3: 1, 20: 10, 21: 10} {
		k := pending.NewKnown(most)
		var young, old []int // the generations
		rnd := rand.New(rand.NewPCG(1, uint64(most)))
		for step := range 500 {
			n := rnd.IntN(40)
			switch rnd.IntN(4) {
			case 0:
				k.Forget(id(n))
				drop := func(of []int) []int { return slices.DeleteFunc(of, func(o int) bool { return o == n }) }
				young, old = drop(young), drop(old)
			default:
				k.Add(id(n))
				if len(young) >= half {
					old, young = young, nil
				}
				if !slices.Contains(young, n) {
					young = append(young, n)
				}
			}
			for n := range 40 {
				if k.Has(id(n)) != slices.Contains(append(slices.Clone(young), old...), n) {
					require.Fail(t, "remembered", "most %d, step %d", most, step)
				}
			}
		}
	}
}
