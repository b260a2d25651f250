package eventstoreadapter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	upstream "github.com/dgraph-io/badger/v4"
	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
)

// backends returns a Store over each supported backend.
func backends(t *testing.T) map[string]*Store {
	t.Helper()
	stores := make(map[string]*Store)
	for _, page := range []int{0, 100} {
		b := &badger.BadgerBackend{Path: t.TempDir(), MaxLimit: page, BadgerOptionsModifier: func(o upstream.Options) upstream.Options {
			return o.WithLoggingLevel(upstream.ERROR)
		}}
		require.NoError(t, b.Init())
		t.Cleanup(b.Close)
		l := &slicestore.SliceStore{MaxLimit: page}
		require.NoError(t, l.Init())
		for name, db := range map[string]eventstore.Store{"badger": b, "slicestore": l} {
			s, err := New(db, Config{NoSync: true})
			require.NoError(t, err)
			stores[fmt.Sprint(name, page)] = s
		}
	}
	return stores
}

// asked returns the ids that a client receives.
func asked(t *testing.T, s *Store, f nostr.Filter) []string {
	t.Helper()
	ch, err := s.Query(t.Context(), f)
	require.NoError(t, err, f)
	ids := []string{}
	for e := range ch {
		ids = append(ids, e.ID)
	}
	return ids
}

// some is the template of the events in these tests.
var some = nostr.Event{PubKey: strings.Repeat("a1", 32), Kind: 1, CreatedAt: 1_700_000_000, Sig: strings.Repeat("0", 128)}

// For every backend, answers and counts follow NIP-01: the newest events, within a second the
// lowest ids, and the complete number.
func TestAnyBackendIsLikeAnyOther(t *testing.T) {
	racetest.Amounts(t)
	alice, bob := strings.Repeat("a1", 32), strings.Repeat("b0", 32)
	like := alice[:16] + bob[16:] // an author with the same key
	names := []string{"t", "a", "e", "p", "K", "alt"}
	values := []string{"bug", "bugs", "a&b", "a_b", "BUG", "x y", "30617:" + alice + ":r", alice, strings.Repeat("l", 120), ""}
	kinds := []int{1, 1111, 1617, 1621, 1984, 7, 5, 6, 8, 9, 3, 2}
	for name, s := range backends(t) {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, 2))
			pick := func(list []string) []string {
				out := make([]string, 1+rnd.IntN(3))
				for i := range out {
					out[i] = list[rnd.IntN(len(list))]
				}
				return out
			}
			var all []*nostr.Event
			for range 400 {
				e := some
				e.PubKey, e.Kind = []string{alice, bob}[rnd.IntN(2)], kinds[rnd.IntN(6)]
				e.CreatedAt += nostr.Timestamp(rnd.IntN(60))
				for range rnd.IntN(4) {
					e.Tags = append(e.Tags, nostr.Tag{names[rnd.IntN(len(names))], values[rnd.IntN(len(values))]})
				}
				e.Content = fmt.Sprint(len(all))
				e.ID = e.GetID()
				all = append(all, &e)
				require.NoError(t, s.backend.SaveEvent(t.Context(), &e))
			}
			slices.SortFunc(all, order)
			questions := []nostr.Filter{
				{}, {Kinds: kinds}, {Kinds: []int{1, 1}}, {Kinds: []int{65537}}, {Kinds: []int{-65535}}, {Kinds: []int{65537, 1}}, {Authors: []string{alice, alice}},
				{Authors: []string{}}, {Authors: []string{}, Kinds: []int{1}}, {Authors: []string{strings.ToUpper(alice)}}, {Authors: []string{"x"}},
				{Authors: []string{"x", alice}}, {Authors: []string{like}}, {Authors: []string{like, alice}}, {Authors: []string{like}, Kinds: []int{1}},
				{IDs: []string{all[3].ID, all[9].ID, all[9].ID, "x"}}, {IDs: []string{all[3].ID, all[9].ID}, Authors: []string{alice}}, {IDs: []string{}},
				{Tags: nostr.TagMap{"t": values}}, {Tags: nostr.TagMap{"t": {}}}, {Tags: nostr.TagMap{"t": nil}}, {Tags: nostr.TagMap{"t": {"bug"}, "p": nil}},
				{Since: ptr(some.CreatedAt + 30), Until: ptr(some.CreatedAt + 20)}, {Since: ptr(some.CreatedAt + 30), Until: ptr(some.CreatedAt + 30)},
			}
			many := slices.Clone(values[:5]) // an event may have one of the first and one of the last
			for i := range 600 {
				many = append(many, fmt.Sprint(i))
			}
			questions = append(questions, nostr.Filter{Tags: nostr.TagMap{"t": append(many, values[5:]...)}})
			for _, v := range values {
				for _, n := range names {
					questions = append(questions, nostr.Filter{Tags: nostr.TagMap{n: {v}}}, nostr.Filter{Tags: nostr.TagMap{n: {v}}, Kinds: []int{1, 7}})
				}
			}
			for range 300 {
				var f nostr.Filter
				if rnd.IntN(2) == 0 {
					f.Kinds = kinds[:1+rnd.IntN(len(kinds))]
				}
				if rnd.IntN(3) == 0 {
					f.Authors = pick([]string{alice, bob, like})
				}
				if rnd.IntN(3) == 0 {
					f.Since = ptr(some.CreatedAt + nostr.Timestamp(rnd.IntN(60)))
				}
				if rnd.IntN(3) == 0 {
					f.Until = ptr(some.CreatedAt + nostr.Timestamp(rnd.IntN(60)))
				}
				for range rnd.IntN(3) {
					if f.Tags == nil {
						f.Tags = nostr.TagMap{}
					}
					f.Tags[names[rnd.IntN(len(names))]] = pick(values)
				}
				questions = append(questions, f)
			}
			for _, f := range questions {
				want := []string{}
				for _, e := range all {
					if f.Matches(e) {
						want = append(want, e.ID)
					}
				}
				for _, f.Limit = range []int{1, 1 + rnd.IntN(12), 99} {
					require.Equal(t, want[:min(len(want), f.Limit)], asked(t, s, f), f)
				}
			}
		})
	}
}
