package gitfetch_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

// Data received before an error about a missing object is not part of the next answer.
func TestTrapG7_LacksInTheMiddleOfAPack(t *testing.T) {
	there := bare(t, nip34.SHA1)
	tip, absent := history(t, there, "main", 5)[4], oid(t, strings.Repeat("a", 40))
	o := serve(t, there, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if !strings.Contains(string(body), absent.String()) {
			next.ServeHTTP(w, r)
			return
		}
		v2(func(w io.Writer) {
			fmt.Fprint(w, pkt("packfile\n"))
			_ = band(w, append(packHeader(3), object(3, []byte("x"))...))
			fmt.Fprint(w, pkt("\x03upload-pack: not our ref "+absent.String()))
		})(w, r)
	})
	here := bare(t, nip34.SHA1)
	f := fetcher(t)
	q, err := f.Quarantine(t.Context(), here)
	require.NoError(t, err)
	_, err = q.Fetch(t.Context(), o.clone(t), []nip34.ObjectID{absent, tip})
	require.NoError(t, err)
	missing, err := q.Missing(t.Context(), []nip34.ObjectID{absent, tip})
	require.NoError(t, err)
	require.Equal(t, []nip34.ObjectID{absent}, missing)
	require.NoError(t, q.Discard())
	require.Empty(t, leftovers(t, here))
}
