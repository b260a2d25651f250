package purgatory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// All repositories with an identifier had a family made for each look, of the same announcements.
func TestAFamilyIsMadeOnce(t *testing.T) {
	var f families
	rule := nip34.Membership{}
	announcement := func(n, lists int) *nip34.Announcement {
		a := &nip34.Announcement{ID: graspsync.EventID{byte(n), byte(n >> 8)}, Ref: graspsync.RepoRef{Owner: graspsync.PubKey{byte(n), byte(n >> 8)}, Identifier: "x"}}
		for i := range lists {
			a.Maintainers = append(a.Maintainers, graspsync.PubKey{1, byte(i), byte(i >> 8)})
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
	many := announcement(4, 12_500)
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
		require.Len(t, f.recent, len(f.byName))
		require.Contains(t, f.byName, "0", "it is asked for again and again")
		require.NotNil(t, f.of(rule, "0", []*nip34.Announcement{many}))
	}
	require.Len(t, f.byName, (maxFamilyListings-1)/12_501)
	for n := range 3 * maxFamilies {
		f.of(rule, fmt.Sprint("small", n), []*nip34.Announcement{a})
	}
	require.Len(t, f.byName, maxFamilies)
	// One with more than all may have is kept, with and without what expired softly, and the
	// others are when it is not asked for any more.
	huge := announcement(5, 2*maxFamilyListings)
	soft, hard := f.of(rule, "x", []*nip34.Announcement{huge, a}), f.of(rule, "x", []*nip34.Announcement{huge})
	for range 3 {
		require.Same(t, soft, f.of(rule, "x", []*nip34.Announcement{huge, a}))
		require.Same(t, hard, f.of(rule, "x", []*nip34.Announcement{huge}))
	}
	require.Len(t, f.byName, 1)
	f.of(rule, "y", []*nip34.Announcement{a})
	require.Len(t, f.byName, 1)
	require.Equal(t, 4, f.listings)
}

// Two identifiers that many are listed under had all families forgotten with each look at either.
func TestFamiliesOfTwoCrowds(t *testing.T) {
	var f families
	made := make(map[string]*nip34.Family)
	for range 3 {
		for _, name := range []string{"x", "y"} {
			var all []*nip34.Announcement
			for n := range 400 {
				a := &nip34.Announcement{ID: graspsync.EventID{byte(n), byte(n >> 8)}, Ref: graspsync.RepoRef{Owner: graspsync.PubKey{byte(n), byte(n >> 8)}, Identifier: name}}
				for i := range nip34.MaxMaintainers {
					a.Maintainers = append(a.Maintainers, graspsync.PubKey{1, byte(i)})
				}
				all = append(all, a)
			}
			is := f.of(nip34.Membership{}, name, all)
			if made[name] != nil {
				require.Same(t, made[name], is)
			}
			made[name] = is
		}
	}
}
