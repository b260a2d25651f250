package sync

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync/filters"
)

// A relay can name as many authors and kinds as it likes.
func TestRecordIsBoundedAndForgives(t *testing.T) {
	var r record
	key := func(n int) (k filters.PubKey) {
		binary.BigEndian.PutUint32(k[:], uint32(n)) //nolint:gosec // small
		return k
	}
	known, spammer := key(1), key(2)
	r.judged(known, filters.KindIssue, true)
	for range 100 {
		r.judged(spammer, filters.KindPullRequest, false)
	}
	assert.False(t, r.trusts(spammer, filters.KindIssue, true), "whatever it sends")
	for range distrust {
		r.judged(spammer, filters.KindIssue, true)
	}
	assert.True(t, r.trusts(spammer, filters.KindIssue, true), "for good")
	for i := range 10_000 {
		r.judged(key(10+i), filters.KindPullRequest+i%1_000, false)
	}
	assert.True(t, r.trusts(known, filters.KindPullRequest, false))
	assert.False(t, r.trusts(key(3), filters.KindPullRequest, false))
	assert.True(t, r.trusts(key(3), filters.KindState, true))
	assert.LessOrEqual(t, len(r.good.young)+len(r.good.old), recordAuthors)
	assert.LessOrEqual(t, len(r.bad.young)+len(r.bad.old), recordAuthors)
	assert.LessOrEqual(t, len(r.kinds), recordKinds+1)
}
