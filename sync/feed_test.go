package sync

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

// In one window a held announcement is given up and held again: the last word counts.
func TestFeedHeldAgain(t *testing.T) {
	l := testLoop(t)
	l.m.index = newIndex(&twinStore{}, listsByName)
	f := newFeed(l.m.index, 10, 10)
	ev := testAnnouncement(1, 1, "repo", 1, "ours")
	a, err := nip34.ParseAnnouncement(ev)
	require.NoError(t, err)
	take := func() bool {
		b := f.take()
		l.hold(&b)
		return l.held[a.Ref] != nil
	}
	f.hold(a)
	require.True(t, take())
	f.removed(ev)
	f.hold(a)
	require.True(t, take())
	f.hold(a)
	f.removed(ev)
	require.False(t, take())
}
