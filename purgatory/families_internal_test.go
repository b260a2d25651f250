package purgatory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
)

// All repositories with an identifier had a family made for each look, of the same announcements.
func TestAFamilyIsMadeOnce(t *testing.T) {
	var f families
	rule := nip34.Membership{}
	announcement := func(n, lists int) *nip34.Announcement {
		a := &nip34.Announcement{ID: filters.EventID{byte(n), byte(n >> 8)}, Ref: filters.RepoRef{Owner: filters.PubKey{byte(n), byte(n >> 8)}, Identifier: "x"}}
		for i := range lists {
			a.Maintainers = append(a.Maintainers, filters.PubKey{1, byte(i), byte(i >> 8)})
		}
		return a
	}
	a, b, c := announcement(1, 3), announcement(2, 0), announcement(3, 1)
	both := f.of(rule, "x", []*nip34.Announcement{a, b})
	require.NotNil(t, both.Announcement(b.Ref.Owner))
	require.Same(t, both, f.of(rule, "x", []*nip34.Announcement{b, a}))
	hard := f.of(rule, "x", []*nip34.Announcement{a})
	require.Nil(t, hard.Announcement(b.Ref.Owner))
	require.Same(t, both, f.of(rule, "x", []*nip34.Announcement{a, b}))
	require.NotSame(t, both, f.of(rule, "y", []*nip34.Announcement{a, b}))
	for range 40 { // as announcements come and go
		with := f.of(rule, "x", []*nip34.Announcement{a, c})
		require.NotNil(t, with.Announcement(c.Ref.Owner))
		require.Same(t, with, f.of(rule, "x", []*nip34.Announcement{a, c}))
		f.of(rule, "x", []*nip34.Announcement{a, b, c})
		require.Len(t, f.byName["x"], 2)
	}
	many := announcement(4, 5_000)
	for n := range 3 * maxFamilies {
		made := f.of(rule, fmt.Sprint(n), []*nip34.Announcement{many})
		require.Same(t, made, f.of(rule, fmt.Sprint(n), []*nip34.Announcement{many}))
		sum := 0
		for _, same := range f.byName {
			for _, k := range same {
				sum += k.listings
			}
		}
		require.Equal(t, sum, f.listings)
		require.LessOrEqual(t, f.listings, maxFamilyListings)
		require.LessOrEqual(t, len(f.byName), maxFamilies)
	}
	huge := announcement(5, 2*maxFamilyListings)
	require.Same(t, f.of(rule, "x", []*nip34.Announcement{huge}), f.of(rule, "x", []*nip34.Announcement{huge}))
}
