package sync

import (
	"math/rand/v2"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
)

// Of one root event no more is followed than 500, however much is written below it and however
// deep, and who writes most has no more of it than others who write as well.
func TestBranchIsSharedByAuthors(t *testing.T) {
	const root, ann, eve = 1, 2, 3
	x := newIndex(&twinStore{}, listsByName)
	x.stored(testAnnouncement(0, 0, "x", 1, "ours"))
	x.stored(testEvent(root, filters.KindIssue, ann, 1, tagRepo(testRepo(0, "x"))))
	n, leftOut := 10, 0
	add := func(author int, to int) int {
		n++
		c := x.stored(testEvent(n, 1, author, nostr.Timestamp(n), tagEvent(to)))
		leftOut += c.leftOut
		return n
	}
	for range 100_000 { // a star, and a chain that goes as deep as it can
		add(eve, root)
	}
	require.Equal(t, maxOfBranch, x.tables.descent.size)
	require.Equal(t, 100_000-maxOfBranch, leftOut)
	x.tables.checkBelow(t)
	var honest []int
	for range 300 {
		honest = append(honest, add(ann, root))
	}
	followed := 0
	for _, id := range honest {
		if x.descends(testID(id)) {
			followed++
		}
	}
	require.Equal(t, maxOfBranch/2, followed, "half of it is theirs, of two")
	require.Equal(t, maxOfBranch, x.tables.descent.size)
	x.tables.checkBelow(t)
	require.LessOrEqual(t, len(x.tables.descent.nodes), maxOfBranch)

	// Another branch is not concerned.
	x.stored(testEvent(5, filters.KindIssue, ann, 1, tagRepo(testRepo(0, "x"))))
	require.True(t, x.descends(testID(add(ann, 5))))

	before := x.tables.descent.size
	at := 5
	for range 1_000 {
		at = add(eve, at)
	}
	require.Equal(t, before+maxDepth, x.tables.descent.size)
	require.LessOrEqual(t, len(x.tables.descent.orphans), maxOrphans)
	x.tables.checkBelow(t)
	x.removed(testEvent(root, filters.KindIssue, ann, 1, tagRepo(testRepo(0, "x"))))
	x.removed(testEvent(5, filters.KindIssue, ann, 1, tagRepo(testRepo(0, "x"))))
	require.Zero(t, x.tables.descent.size)
	require.LessOrEqual(t, len(x.tables.descent.nodes), maxOrphans)
}

// The same with authors, branches and deletions at random, and bounds that are reached.
func TestBranchesWithinTheirBounds(t *testing.T) {
	for seed := range uint64(4) {
		rnd := rand.New(rand.NewPCG(seed, 8))
		x := newIndex(&twinStore{}, listsByName)
		x.stored(testAnnouncement(0, 0, "x", 1, "ours"))
		for root := range 3 {
			x.stored(testEvent(1+root, filters.KindIssue, 1, 1, tagRepo(testRepo(0, "x"))))
		}
		told := newFacts()
		var events []*nostr.Event
		for n := range 6_000 {
			to := 1 + rnd.IntN(3)
			if n > 100 && rnd.IntN(3) > 0 {
				to = 10 + rnd.IntN(n)
			}
			ev := testEvent(10+n, 1, rnd.IntN(1+rnd.IntN(40)), nostr.Timestamp(n), tagEvent(to))
			events = append(events, ev)
			told.apply(t, x.stored(ev))
			if rnd.IntN(20) == 0 {
				told.apply(t, x.removed(events[rnd.IntN(len(events))]))
			}
			if n%500 == 0 {
				x.tables.checkBelow(t)
				require.Equal(t, x.facts().Below, told.Below)
			}
		}
		require.Greater(t, x.tables.descent.size, maxOfBranch)
	}
}
