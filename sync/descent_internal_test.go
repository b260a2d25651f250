package sync

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"unique"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
)

// Of one root event no more is followed than 500, however much is written below it and however
// deep, and who writes most has no more of it than others who write as well.
func TestBranchIsSharedByAuthors(t *testing.T) {
	racetest.Amounts(t)
	const root, ann, eve = 1, 2, 3
	x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
	x.stored(eventtest.Of(testAnnouncement(0, 0, "x", 1, "ours")))
	x.stored(eventtest.Of(testEvent(root, graspsync.KindIssue, ann, 1, tagRepo(testRepo(0, "x")))))
	n, leftOut := 10, 0
	add := func(author int, to int) int {
		n++
		c := x.stored(eventtest.Of(testEvent(n, 1, author, nostr.Timestamp(n), tagEvent(to))))
		leftOut += c.leftOut
		return n
	}
	for range 100_000 { // a star, and a chain that goes as deep as it can
		add(eve, root)
	}
	require.Equal(t, maxOfBranch, x.tables.descent.size)
	require.Equal(t, 100_000-maxOfBranch, leftOut)
	x.tables.checkBelow(t)
	newest := n
	require.True(t, x.descends(testID(newest)))
	require.False(t, x.descends(testID(newest-maxOfBranch)))
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

	// Of each author it is the newest.
	for i, id := range honest {
		require.Equal(t, i >= len(honest)-maxOfBranch/2, x.descends(testID(id)))
	}
	for i := range maxOfBranch / 2 {
		require.True(t, x.descends(testID(newest-i)))
	}

	// Another branch is not concerned.
	x.stored(eventtest.Of(testEvent(5, graspsync.KindIssue, ann, 1, tagRepo(testRepo(0, "x")))))
	require.True(t, x.descends(testID(add(ann, 5))))

	before := x.tables.descent.size
	at := 5
	for range 1_000 {
		at = add(eve, at)
	}
	require.Equal(t, before+maxDepth, x.tables.descent.size)
	require.LessOrEqual(t, len(x.tables.descent.orphans), maxOrphans)
	x.tables.checkBelow(t)
	x.removed(eventtest.Of(testEvent(root, graspsync.KindIssue, ann, 1, tagRepo(testRepo(0, "x")))))
	x.removed(eventtest.Of(testEvent(5, graspsync.KindIssue, ann, 1, tagRepo(testRepo(0, "x")))))
	require.Zero(t, x.tables.descent.size)
	require.LessOrEqual(t, len(x.tables.descent.nodes), maxOrphans)
}

// The same with authors, branches and deletions at random, and bounds that are reached.
func TestBranchesWithinTheirBounds(t *testing.T) {
	racetest.Amounts(t)
	for seed := range uint64(4) {
		rnd := rand.New(rand.NewPCG(seed, 8))
		x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
		x.stored(eventtest.Of(testAnnouncement(0, 0, "x", 1, "ours")))
		for root := range 3 {
			x.stored(eventtest.Of(testEvent(1+root, graspsync.KindIssue, 1, 1, tagRepo(testRepo(0, "x")))))
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
			told.apply(t, x.stored(eventtest.Of(ev)))
			if rnd.IntN(20) == 0 {
				told.apply(t, x.removed(eventtest.Of(events[rnd.IntN(len(events))])))
			}
			if n%500 == 0 {
				x.tables.checkBelow(t)
				require.Equal(t, x.facts().Below, told.Below)
			}
		}
		require.Greater(t, x.tables.descent.size, maxOfBranch)
	}
}

// What answers an issue and something about the repository as well has no place in either once
// the owner takes the repository from us, in whatever order that is found out: the process
// ended where it was thought to keep the second for a moment.
func TestRepositoryLeavesItsAnswers(t *testing.T) {
	const root, ann, below, top = 1, 2, 20, 30
	x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
	ours := testAnnouncement(0, 0, "x", 1, "ours")
	x.stored(eventtest.Of(ours))
	x.stored(eventtest.Of(testEvent(root, graspsync.KindIssue, ann, 1, tagRepo(testRepo(0, "x")))))
	x.stored(eventtest.Of(testEvent(top, 1, ann, 2, tagRepo(testRepo(0, "x")))))
	x.stored(eventtest.Of(testEvent(below, 1, ann, 3, tagEvent(root), tagEvent(top))))
	x.removed(eventtest.Of(ours))
	require.Zero(t, x.tables.descent.size)
	x.tables.checkBelow(t)
}

