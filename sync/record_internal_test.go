package sync

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// A relay can name as many authors and kinds as it likes.
func TestRecordIsBoundedAndForgives(t *testing.T) {
	var r record
	key := func(n int) (k graspsync.PubKey) {
		binary.BigEndian.PutUint32(k[:], uint32(n)) //nolint:gosec // small
		return k
	}
	known, spammer := key(1), key(2)
	issue, pull := categoryOf(graspsync.KindIssue, key(1)), categoryOf(graspsync.KindPullRequest, key(1))
	r.judged(known, issue, true, 1)
	for range 100 {
		r.judged(spammer, pull, false, 1)
	}
	assert.False(t, r.trusts(spammer, issue), "whatever it sends")
	for range distrust + 1 {
		r.judged(spammer, issue, true, 1)
	}
	assert.True(t, r.trusts(spammer, issue), "for good")
	for i := range 10_000 {
		r.judged(key(10+i), categoryOf(graspsync.KindPullRequest+i%1_000, key(1)), false, 1)
	}
	assert.True(t, r.trusts(known, pull))
	assert.False(t, r.trusts(key(3), pull))
	assert.False(t, r.trusts(key(3), categoryOf(2_000, key(1))))
	assert.True(t, r.trusts(key(3), categoryOf(graspsync.KindPullRequest, key(2))), "nobody sends those")
	assert.True(t, r.trusts(key(3), categoryOf(graspsync.KindState, key(1))))
	for i := range 10_000 {
		r.judged(key(20_000+i), categoryOf(graspsync.KindPullRequest+i%5, key(1+i)), false, 1)
	}
	assert.False(t, r.trusts(key(3), categoryOf(graspsync.KindPullRequest, key(30_000))), "there are too many to tell them apart")
	assert.LessOrEqual(t, len(r.good.young)+len(r.good.old), recordAuthors)
	assert.LessOrEqual(t, len(r.bad.young)+len(r.bad.old), recordAuthors)
	assert.LessOrEqual(t, len(r.categories), recordCategories+len(filters.Kinds())+1)
}

// However many authors come, of half as many as there is room for the count is known, and
// of no more than there is room for.
func TestTalliesOfTheLast(t *testing.T) {
	var all tallies
	for i := range 3 * recordAuthors {
		all.set(testKey(i), i+1)
		if i%(recordAuthors/7) != 0 {
			continue
		}
		for k := max(0, i-recordAuthors/2+1); k <= i; k++ {
			require.Equal(t, k+1, all.count(testKey(k)))
		}
		require.LessOrEqual(t, len(all.young)+len(all.old), recordAuthors)
	}
}

// What is refused counts by what it cost, and what was of use pays for as much.
func TestRecordWeighs(t *testing.T) {
	var r record
	author, of := testKey(1), categoryOf(graspsync.KindState, testKey(2))
	r.judged(author, of, true, 1)
	r.judged(author, of, false, 100)
	assert.False(t, r.trusts(author, of))
	assert.False(t, r.trusts(testKey(3), of))
	r.judged(author, of, true, 99-distrust)
	assert.False(t, r.trusts(author, of))
	r.judged(author, of, true, 1)
	assert.True(t, r.trusts(author, of))
	assert.True(t, r.trusts(testKey(3), of))
	for range 100 { // whoever alternates has gained nothing
		r.judged(author, of, false, 1)
		r.judged(author, of, false, 1)
		r.judged(author, of, true, 1)
	}
	assert.False(t, r.trusts(author, of))
}
