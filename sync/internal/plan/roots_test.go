package plan

import (
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// A new root event of a full repository does not make the plan search all root events for the oldest
// ones again, which would take quadratic time for a repository with many.
func TestOldestRootIsKept(t *testing.T) {
	c := defaults()
	c.MaxRoots = 5
	p, ref := newPlan(c), repoRef("one")
	in := full(ref, []graspsync.RelayURL{relayURL(t, "a")})
	for i := range 10 {
		in.Roots = append(in.Roots, RootChange{ID: rootID(i), CreatedAt: nostr.Timestamp(1000 - i), Repos: []graspsync.RepoRef{ref}})
	}
	p.Step(start, Snapshot(in))
	r := p.repos.byRef[ref]
	require.Len(t, r.oldest, 5)
	require.Equal(t, rootID(4), p.repos.infos[r.oldest[0]].of.ID)
	p.Step(start, Changes{
		Roots:       []RootChange{{ID: rootID(20), CreatedAt: 1, Repos: []graspsync.RepoRef{ref}}},
		Descendants: []DescendantChange{{Of: filters.Descendant{ID: rootID(30)}, Repos: []graspsync.RepoRef{ref}}},
	})
	require.Len(t, r.threads[threadTier], 7)
	require.Len(t, r.oldest, 5)
	p.Step(start, Changes{Roots: []RootChange{{ID: rootID(40), CreatedAt: 2000, Repos: []graspsync.RepoRef{ref}}}})
	require.Len(t, r.oldest, 4)
	require.Equal(t, rootID(3), p.repos.infos[p.repos.oldestRoot(r)].of.ID)
	p.Step(start, Changes{Roots: []RootChange{{ID: rootID(0)}, {ID: rootID(3)}, {ID: rootID(50), CreatedAt: 997, Repos: []graspsync.RepoRef{ref}}}})
	require.Len(t, r.oldest, 3)
	require.Equal(t, rootID(50), p.repos.infos[r.oldest[0]].of.ID)
}
