package upkeep

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/graspsync/graspsync/internal/goldentest"
)

// In drawn worlds of owners who push, and whose repositories take their time, each turn is what
// it was before.
func TestWorlds(t *testing.T) {
	sums := goldentest.NewSums(t, "testdata/worlds.sum")
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 43))
		q := New(12)
		owners := 1 + rng.IntN(6)
		var lines []string
		for range 400 {
			r := ref(byte(rng.IntN(owners)), fmt.Sprint(rng.IntN(12/owners)))
			switch n := rng.IntN(10); {
			case n < 3:
				lines = append(lines, fmt.Sprint("adds ", r, q.Add(r)))
			case n < 5:
				lines = append(lines, fmt.Sprint("pushed ", r, q.Pushed(r, 1+rng.IntN(3))))
			case n < 8:
				next, ok := q.Next()
				lines = append(lines, fmt.Sprint("next ", next, ok))
				if ok && rng.IntN(4) > 0 {
					q.Spent(next.Owner, time.Duration(rng.IntN(4))*700*time.Millisecond)
				}
			case n == 8:
				q.Spent(r.Owner, time.Duration(rng.IntN(3))*time.Second)
			default:
				q.Forgive()
			}
			lines = append(lines, fmt.Sprint(q.Len(), len(q.owners), len(q.pushes), len(q.turns)))
		}
		sums.Equal(t, fmt.Sprintf("world%02d", seed), lines)
	}
}
