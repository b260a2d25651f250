package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// Untracked root events are requested in order, repository by repository. Each pass requests a
// limited number and continues after the previous one, even if root events were added or removed.
func TestRotationOverRoots(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := defaults()
		c.MaxRoots, c.RotateRoots = 1, 1+rng.IntN(40)
		p := newPlan(c)
		u := relayURL(t, "a")
		var repos []graspsync.RepoRef
		for i := range 1 + rng.IntN(4) {
			repos = append(repos, graspsync.RepoRef{Owner: pubKey(rng.IntN(3)), Identifier: fmt.Sprint(i)})
			p.Step(start, Changes{Repos: []RepoChange{{Ref: repos[i], Relays: []graspsync.RelayURL{u}, Level: LevelFull}}})
		}
		r := p.relays.byURL[u]
		var last rootAt
		for n := range 30 {
			for range rng.IntN(8) {
				ref := repos[rng.IntN(len(repos))]
				p.Step(start, Changes{Roots: []RootChange{{ID: rootID(rng.IntN(1000)), Repos: []graspsync.RepoRef{ref}}}})
			}
			if rng.IntN(3) == 0 {
				p.Step(start, Changes{Roots: []RootChange{{ID: rootID(rng.IntN(1000))}}})
			}
			var all []rootAt
			for ref, repo := range p.repos.byRef {
				for id := range repo.untracked {
					all = append(all, rootAt{ref, id})
				}
			}
			slices.SortFunc(all, func(a, b rootAt) int {
				if a.repo != b.repo {
					return a.repo.Compare(b.repo)
				}
				return a.id.Compare(b.id)
			})
			first := slices.IndexFunc(all, func(at rootAt) bool {
				if at.repo != last.repo {
					return at.repo.Compare(last.repo) > 0
				}
				return at.id.Compare(last.id) > 0
			})
			first = max(0, first) // from the start, if none follows
			want := slices.Concat(all[first:], all[:first])
			want = want[:min(len(want), c.RotateRoots)]
			p.rotation.queue(r, c.RotateRoots)
			var got []graspsync.EventID
			for _, chunk := range r.rotation.chunks {
				require.LessOrEqual(t, len(chunk.ids), filters.MaxValues)
				got = append(got, chunk.ids...)
			}
			require.Len(t, got, len(want), "seed %d, pass %d", seed, n)
			for i, at := range want {
				require.Equal(t, at.id, got[i], "seed %d, pass %d", seed, n)
				last = at
			}
			r.rotation.chunks = nil
		}
	}
}

// The chance of a new author has a minimum, regardless of the number of authors left out.
func TestChanceOfAnAuthorIsBounded(t *testing.T) {
	c := defaults()
	c.MaxAuthors = 5
	p := newPlan(c)
	for n := range 200 {
		p.Step(start, Authors{pubKey(n)})
		require.Len(t, p.deletions.authors, min(n+1, 5))
		require.Len(t, p.deletions.authorSet, len(p.deletions.authors))
		for _, a := range p.deletions.authors {
			require.Contains(t, p.deletions.authorSet, a)
		}
		require.Equal(t, min(max(0, n-4), 4*5), p.deletions.leftOut)
	}
}
