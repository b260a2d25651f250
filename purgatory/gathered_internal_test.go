package purgatory

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
)

// keptOne is one gathering of a plain list of them.
type keptOne struct {
	*gathering
	ref graspsync.RepoRef
}

// plainExcess is excess in so many words, on a plain list.
func plainExcess(all []keptOne, day int64) (over []keptOne) {
	one := func(keptOne) int64 { return 1 }
	bytes := func(k keptOne) int64 { return k.bytes }
	sum := func(of func(keptOne) int64, which func(keptOne) bool) (n int64) {
		for _, k := range all {
			if which(k) {
				n += of(k)
			}
		}
		return n
	}
	every := func(keptOne) bool { return true }
	owned := func(o graspsync.PubKey) func(keptOne) bool {
		return func(k keptOne) bool { return k.ref.Owner == o }
	}
	owners := func() (out []graspsync.PubKey) { // who has something that can go
		for _, k := range all {
			if !k.taken && !slices.Contains(out, k.ref.Owner) {
				out = append(out, k.ref.Owner)
			}
		}
		return out
	}
	drop := func(o graspsync.PubKey, measure func(keptOne) int64) {
		var free []keptOne
		for _, k := range all {
			if k.ref.Owner == o && !k.taken {
				free = append(free, k)
			}
		}
		same := func(k keptOne) int64 {
			return sum(measure, func(x keptOne) bool { return x.ref.Owner == o && x.whose == k.whose })
		}
		state := func(k keptOne) int {
			if k.whose == (whose{}) {
				return 1
			}
			return 0
		}
		first := slices.MinFunc(free, func(a, b keptOne) int {
			return cmp.Or(cmp.Compare(state(a), state(b)), cmp.Compare(same(b), same(a)), cmp.Compare(measure(b), measure(a)),
				cmp.Compare(a.bytes, b.bytes), a.ref.Compare(b.ref))
		})
		over = append(over, first)
		all = slices.DeleteFunc(slices.Clone(all), func(k keptOne) bool { return k == first })
	}
	most := func(measure func(keptOne) int64) bool {
		who := owners()
		if len(who) == 0 {
			return false
		}
		drop(slices.MaxFunc(who, func(a, b graspsync.PubKey) int {
			return cmp.Or(cmp.Compare(sum(measure, owned(a)), sum(measure, owned(b))), a.Compare(b))
		}), measure)
		return true
	}
	for _, o := range owners() {
		for slices.Contains(owners(), o) && sum(bytes, owned(o)) > day/2 {
			drop(o, bytes)
		}
	}
	for sum(bytes, every) > 2*day && most(bytes) {
	}
	for sum(bytes, every) <= 2*day && len(all) > 200 && most(one) {
	}
	return over
}

// What is gathered and kept is bounded for one owner, for all of them, and in number: whatever
// is kept, the same goes as by the rule in so many words, and nothing that somebody uses.
func TestExcessIsWhatTheRuleSays(t *testing.T) {
	racetest.Amounts(t)
	rng := rand.New(rand.NewPCG(1, 2))
	reached := make(map[string]int)
	for n := range 60 {
		cfg := &Config{Limits: Limits{MaxRepoDay: 20 + rng.Int64N(200)}}
		f := &fetches{cfg: cfg, gatherings: newGatherings(cfg, newReport(cfg))}
		var all []keptOne
		many := n%3 == 0 // more than may be in number
		owners, repos := 1+rng.IntN(8), 1+rng.IntN(3)
		if many {
			repos = 12
		}
		for o := range owners {
			for r := range repos {
				ref := graspsync.RepoRef{Owner: graspsync.PubKey{byte(o)}, Identifier: fmt.Sprint(r)}
				pl := newPlace()
				f.gatherings.places[ref] = pl
				for i := range rng.IntN(6) {
					g := &gathering{taken: rng.IntN(5) == 0, bytes: int64(6*rng.IntN(5) + i)} // no two in one place alike
					if many {
						g.bytes = int64(i % 2 * (rng.IntN(2)))
					}
					switch rng.IntN(3) {
					case 0:
						g.whose = whose{author: graspsync.PubKey{byte(i)}}
					case 1:
						g.whose = whose{id: nip34.ObjectID{}, author: graspsync.PubKey{9}}
					}
					pl.all = append(pl.all, g)
					all = append(all, keptOne{g, ref})
				}
				if many { // of which none is like another
					seen := make(map[whose]bool)
					pl.all = slices.DeleteFunc(pl.all, func(g *gathering) bool {
						again := seen[g.whose]
						seen[g.whose] = true
						return again
					})
					for i := range 3 {
						pl.all = append(pl.all, &gathering{whose: whose{author: graspsync.PubKey{100 + byte(i)}}, taken: rng.IntN(9) == 0})
					}
					all = slices.DeleteFunc(all, func(k keptOne) bool { return k.ref == ref })
					for _, g := range pl.all {
						all = append(all, keptOne{g, ref})
					}
				}
				pl.users = rng.IntN(2)
			}
		}
		want := plainExcess(all, f.cfg.Limits.MaxRepoDay)
		before := len(all)
		got := f.gatherings.excess()
		goes := make(map[*gathering]bool)
		for _, k := range want {
			goes[k.gathering] = true
			if many {
				reached["many"]++
			} else {
				reached["bytes"]++
			}
		}
		require.Len(t, got, len(want), n)
		for _, g := range got {
			require.True(t, goes[g] && !g.taken, n)
		}
		left := 0
		for ref, pl := range f.gatherings.places {
			left += len(pl.all)
			dropped := slices.ContainsFunc(want, func(k keptOne) bool { return k.ref == ref })
			require.False(t, dropped && len(pl.all) == 0 && pl.users == 0, "nobody has the place any more")
		}
		require.Equal(t, before-len(want), left, n)
		for _, k := range all {
			require.True(t, f.gatherings.places[k.ref] != nil || goes[k.gathering], "what somebody has stays")
		}
	}
	require.Greater(t, reached["many"], 100)
	require.Greater(t, reached["bytes"], 100)
}
