package eventstoreadapter

import (
	"strings"
	"testing"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProfileOf(t *testing.T) {
	db := &badger.BadgerBackend{MaxLimit: 700, MaxLimitNegentropy: 9000}
	for _, backend := range []eventstore.Store{db, pointer{db}, &pointer{db}, struct{ *badger.BadgerBackend }{db}} {
		p, err := profileOf(backend)
		require.NoError(t, err)
		assert.Equal(t, []any{700, 9000, false, true}, []any{p.page, p.exempt, p.memory, p.prefixes})
	}
	p, err := profileOf(&slicestore.SliceStore{MaxLimit: 600})
	require.NoError(t, err)
	assert.Equal(t, []any{600, 0, true, false}, []any{p.page, p.exempt, p.memory, p.prefixes})
	_, err = New(&badger.BadgerBackend{}, Config{})
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "Init of *badger.BadgerBackend was not called")
	for _, other := range []eventstore.Store{struct{ eventstore.Store }{}, &pointer{}, &noting{}} {
		_, err := New(other, Config{})
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "badger, lmdb or slicestore")
		require.ErrorContains(t, err, "storetest")
	}
}

type pointer struct{ eventstore.Store }

// However long the lists, what is asked for keeps the one with the fewest events
// and can be halved to single values.
func TestSlimAndHalve(t *testing.T) {
	many := make([]string, 40)
	kinds := make([]int, 40)
	for i := range many {
		many[i], kinds[i] = strings.Repeat("x", i+1), i
	}
	q := nostr.Filter{Kinds: kinds, Authors: many, Tags: nostr.TagMap{"t": many, "a": many, "e": many, "x": many}}
	slimmed := slim(q, 10)
	assert.Equal(t, nostr.Filter{Tags: nostr.TagMap{"e": many}}, slimmed)
	assert.Equal(t, nostr.Filter{Authors: many}, slim(nostr.Filter{Kinds: kinds, Authors: many}, 10))
	assert.Equal(t, nostr.Filter{Kinds: kinds}, slim(nostr.Filter{Kinds: kinds}, 10))
	small := nostr.Filter{Kinds: kinds[:2], Tags: nostr.TagMap{"p": many[:2], "t": many, "x": many[:2]}}
	assert.Equal(t, nostr.Filter{Kinds: kinds[:2], Tags: nostr.TagMap{"p": many[:2], "x": many[:2]}}, slim(small, 10))
	assert.Equal(t, small, slim(small, 100))

	combinations := 0
	var split func(q nostr.Filter)
	split = func(q nostr.Filter) {
		if single(q) {
			combinations++
			return
		}
		a, b := halve(q, q)
		split(a)
		split(b)
	}
	split(nostr.Filter{Kinds: kinds[:3], Authors: many[:5], Tags: nostr.TagMap{"a": many[:4], "b": many[:2]}})
	assert.Equal(t, 3*5*4*2, combinations)
}
