package gitfetch

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// What one server sends in a day was bounded by its name: with a wildcard in the DNS it had
// any number of them. All of its names count as one.
func TestPromiseP17_ManyNamesOfOneAddress(t *testing.T) {
	there := bare(t, nip34.SHA1)
	tip := history(t, there, "main", 30)[29]
	o := serve(t, there, nil)
	f := fetcher(t, Config{MaxAddressDay: 5000})
	var got, refused int
	for i := range 8 {
		u, err := graspsync.ParseCloneURL(o.URL + "/repo.git")
		require.NoError(t, err)
		if i%2 == 1 {
			u, err = graspsync.ParseCloneURL(strings.Replace(o.URL, "127.0.0.1", "localhost", 1) + "/repo.git")
			require.NoError(t, err)
		}
		if err = attempt(t.Context(), f, bare(t, nip34.SHA1), u, tip); err == nil {
			got++
			continue
		}
		require.True(t, limited("bytes of one address a day")(err), "%v", err)
		require.ErrorIs(t, err, purgatory.ErrLimit)
		refused++
	}
	require.Positive(t, got)
	require.Less(t, got, 4)
	require.Positive(t, refused)
}

func TestAddressesOfADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &addresses{most: 100}
		a, same := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::ffff:1")
		next, four := netip.MustParseAddr("2001:db8:0:1::1"), netip.MustParseAddr("::ffff:192.0.2.1")
		s.add(a, 60, time.Now())
		require.NoError(t, s.check(same, time.Now()))
		s.add(same, 40, time.Now())
		require.Error(t, s.check(a, time.Now()))
		require.NoError(t, s.check(next, time.Now()))
		s.add(four, 100, time.Now())
		require.Error(t, s.check(netip.MustParseAddr("192.0.2.1"), time.Now()))
		require.NoError(t, s.check(netip.MustParseAddr("192.0.2.2"), time.Now()))
		s.add(netip.Addr{}, 1000, time.Now())
		s.add(next, 0, time.Now())
		require.Len(t, s.spent, 2)
		time.Sleep(24 * time.Hour)
		require.NoError(t, s.check(a, time.Now()))
		s.add(a, 1, time.Now())
		require.NoError(t, s.check(a, time.Now()))
		for i := range maxAddresses + 1000 {
			s.add(netip.MustParseAddr(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)), 1, time.Now())
		}
		require.Len(t, s.spent, 50_000)
	})
}
