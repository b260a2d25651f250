package eventstoreadapter

import (
	"testing"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTraitsOf(t *testing.T) {
	db := &badger.BadgerBackend{MaxLimit: 700, MaxLimitNegentropy: 9000}
	for _, backend := range []eventstore.Store{db, pointer{db}, &pointer{db}, struct{ *badger.BadgerBackend }{db}} {
		p, err := traitsOf(backend)
		require.NoError(t, err)
		assert.Equal(t, []any{700, 1 << 18, false, true}, []any{p.Page, p.Exempt, p.Memory, p.Prefixes})
	}
	p, err := traitsOf(&slicestore.SliceStore{MaxLimit: 600})
	require.NoError(t, err)
	assert.Equal(t, []any{600, 1 << 18, true, false}, []any{p.Page, p.Exempt, p.Memory, p.Prefixes})
	_, err = New(&badger.BadgerBackend{}, Config{})
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "Init of *badger.BadgerBackend was not called")
	for _, other := range []eventstore.Store{struct{ eventstore.Store }{}, &pointer{}} {
		_, err := New(other, Config{})
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "badger, lmdb or slicestore")
		require.ErrorContains(t, err, "storetest")
	}
}

type pointer struct{ eventstore.Store }
