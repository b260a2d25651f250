package gitfetch_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

// A complete and wanted history is refused if an object is malformed, unless the fault is a known
// harmless one of old programs.
func TestPromiseP31_MalformedObjects(t *testing.T) {
	for _, c := range []struct {
		name  string
		entry string // of the tree
		who   string
		taken bool
	}{
		{"sound", "100644 f", "a <a@x> 1 +0000", true},
		{"named .git", "100644 .git", "a <a@x> 1 +0000", false},
		{"named ..", "100644 ..", "a <a@x> 1 +0000", false},
		{"with a slash", "100644 a/b", "a <a@x> 1 +0000", false},
		{"without an address", "100644 f", "a 1 +0000", true},
		{"NUL in a header", "100644 f", "a\x00 <a@x> 1 +0000", true},
		{"NUL in a header, named .git", "100644 .git", "a\x00 <a@x> 1 +0000", false},
		{"zero-padded", "0100644 f", "a <a@x> 1 +0000", true},
		{"bad time zone", "100644 f", "a <a@x> 1 +00000", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, _ := chain(t)
			blob := g.add("blob", []byte("x\n"))
			tree := g.add("tree", append([]byte(c.entry+"\x00"), unhex(blob.id.String())...), blob.id)
			commit := g.add("commit", fmt.Appendf(nil, "tree %s\nauthor %s\ncommitter %s\n\nx\n", tree.id, c.who, c.who), tree.id)
			pack := packOf(object(1, commit.body), object(2, tree.body), object(3, blob.body))
			here := sample(t)
			before := digest(t, here)
			o := serve(t, here, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				v2(func(w io.Writer) {
					fmt.Fprint(w, pkt("packfile\n"))
					_ = band(w, pack)
					fmt.Fprint(w, "0000")
				})(w, r)
			})
			err := attempt(t.Context(), fetcher(t), here, o.clone(t), commit.id)
			if c.taken {
				require.NoError(t, err)
			} else {
				require.Error(t, err)
				require.NotErrorIs(t, err, errStillMissing)
			}
			require.Equal(t, before, digest(t, here))
			require.Equal(t, nip34.SHA1, commit.id.Format())
		})
	}
}
