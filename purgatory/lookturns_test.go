package purgatory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// One owner has half of the places at most, and owners have turns however many repositories they have;
// what is slow takes no place of the rest.
func TestLooksInTurns(t *testing.T) {
	ref := func(owner byte, n int) graspsync.RepoRef {
		return graspsync.RepoRef{Owner: graspsync.PubKey{owner}, Identifier: fmt.Sprint(n)}
	}
	var turns []turn
	l := newLooks(4, func(t turn) { turns = append(turns, t) })
	// next begins the looks that have a place, and returns their repositories.
	next := func() (out []graspsync.RepoRef) {
		for len(turns) > 0 {
			x := turns[0]
			turns = turns[1:]
			if _, ok := l.begin(x); ok {
				out = append(out, x.ref)
			}
		}
		return out
	}
	for i := range 10 {
		l.want(ref(1, i), refplan.Reasons{}, quick)
	}
	require.Equal(t, []graspsync.RepoRef{ref(1, 0), ref(1, 1)}, next())
	for owner := byte(2); owner < 5; owner++ {
		l.want(ref(owner, 0), refplan.Reasons{}, quick)
	}
	require.Equal(t, []graspsync.RepoRef{ref(2, 0), ref(3, 0)}, next())
	require.Equal(t, quick, l.done(ref(2, 0)))
	require.Equal(t, []graspsync.RepoRef{ref(4, 0)}, next())
	require.Equal(t, quick, l.done(ref(1, 0)))
	require.Equal(t, []graspsync.RepoRef{ref(1, 2)}, next())
	for i := range 5 {
		l.want(ref(5, i), refplan.Reasons{}, slow)
		l.want(ref(6, i), refplan.Reasons{}, slow)
	}
	require.Equal(t, []graspsync.RepoRef{ref(5, 0), ref(6, 0)}, next())

	// What is wanted while it is looked at is looked at again, when that is done.
	l.want(ref(5, 0), refplan.Reasons{Check: true}, slow)
	l.want(ref(5, 0), refplan.Reasons{Late: true}, slow)
	require.Empty(t, next())
	require.Equal(t, slow, l.done(ref(5, 0)))
	require.Equal(t, []graspsync.RepoRef{ref(5, 1)}, next())

	// What is new about something that takes long does not wait for that, and both are done in turn.
	l.done(ref(3, 0))
	l.want(ref(5, 0), refplan.Reasons{Check: true}, quick)
	require.Equal(t, []graspsync.RepoRef{ref(5, 0)}, next())
	for i := 1; i < 5; i++ {
		l.done(ref(5, i))
		if i < 4 {
			require.Equal(t, []graspsync.RepoRef{ref(5, i+1)}, next())
		}
	}
	require.Empty(t, next(), "it is looked at now")
	require.Equal(t, quick, l.done(ref(5, 0)))
	require.Len(t, turns, 1)
	why, ok := l.begin(turns[0])
	require.True(t, ok)
	require.Equal(t, refplan.Reasons{Check: true, Late: true}, why)
	require.Equal(t, slow, l.done(ref(5, 0)))
}
