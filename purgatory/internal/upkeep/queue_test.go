package upkeep

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

func ref(owner byte, name string) graspsync.RepoRef {
	var key graspsync.PubKey
	key[0] = owner
	return graspsync.RepoRef{Owner: key, Identifier: name}
}

// A key with 1,000 repositories, each of which takes a minute, does not keep others
// waiting for more than one of them.
func TestManyRepositoriesOfOneOwner(t *testing.T) {
	q := New(10_000)
	for i := range 1000 {
		require.True(t, q.Add(ref(1, fmt.Sprint(i))))
	}
	for i := range 3 {
		next, ok := q.Next()
		require.True(t, ok)
		require.Equal(t, ref(1, fmt.Sprint(i)), next)
		q.Spent(next.Owner, time.Minute)
	}
	q.Add(ref(2, "a"))
	q.Add(ref(3, "a"))
	q.Add(ref(2, "b"))
	var got []string
	for range 4 {
		next, _ := q.Next()
		got = append(got, fmt.Sprint(next.Owner[0], next.Identifier))
		q.Spent(next.Owner, time.Second)
	}
	require.Equal(t, []string{"2a", "3a", "2b", "13"}, got)
	require.Equal(t, 996, q.Len())
}

// What was spent is forgiven in time, and nothing is kept of who is gone.
func TestForgive(t *testing.T) {
	q := New(10)
	q.Add(ref(1, "a"))
	_, _ = q.Next()
	q.Spent(ref(1, "a").Owner, time.Hour)
	q.Add(ref(1, "b"))
	q.Add(ref(2, "b"))
	for range 12 {
		q.Forgive()
	}
	for range 2 {
		_, ok := q.Next()
		require.True(t, ok)
	}
	_, ok := q.Next()
	require.False(t, ok)
	q.Forgive()
	require.Empty(t, q.owners)
	require.Empty(t, q.due)
	q.Spent(ref(9, "").Owner, time.Hour)
	require.Empty(t, q.owners)
}

func TestPushesAndRoom(t *testing.T) {
	q := New(2)
	for range 4 {
		require.False(t, q.Pushed(ref(1, "a"), 5))
	}
	require.True(t, q.Pushed(ref(1, "a"), 5))
	require.True(t, q.Pushed(ref(1, "a"), 5))
	require.True(t, q.Add(ref(1, "b")))
	require.False(t, q.Add(ref(1, "c")), "no room")
	require.True(t, q.Add(ref(1, "b")))
	require.False(t, q.Pushed(ref(2, "x"), 1))
	require.False(t, q.Pushed(ref(2, "y"), 2))
	require.False(t, q.Pushed(ref(2, "z"), 2))
	require.LessOrEqual(t, len(q.pushes), 2)
	next, ok := q.Next()
	require.True(t, ok)
	require.Equal(t, ref(1, "a"), next)
	require.True(t, q.Pushed(ref(2, "q"), 1))
}