// Dense histories are as a naive twin says: two repositories that come and go, roots of both, answers to anything.
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
				told.apply(t, x.stored(eventtest.Of(testAnnouncement(1000+step, rnd.IntN(2), "x", at, name))))
			case 1:
				tags := []nostr.Tag{tagRepo(testRepo(rnd.IntN(2), "x"))}
				if rnd.IntN(3) == 0 {
					tags = append(tags, tagRepo(testRepo(1, "x")))
				}
				told.apply(t, x.stored(eventtest.Of(testEvent(1+rnd.IntN(5), graspsync.KindIssue, 3, 1, tags...))))
			case 2:
				told.apply(t, x.removed(eventtest.Of(testEvent(1+rnd.IntN(40), 1, 3, 1))))
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
					told.apply(t, x.stored(eventtest.Of(testEvent(10000+step, 30023, 4, at, tags...))))
				} else {
					told.apply(t, x.stored(eventtest.Of(testEvent(6+rnd.IntN(35), 1, 5, 5, tags...))))
				}
			}
			x.tables.checkBelow(t)
			require.Equal(t, x.facts().Below, told.Below, "seed %d step %d", seed, step)
		}
	}
}

// Where 500 keys have one answer each, the oldest gives way to who comes later.
func TestLaterAuthorsOfABranch(t *testing.T) {
	x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
	x.stored(eventtest.Of(testAnnouncement(0, 0, "x", 1, "ours")))
	x.stored(eventtest.Of(testEvent(1, graspsync.KindIssue, 1, 1, tagRepo(testRepo(0, "x")))))
	for i := range maxOfBranch {
		x.stored(eventtest.Of(testEvent(1000+i, 1, 1000+i, 10, tagEvent(1))))
	}
	followed := 0
	for i := range 100 { // the owner of the repository, the author of the issue, and others
		x.stored(eventtest.Of(testEvent(5000+i, 1, i, nostr.Timestamp(1000+i), tagEvent(1))))
		if x.descends(testID(5000 + i)) {
			followed++
		}
	}
	require.Equal(t, 100, followed, "of 100 newer answers by 100 authors, the owner among them")
	x.tables.checkBelow(t)
}

// twinOfGivingWay looks at everything to say what a node at a place needs the room of, and which of
// its branch gives way to it: nil for none, where it is left out.
func (d *descent) twinOfGivingWay(n *node, at place) (victim *node, needed bool) {
	compareRefs := func(a, b refKey) int { return bytes.Compare(a[:], b[:]) }
	byAuthor := func(a, b unique.Handle[graspsync.PubKey]) int { return a.Value().Compare(b.Value()) }
	b := d.branches[at.top]
	var claim bool
	var who unique.Handle[graspsync.PubKey]
	switch {
	case b != nil && b.size >= d.mostOfBranch:
		if who, claim = fullest(b.authors(), n.author, byAuthor); !claim {
			if who = n.author; b.of(who) == 0 {
				who = b.oldest()
			}
		}
	case d.size < d.most:
		return nil, false
	default:
		owner, _, _ := d.top(at.top)
		rich, other := d.twinOfRichest(owner)
		if claim = other; !other {
			rich = owner
		}
		sizes := make(map[refKey]int)
		for k, o := range d.branches {
			if o.owner == rich {
				sizes[k] = o.size
			}
		}
		if len(sizes) == 0 {
			return nil, true
		}
		k, _ := fullest(maps.All(sizes), refKey{}, compareRefs)
		b = d.branches[k]
		who, _ = fullest(b.authors(), unique.Handle[graspsync.PubKey]{}, byAuthor)
	}
	spare := d.above(n, b)
	for o := range b.nodes() {
		if o.author != who || has(spare, o) {
			continue
		}
		if victim == nil || d.carries(victim) && !d.carries(o) || d.carries(victim) == d.carries(o) && o.before(victim) {
			victim = o
		}
	}
	if victim == nil || !claim && n.before(victim) {
		return nil, true
	}
	return victim, true
}

// twinOfRichest asks all branches.
func (d *descent) twinOfRichest(asks graspsync.PubKey) (graspsync.PubKey, bool) {
	sizes := make(map[graspsync.PubKey]int)
	for _, b := range d.branches {
		sizes[b.owner] += b.size
	}
	return fullest(maps.All(sizes), asks, graspsync.PubKey.Compare)
}

