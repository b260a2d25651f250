package purgatory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
)

// One owner has all places but the last while others may come, and owners have turns
// however many repositories they have; what is slow takes no place of the rest.
func TestLooksInTurns(t *testing.T) {
	ref := func(owner byte, n int) graspsync.RepoRef {
		return graspsync.RepoRef{Owner: graspsync.PubKey{owner}, Identifier: fmt.Sprint(n)}
	}
	l := newLooks(4)
	for i := range 10 {
		l.want(ref(1, i), resolve.Reasons{}, quick)
	}
	next := func(in lane) byte {
		got, _, ok := l.next(in)
		if !ok {
			return 0
		}
		return got.Owner[0]
	}
	require.Equal(t, []byte{1, 1, 1, 0}, []byte{next(quick), next(quick), next(quick), next(quick)})
	l.want(ref(2, 0), resolve.Reasons{}, quick)
	l.want(ref(3, 0), resolve.Reasons{}, quick)
	require.Equal(t, []byte{2, 0}, []byte{next(quick), next(quick)})
	require.Equal(t, quick, l.done(ref(1, 0)))
	require.Equal(t, []byte{3, 0}, []byte{next(quick), next(quick)})
	for i := range 5 {
		l.want(ref(4, i), resolve.Reasons{}, slow)
		l.want(ref(5, i), resolve.Reasons{}, slow)
	}
	require.Equal(t, []byte{4, 5, 0}, []byte{next(slow), next(slow), next(slow)})

	// What is wanted while it is looked at is looked at again, and not at once.
	l.want(ref(4, 0), resolve.Reasons{Check: true}, slow)
	require.Zero(t, next(slow))
	require.Equal(t, slow, l.done(ref(4, 0)))
	require.Equal(t, byte(4), next(slow), "another one of that owner")
	l.done(ref(5, 0))
	require.Equal(t, byte(5), next(slow))

	// What is new about something that takes long does not wait for that.
	l.done(ref(2, 0))
	l.done(ref(3, 0))
	l.want(ref(4, 0), resolve.Reasons{Late: true}, quick)
	again, why, ok := l.next(quick)
	require.True(t, ok)
	require.Equal(t, ref(4, 0), again)
	require.Equal(t, resolve.Reasons{Late: true}, why)
	l.done(ref(4, 1))
	for range 3 { // the others of its owner, while it has a place in the other lane
		got, _, ok := l.next(slow)
		require.True(t, ok)
		require.NotEqual(t, ref(4, 0), got)
		l.done(got)
	}
	require.Zero(t, next(slow))
	require.Equal(t, quick, l.done(ref(4, 0)))
	l.done(ref(5, 1))
	found := false
	for range 9 {
		got, why, ok := l.next(slow)
		require.True(t, ok)
		if got == ref(4, 0) {
			found = true
			require.True(t, why.Check)
			break
		}
		l.done(got)
	}
	require.True(t, found)
}
