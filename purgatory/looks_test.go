package purgatory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
)

// One owner has all places but the last while others may come, and owners have turns
// however many repositories they have; what is slow takes no place of the rest.
func TestLooksInTurns(t *testing.T) {
	ref := func(owner byte, n int) filters.RepoRef {
		return filters.RepoRef{Owner: filters.PubKey{owner}, Identifier: fmt.Sprint(n)}
	}
	l := newLooks(4)
	for i := range 10 {
		l.want(ref(1, i), causes{}, quick)
	}
	next := func(in lane) byte {
		got, _, ok := l.next(in)
		if !ok {
			return 0
		}
		return got.Owner[0]
	}
	require.Equal(t, []byte{1, 1, 1, 0}, []byte{next(quick), next(quick), next(quick), next(quick)})
	l.want(ref(2, 0), causes{}, quick)
	l.want(ref(3, 0), causes{}, quick)
	require.Equal(t, []byte{2, 0}, []byte{next(quick), next(quick)})
	l.done(ref(1, 0), quick)
	require.Equal(t, []byte{3, 0}, []byte{next(quick), next(quick)})
	for i := range 5 {
		l.want(ref(4, i), causes{}, slow)
		l.want(ref(5, i), causes{}, slow)
	}
	require.Equal(t, []byte{4, 5, 0}, []byte{next(slow), next(slow), next(slow)})

	// What is wanted while it is looked at is looked at again.
	l.want(ref(4, 0), causes{check: true}, slow)
	require.Zero(t, next(slow))
	l.done(ref(4, 0), quick)
	l.done(ref(2, 0), quick)
	l.done(ref(3, 0), quick)
	again, why, ok := l.next(quick)
	require.True(t, ok)
	require.Equal(t, ref(4, 0), again)
	require.True(t, why.check)
}
