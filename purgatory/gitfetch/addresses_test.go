package gitfetch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
)

// The daily limit of a server applied per host name. With a DNS wildcard a server has any number of
// names. It applies per address.
func TestPromiseP17_ManyNamesOfOneAddress(t *testing.T) {
	there := bare(t, nip34.SHA1)
	tip := history(t, there, "main", 30)[29]
	o := serve(t, there, nil)
	f := fetcher(t, gitfetch.Config{MaxAddressDay: 5000})
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
