package ration_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/purgatory/internal/ration"
)

// Of drawn pull requests, many of which are alike in some way, the same go as before.
func TestWorlds(t *testing.T) {
	sums := goldentest.NewSums(t, "testdata/worlds.sum")
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 41))
		var lines []string
		for range 60 {
			l := ration.Limits{PerAuthor: 1 + rng.IntN(8), All: 1 + rng.IntN(48), Bytes: int64(rng.IntN(200))}
			authors, times := 1+rng.IntN(8), 1+rng.IntN(9)
			var pulls []ration.Pull
			for n := range rng.IntN(60) {
				pulls = append(pulls, ration.Pull{
					ID: event(n), Author: key(rng.IntN(authors)), At: nostr.Timestamp(rng.IntN(times)),
					Standing: ration.Standing(rng.IntN(3)), Bytes: int64(rng.IntN(3) * rng.IntN(12) * rng.IntN(12)),
				})
			}
			var over []string
			for _, id := range ration.Over(pulls, l) {
				over = append(over, id.String()[62:])
			}
			lines = append(lines, fmt.Sprintf("%d of %v: %v", len(pulls), l, over))
		}
		sums.Equal(t, fmt.Sprintf("world%02d", seed), lines)
	}
}
