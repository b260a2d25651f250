package index

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
)

// The newest 500 replies to one root event are followed, regardless of their number and depth.
func TestBranchKeepsTheNewest(t *testing.T) {
	racetest.Amounts(t)
	const root, ann, eve = 1, 2, 3
	x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
	x.Stored(eventtest.Of(testAnnouncement(0, 0, "x", 1, "ours")))
	x.Stored(eventtest.Of(testEvent(root, graspsync.KindIssue, ann, 1, tagRepo(testRepo(0, "x")))))
	n, leftOut := 10, 0
	add := func(author int, to int) int {
		n++
		c := x.Stored(eventtest.Of(testEvent(n, 1, author, nostr.Timestamp(n), tagEvent(to))))
		leftOut += c.LeftOut
		return n
	}
	for range 100_000 { // a star, and a chain that goes as deep as it can
		add(eve, root)
	}
	require.Equal(t, maxOfBranch, x.tables.threads.placed.Len())
	require.Equal(t, 100_000-maxOfBranch, leftOut)
	x.tables.checkBelow(t)
	newest := n
	require.True(t, x.descends(testID(newest)))
	require.False(t, x.descends(testID(newest-maxOfBranch)))
	var honest []int
	for range 300 {
		honest = append(honest, add(ann, root))
	}
	for _, id := range honest {
		require.True(t, x.descends(testID(id)))
	}
	for i := range maxOfBranch - len(honest) {
		require.True(t, x.descends(testID(newest-i)))
	}
	oldest := newest - (maxOfBranch - len(honest) - 1)
	reply := add(ann, oldest) // evicts another one, because it needs the oldest
	require.True(t, x.descends(testID(oldest)))
	require.True(t, x.descends(testID(reply)))
	require.Equal(t, maxOfBranch, x.tables.threads.placed.Len())
	x.tables.checkBelow(t)
	require.LessOrEqual(t, len(x.tables.threads.nodes), maxOfBranch)

	// Another branch is not affected.
	x.Stored(eventtest.Of(testEvent(5, graspsync.KindIssue, ann, 1, tagRepo(testRepo(0, "x")))))
	require.True(t, x.descends(testID(add(ann, 5))))

	before := x.tables.threads.placed.Len()
	at := 5
	for range 1_000 {
		at = add(eve, at)
	}
	require.Equal(t, before+MaxDepth, x.tables.threads.placed.Len())
	require.LessOrEqual(t, x.tables.threads.orphans.Len(), maxOrphans)
	x.tables.checkBelow(t)
	x.Removed(eventtest.Of(testEvent(root, graspsync.KindIssue, ann, 1, tagRepo(testRepo(0, "x")))))
	x.Removed(eventtest.Of(testEvent(5, graspsync.KindIssue, ann, 1, tagRepo(testRepo(0, "x")))))
	require.Zero(t, x.tables.threads.placed.Len())
	require.LessOrEqual(t, len(x.tables.threads.nodes), maxOrphans)
}

// The same with random authors, branches and deletions, and with reached limits.
func TestBranchesWithinTheirBounds(t *testing.T) {
	racetest.Amounts(t)
	for seed := range uint64(4) {
		rnd := rand.New(rand.NewPCG(seed, 8))
		x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
		x.Stored(eventtest.Of(testAnnouncement(0, 0, "x", 1, "ours")))
		for root := range 3 {
			x.Stored(eventtest.Of(testEvent(1+root, graspsync.KindIssue, 1, 1, tagRepo(testRepo(0, "x")))))
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
			told.apply(t, x.Stored(eventtest.Of(ev)))
			if rnd.IntN(20) == 0 {
				told.apply(t, x.Removed(eventtest.Of(events[rnd.IntN(len(events))])))
			}
			if n%500 == 0 {
				x.tables.checkBelow(t)
				require.Equal(t, x.facts().Below, told.Below)
			}
		}
		require.Greater(t, x.tables.threads.placed.Len(), maxOfBranch)
	}
}

// An event that answers both an issue and another event about the repository has no place after the
// owner moves the repository from this server, in any order of updates. A transient place in
// between caused a panic.
func TestRepositoryLeavesItsAnswers(t *testing.T) {
	const root, ann, below, top = 1, 2, 20, 30
	x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
	ours := testAnnouncement(0, 0, "x", 1, "ours")
	x.Stored(eventtest.Of(ours))
	x.Stored(eventtest.Of(testEvent(root, graspsync.KindIssue, ann, 1, tagRepo(testRepo(0, "x")))))
	x.Stored(eventtest.Of(testEvent(top, 1, ann, 2, tagRepo(testRepo(0, "x")))))
	x.Stored(eventtest.Of(testEvent(below, 1, ann, 3, tagEvent(root), tagEvent(top))))
	x.Removed(eventtest.Of(ours))
	require.Zero(t, x.tables.threads.placed.Len())
	x.tables.checkBelow(t)
}

