package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// That an entry was not deleted is known until its author deletes something, also while it is
// being asked for, and as long as it waits.
func TestAskedUntilItsAuthorDeletes(t *testing.T) {
	l := New(config())
	a, b := entry(1, PullRequest, 1), entry(2, PullRequest, 2)
	require.Nil(t, l.Asked(a.ID))
	l.Undeleted(a.ID, nil)
	l.Put(a)
	l.Put(b)
	unknown := func() int { return len(l.ToAsk([]Entry{a, b})) }
	require.Equal(t, 2, unknown())
	for _, e := range []Entry{a, b} {
		l.Undeleted(e.ID, l.Asked(e.ID))
	}
	require.Zero(t, unknown())
	require.Same(t, l.Asked(a.ID), l.Asked(a.ID))

	before := l.Asked(a.ID)
	l.AskAgain(a.Author)
	require.Equal(t, 1, unknown())
	l.Undeleted(a.ID, before)
	require.Equal(t, 1, unknown(), "what is said was asked before")
	l.Undeleted(a.ID, l.Asked(a.ID))
	require.Zero(t, unknown())

	before = l.Asked(a.ID)
	l.Remove(a.ID)
	l.Undeleted(a.ID, before)
	l.Put(a)
	require.Equal(t, 1, unknown())
	l.Remove(a.ID)
	l.Remove(b.ID)
	require.Empty(t, l.asked)
}
