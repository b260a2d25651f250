package plan

import (
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// Root events of layer 4 and thread events do not make the plan search all root events for the
// oldest one again, which would take quadratic time for a repository with many.
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
	oldest := r.oldest
	require.Equal(t, rootID(4), p.repos.infos[oldest].of.ID)
	p.Step(start, Changes{
		Roots:       []RootChange{{ID: rootID(20), CreatedAt: 1, Repos: []graspsync.RepoRef{ref}}},
		Descendants: []DescendantChange{{Of: filters.Descendant{ID: rootID(30)}, Repos: []graspsync.RepoRef{ref}}},
	})
	require.Len(t, r.threads[threadTier], 7)
	require.Equal(t, oldest, r.oldest)
}
