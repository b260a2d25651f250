package eventstoreadapter

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
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
	p := profileOf(&badger.BadgerBackend{MaxLimit: 700, MaxLimitNegentropy: 9000})
	assert.Equal(t, []any{700, 9000, false, true, true, true}, []any{p.page, p.exempt, p.sorted, p.trusted, p.prefixes, p.compact})
	p = profileOf(&slicestore.SliceStore{MaxLimit: 600})
	assert.Equal(t, []any{600, 0, true, true, false, true}, []any{p.page, p.exempt, p.sorted, p.trusted, p.prefixes, p.serialize})
	p = profileOf(&badger.BadgerBackend{})
	assert.Equal(t, []any{defaultPageSize, false}, []any{p.page, p.trusted}, "Init was not called")
	for _, stranger := range []eventstore.Store{
		struct{ eventstore.Store }{}, &struct{ eventstore.Store }{}, pointer{},
	} {
		p = profileOf(stranger)
		assert.Equal(t, []any{defaultPageSize, defaultMaxValues, false, false, true}, []any{p.page, p.values, p.sorted, p.trusted, p.prefixes})
	}
	p = p.with(Config{PageSize: 5, MaxValues: 6, Serialize: true})
	assert.Equal(t, []any{5, 6, true}, []any{p.page, p.values, p.serialize})
}

type pointer struct{ eventstore.Store }

func TestIndexed(t *testing.T) {
	sqlite := ofSQL("sqlite3", reflect.ValueOf(struct{}{}))
	for _, tt := range []struct {
		name, value string
		badger, sql bool
	}{
		{"a", "30617:x:repo", true, true}, {"Q", "x", true, true},
		{"alt", "x", false, true}, {"", "x", false, true}, {"1", "x", false, true},
		{"a", "", false, true},
		{"a", strings.Repeat("x", 100), true, true}, {"a", strings.Repeat("x", 101), false, true},
		{"a", "100%", true, true}, {"a", "<&>", true, true}, {"a", `back\slash`, true, true},
		{"a", "\x00", true, true}, {"a", "\u00fc", true, true}, {"a", "\u2028", true, true}, {"a", "\xff", true, true},
		{"a", "\b", true, false}, {"a", "\bx", true, true},
	} {
		assert.Equal(t, tt.badger, indexedAnywhere(tt.name, tt.value), tt)
		assert.Equal(t, tt.sql, sqlite.indexed(tt.name, tt.value), tt)
	}
}

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

// What a database looks for is in all that encoding/json has ever written for a value, and says no more than that.
func TestPatterns(t *testing.T) {
	for value, is := range map[string]string{
		"bug": `"bug"`, "": `""`, `say "hi"`: `"say __hi__"`, `a\b`: `"a__b"`, "a&b": `"a______b"`, "a\nb\x01": `"a__b______"`,
		"ab\bcdef\f": `cdef`, "abc\b": `"abc`, "\b": `"`, "\u2028": `"______"`, "\x7f": "\"\x7f\"", "\xff": "\"\ufffd\"",
		strings.Repeat("l", 1000): `"` + strings.Repeat("l", longestPattern),
	} {
		assert.Equal(t, is, inJSON(value, oddInJSON), "%q", value)
	}
	assert.Equal(t, `xyz"`, inJSON("a&xyz", oddInJSON+escapedForHTML))
	for range 10_000 {
		value := make([]rune, 1+rand.IntN(6))
		for i := range value {
			value[i] = []rune("ab\"\\<>&\u2028\u2029\n\r\t\x00\x1f\x7f\b\fü%_")[rand.IntN(20)]
		}
		text, err := json.Marshal(nostr.Tags{{"t", string(value)}})
		require.NoError(t, err)
		require.True(t, like(string(text), inJSON(string(value), oddInJSON)), "%q", value)
	}
}
