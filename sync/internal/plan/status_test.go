package plan

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// The status is ordered by URL after any changes.
func TestStatusOrder(t *testing.T) {
	p := newPlan(defaults())
	all := urls(t, 40)
	relaysOf := func() (out []string) {
		for _, s := range p.Status() {
			out = append(out, s.Relay.String())
		}
		return out
	}
	for i, u := range all {
		p.Step(start, full(repoRef(fmt.Sprint(i)), []graspsync.RelayURL{u, all[(i+7)%len(all)]}))
		require.True(t, slices.IsSorted(relaysOf()))
	}
	require.Len(t, relaysOf(), 40)
	for i := range all {
		p.Step(start, Changes{Repos: []RepoChange{{Ref: repoRef(fmt.Sprint(i))}}})
		require.True(t, slices.IsSorted(relaysOf()))
	}
	require.Empty(t, relaysOf())
	assert.Empty(t, p.relays.byURL)
}

// When an example repository no longer lists a relay, the first remaining repository replaces it.
func TestExamplesAreReplaced(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	for i := range 9 {
		p.Step(start, full(repoRef(fmt.Sprint(i)), []graspsync.RelayURL{u}))
	}
	names := func() (out []string) {
		for _, ref := range p.Status()[0].Examples {
			out = append(out, ref.Identifier)
		}
		return out
	}
	require.Equal(t, []string{"0", "1", "2"}, names())
	for i := range 7 {
		p.Step(start, Changes{Repos: []RepoChange{{Ref: repoRef(fmt.Sprint(i))}}})
		var want []string
		for k := i + 1; k < min(i+4, 9); k++ {
			want = append(want, fmt.Sprint(k))
		}
		require.Equal(t, want, names())
	}
}
