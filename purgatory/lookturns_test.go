package purgatory

import (
	"fmt"
	"testing"
	"time"

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
	l, now := newLooks(4), time.Unix(1_000_000, 0)
	for i := range 10 {
		l.want(ref(1, i), resolve.Reasons{}, quick)
	}
	next := func(in lane) byte {
		got, _, ok := l.next(in, now)
		if !ok {
			return 0
		}
		return got.Owner[0]
	}
	require.Equal(t, []byte{1, 1, 1, 0}, []byte{next(quick), next(quick), next(quick), next(quick)})
	l.want(ref(2, 0), resolve.Reasons{}, quick)
	l.want(ref(3, 0), resolve.Reasons{}, quick)
	require.Equal(t, []byte{2, 0}, []byte{next(quick), next(quick)})
	require.Equal(t, quick, l.done(ref(1, 0), now))
	require.Equal(t, []byte{3, 0}, []byte{next(quick), next(quick)})
	for i := range 5 {
		l.want(ref(4, i), resolve.Reasons{}, slow)
		l.want(ref(5, i), resolve.Reasons{}, slow)
	}
	require.Equal(t, []byte{4, 5, 0}, []byte{next(slow), next(slow), next(slow)})

	// What is wanted while it is looked at is looked at again, and not at once.
	l.want(ref(4, 0), resolve.Reasons{Check: true}, slow)
	require.Zero(t, next(slow))
	require.Equal(t, slow, l.done(ref(4, 0), now))
	require.Equal(t, byte(4), next(slow), "another one of that owner")
	l.done(ref(5, 0), now)
	require.Equal(t, byte(5), next(slow))

	// What is new about something that takes long does not wait for that.
	l.done(ref(2, 0), now)
	l.done(ref(3, 0), now)
	l.want(ref(4, 0), resolve.Reasons{Late: true}, quick)
	again, why, ok := l.next(quick, now)
	require.True(t, ok)
	require.Equal(t, ref(4, 0), again)
	require.Equal(t, resolve.Reasons{Late: true}, why)
	l.done(ref(4, 1), now)
	for range 3 { // the others of its owner, while it has a place in the other lane
		got, _, ok := l.next(slow, now)
		require.True(t, ok)
		require.NotEqual(t, ref(4, 0), got)
		l.done(got, now)
	}
	require.Zero(t, next(slow))
	require.Equal(t, quick, l.done(ref(4, 0), now))
	l.done(ref(5, 1), now)
	found := false
	for range 9 {
		got, why, ok := l.next(slow, now)
		require.True(t, ok)
		if got == ref(4, 0) {
			found = true
			require.True(t, why.Check)
			break
		}
		l.done(got, now)
	}
	require.True(t, found)
}

// Who used places for long comes after who did not, however long they have waited: eight keys whose
// looks took seconds had everybody else wait for theirs.
func TestLooksAreChargedWithTheirTime(t *testing.T) {
	ref := func(owner byte) graspsync.RepoRef {
		return graspsync.RepoRef{Owner: graspsync.PubKey{owner}, Identifier: "r"}
	}
	for _, in := range []lane{quick, slow} {
		l, now := newLooks(4), time.Unix(1_000_000, 0)
		want := func(owner byte) { l.want(ref(owner), resolve.Reasons{}, in) }
		next := func() byte {
			got, _, ok := l.next(in, now)
			if !ok {
				return 0
			}
			return got.Owner[0]
		}
		var looking []byte
		start := func() {
			for owner := next(); owner != 0; owner = next() {
				looking = append(looking, owner)
			}
		}
		for owner := byte(1); owner <= 8; owner++ {
			want(owner)
		}
		for range 8 { // all have had a turn
			start()
			now = now.Add(4 * time.Second)
			l.done(ref(looking[0]), now)
			want(looking[0])
			looking = looking[1:]
		}
		start()
		want(100)
		l.done(ref(looking[0]), now)
		want(looking[0])
		looking = looking[1:]
		start()
		require.Equal(t, byte(100), looking[len(looking)-1], "the next place is theirs")
		now = now.Add(time.Millisecond)
		l.done(ref(100), now)
		looking = looking[:len(looking)-1]
		want(100)
		start()
		require.Equal(t, byte(100), looking[len(looking)-1], "so is the next one")

		// But those who have used much have their turn, though others come all the time who have
		// used nothing.
		for _, owner := range looking {
			l.done(ref(owner), now)
		}
		waits := len(l.lanes[in].owners)
		require.Positive(t, waits)
		turns := 0
		for i := range 100 {
			now = now.Add(time.Second)
			fresh := graspsync.RepoRef{Owner: graspsync.PubKey{200, byte(i)}, Identifier: "r"}
			l.want(fresh, resolve.Reasons{}, in)
			got, _, ok := l.next(in, now)
			require.True(t, ok)
			l.done(got, now)
			if got.Owner[0] < 100 {
				turns++
			}
		}
		require.Equal(t, waits, turns)
	}
}

// What was used is forgotten once as much time has passed.
func TestWhatLooksTookIsForgotten(t *testing.T) {
	l, now := newLooks(4), time.Unix(1_000_000, 0)
	for i := range 300 {
		ref := graspsync.RepoRef{Owner: graspsync.PubKey{byte(i), byte(i >> 8)}, Identifier: "r"}
		l.want(ref, resolve.Reasons{}, quick)
		_, _, ok := l.next(quick, now)
		require.True(t, ok)
		now = now.Add(time.Second)
		l.done(ref, now)
		require.LessOrEqual(t, len(l.lanes[quick].owing), owedTimes+1)
	}
	ref := graspsync.RepoRef{Identifier: "r"}
	l.want(ref, resolve.Reasons{}, quick)
	_, _, ok := l.next(quick, now)
	require.True(t, ok)
	now = now.Add(time.Hour)
	l.done(ref, now)
	require.Equal(t, mostOwed, l.lanes[quick].owes(ref.Owner, now))
}