// Whoever gives way is the one whom looking at all that is followed finds, where repositories and
// root events come and go, some are of several owners, and both bounds are reached all the time.
func TestWhoGivesWayIsWhoTheTwinSays(t *testing.T) {
	racetest.Amounts(t)
	gaveWay, leftOut := 0, 0
	for seed := range uint64(racetest.Rounds(25)) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
		d := x.tables.descent
		d.mostOfBranch, d.most = 3+rnd.IntN(12), 10+rnd.IntN(50)
		owners, roots := 1+rnd.IntN(6), 1+rnd.IntN(20)
		announce := func(n, owner int, name string) {
			x.stored(eventtest.Of(testAnnouncement(n, owner, "x", nostr.Timestamp(1+n), name)))
		}
		root := func(n int) *nostr.Event {
			tags := []nostr.Tag{tagRepo(testRepo(n%owners, "x"))}
			if n%3 == 0 {
				tags = append(tags, tagRepo(testRepo((n+1)%owners, "x")))
			}
			return testEvent(100+n, graspsync.KindIssue, 50, 1, tags...)
		}
		for i := range owners {
			announce(i, i, "ours")
		}
		for i := range roots {
			x.stored(eventtest.Of(root(i)))
		}
		for step := range 1_000 {
			n := 1_000 + step
			var to nostr.Tag
			switch rnd.IntN(8) {
			case 0:
				to = tagRepo(testRepo(rnd.IntN(owners), "x"))
			case 1, 2, 3:
				to = tagEvent(100 + min(rnd.IntN(roots), rnd.IntN(roots)))
			default:
				to = tagEvent(1_000 + max(0, step-1-rnd.IntN(60)))
			}
			ev := eventtest.Of(testEvent(n, 1, min(rnd.IntN(9), rnd.IntN(9)), nostr.Timestamp(rnd.IntN(n)), to))
			one := &node{}
			one.is(answerOf(ev))
			at, _ := d.best(one)
			var victim *node
			var needed bool
			if at.depth > 0 {
				victim, needed = d.twinOfGivingWay(one, at)
			}
			followed := maps.Clone(d.nodes)
			maps.DeleteFunc(followed, func(_ refKey, o *node) bool { return o.place.depth == 0 })
			x.stored(ev)
			for k, o := range followed {
				require.Equal(t, o != victim, d.nodes[k] == o, "seed %d step %d", seed, step)
			}
			require.Equal(t, at.depth > 0 && (victim != nil || !needed), x.descends(testID(n)), "seed %d step %d", seed, step)
			if victim != nil {
				gaveWay++
			} else if needed {
				leftOut++
			}
			switch rnd.IntN(25) {
			case 0:
				announce(10_000+n, rnd.IntN(owners), []string{"ours", "ours", "foreign"}[rnd.IntN(3)])
			case 1:
				x.removed(eventtest.Of(root(rnd.IntN(roots))))
			case 2, 3, 4:
				x.stored(eventtest.Of(root(rnd.IntN(roots))))
			case 5:
				x.removed(eventtest.Of(testEvent(1_000+rnd.IntN(step+1), 1, 50, 1)))
			}
			x.tables.checkBelow(t)
		}
	}
	require.Greater(t, gaveWay, 100)
	require.Greater(t, leftOut, 100)
}

// What one more costs when all that may be followed is.
func BenchmarkDescendantBeyondTheBound(b *testing.B) {
	const each = 5
	for _, owners := range []int{1, 1_000} {
		for _, n := range []int{10_000, 100_000} {
			b.Run(fmt.Sprintf("owners=%d/followed=%d", owners, n), func(b *testing.B) {
				x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
				d := x.tables.descent
				d.most = n
				for i := range owners {
					x.stored(eventtest.Of(testAnnouncement(i, i, "x", 1, "ours")))
				}
				roots := n / each
				for i := range roots {
					x.stored(eventtest.Of(testEvent(10_000+i, graspsync.KindIssue, 1, 1, tagRepo(testRepo(i%owners, "x")))))
				}
				next := 0
				add := func() {
					id := 1_000_000 + next
					x.tables.addNode(answerOf(eventtest.Of(testEvent(id, 1, next%1_000, nostr.Timestamp(id), tagEvent(10_000+next%roots)))), nil)
					next++
				}
				for range n {
					add()
				}
				require.Equal(b, n, d.size)
				b.ReportAllocs()
				for b.Loop() {
					add()
				}
			})
		}
	}
}
