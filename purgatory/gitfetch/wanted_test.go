package gitfetch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
)

// Objects that complete an earlier object are useful alone. Unwanted objects are dropped, and
// earlier objects stay.
func TestPromiseP17_OnlyWhatIsWantedIsKept(t *testing.T) {
	g, commits := chain(t)
	there := g.loose(t, nip34.ObjectID{})
	here := bare(t, nip34.SHA1)
	f := fetcher(t)
	q, err := f.Open(here)
	require.NoError(t, err)
	want := []nip34.ObjectID{commits[4].id}
	var ids strings.Builder
	var rest [][]byte
	for _, n := range g.all {
		if n.kind == "commit" {
			ids.WriteString(n.id.String() + "\n")
		} else {
			rest = append(rest, object(map[string]byte{"tree": 2, "blob": 3}[n.kind], n.body))
		}
	}
	gitIn(t, there, ids.String(), "pack-objects", "-q", q.Packs()+"/pack")
	before := digest(t, q.Path())

	o := serve(t, here, nil)
	o.Config.Handler = sendPack(packOf(object(3, []byte("junk"))))
	n, err := q.Fetch(t.Context(), o.clone(t), want)
	require.ErrorIs(t, err, gitfetch.ErrUnwanted)
	require.ErrorIs(t, err, purgatory.ErrNotServed)
	require.Positive(t, n)
	require.Equal(t, before, digest(t, q.Path()))

	o.Config.Handler = sendPack(packOf(rest...))
	_, err = q.Fetch(t.Context(), o.clone(t), want)
	require.NoError(t, err)
	wholly(t, q, want)
	require.NoError(t, q.Discard())
}
