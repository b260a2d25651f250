package nip34

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// Whatever comes and goes, those are known whom the family of what is left knows.
func TestKnownIsWhatTheFamilyKnows(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		known, here := NewAuthorIndex(), make(map[graspsync.RepoRef]*Announcement)
		for range 200 {
			ref := graspsync.RepoRef{Owner: graspsync.PubKey{byte(rng.IntN(6))}, Identifier: fmt.Sprint("r", rng.IntN(3))}
			known.Remove(here[ref])
			delete(here, ref)
			if rng.IntN(3) > 0 {
				a := &Announcement{Ref: ref}
				for range rng.IntN(4) {
					a.Maintainers = append(a.Maintainers, graspsync.PubKey{byte(rng.IntN(12))})
				}
				here[ref] = a
				known.Add(a)
			}
			for name := range 4 {
				identifier := fmt.Sprint("r", name)
				var all []*Announcement
				for _, a := range here {
					all = append(all, a)
				}
				f := Membership{}.Family(identifier, all)
				for who := range 12 {
					key := graspsync.PubKey{byte(who)}
					require.Equal(t, f.Knows(key), known.Has(identifier, key), "seed %d", seed)
				}
			}
		}
		for _, a := range here {
			known.Remove(a)
		}
		require.Empty(t, known.times)
	}
}