// Dense histories equal a naive twin: two repositories that come and go, root events of both, and
// replies to anything.
func TestDenseHistories(t *testing.T) {
	racetest.Amounts(t)
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 77))
		x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
		told := newFacts()
		at := nostr.Timestamp(1)
		for step := range 200 {
			at++
			switch rnd.IntN(12) {
			case 0:
				name := "ours"
				if rnd.IntN(2) == 0 {
					name = "foreign"
				}
				told.apply(t, x.Stored(eventtest.Of(testAnnouncement(1000+step, rnd.IntN(2), "x", at, name))))
			case 1:
				tags := []nostr.Tag{tagRepo(testRepo(rnd.IntN(2), "x"))}
				if rnd.IntN(3) == 0 {
					tags = append(tags, tagRepo(testRepo(1, "x")))
				}
				told.apply(t, x.Stored(eventtest.Of(testEvent(1+rnd.IntN(5), graspsync.KindIssue, 3, 1, tags...))))
			case 2:
				told.apply(t, x.Removed(eventtest.Of(testEvent(1+rnd.IntN(40), 1, 3, 1))))
			default:
				var tags []nostr.Tag
				for range 1 + rnd.IntN(3) {
					if rnd.IntN(4) == 0 {
						tags = append(tags, tagRepo(testRepo(rnd.IntN(2), "x")))
					} else if rnd.IntN(4) == 0 {
						tags = append(tags, nostr.Tag{"a", fmt.Sprintf("30023:%s:%d", testKey(4).String(), rnd.IntN(4))})
					} else {
						tags = append(tags, tagEvent(1+rnd.IntN(40)))
					}
				}
				if rnd.IntN(4) == 0 {
					tags = append(tags, nostr.Tag{"d", fmt.Sprint(rnd.IntN(4))})
					told.apply(t, x.Stored(eventtest.Of(testEvent(10000+step, 30023, 4, at, tags...))))
				} else {
					told.apply(t, x.Stored(eventtest.Of(testEvent(6+rnd.IntN(35), 1, 5, 5, tags...))))
				}
			}
			x.tables.checkBelow(t)
			require.Equal(t, x.facts().Below, told.Below, "seed %d step %d", seed, step)
		}
	}
}

// The owners of repositories share a full table, and each keeps its newest replies. A newer reply
// is rejected only if its owner has its share and newer ones.
func TestOwnersShareAllAnswers(t *testing.T) {
	x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
	d := x.tables.threads
	d.placed = limit.NewTable[*node, graspsync.PubKey](60, 0)
	for i := range 3 {
		x.Stored(eventtest.Of(testAnnouncement(i, i, "x", 1, "ours")))
	}
	followed := func(owner int) (n int) {
		for i := range 200 {
			if x.descends(testID(1_000*(owner+1) + i)) {
				n++
			}
		}
		return n
	}
	add := func(owner, i int) {
		x.Stored(eventtest.Of(testEvent(1_000*(owner+1)+i, 1, 50, nostr.Timestamp(100+i), tagRepo(testRepo(owner, "x")))))
	}
	for i := range 200 {
		add(0, i)
	}
	require.Equal(t, 60, followed(0))
	require.True(t, x.descends(testID(1_199)), "the newest")
	require.False(t, x.descends(testID(1_139)))
	for owner := 1; owner < 3; owner++ {
		for i := range 200 {
			add(owner, i)
		}
	}
	for owner := range 3 {
		require.Equal(t, 20, followed(owner))
		require.True(t, x.descends(testID(1_000*(owner+1)+199)))
	}
	add(0, 0)
	require.False(t, x.descends(testID(1_000)), "it is older than what its owner has")
	x.tables.checkBelow(t)
}

// The cost of one more reply when the table is full.
func BenchmarkDescendantBeyondTheBound(b *testing.B) {
	const each = 5
	for _, owners := range []int{1, 1_000} {
		for _, n := range []int{10_000, 100_000} {
			b.Run(fmt.Sprintf("owners=%d/followed=%d", owners, n), func(b *testing.B) {
				x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
				d := x.tables.threads
				d.placed = limit.NewTable[*node, graspsync.PubKey](n, 0)
				for i := range owners {
					x.Stored(eventtest.Of(testAnnouncement(i, i, "x", 1, "ours")))
				}
				roots := n / each
				for i := range roots {
					x.Stored(eventtest.Of(testEvent(10_000+i, graspsync.KindIssue, 1, 1, tagRepo(testRepo(i%owners, "x")))))
				}
				next := 0
				add := func() {
					id := 1_000_000 + next
					x.tables.addNode(replyOf(eventtest.Of(testEvent(id, 1, next%1_000, nostr.Timestamp(id), tagEvent(10_000+next%roots)))), &Change{})
					next++
				}
				for range n {
					add()
				}
				require.Equal(b, n, d.placed.Len())
				b.ReportAllocs()
				for b.Loop() {
					add()
				}
			})
		}
	}
}
