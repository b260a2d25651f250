package gitfetch_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/gittest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// A server that supports only version 0, and answers 400 to clients without multi_ack, like Azure
// DevOps, could not be used. The answers of all variants work, with and without common commits.
func TestCaseC24_CapabilitiesOfVersion0(t *testing.T) {
	for name, c := range map[string]struct {
		hidden []string // capabilities that the server does not offer
		want   string   // capabilities that git requests
	}{
		"all":           {nil, "multi_ack_detailed side-band-64k ofs-delta thin-pack no-progress"},
		"multi_ack":     {[]string{"multi_ack_detailed"}, "multi_ack side-band-64k ofs-delta thin-pack no-progress"},
		"no acks":       {[]string{"multi_ack_detailed", "multi_ack"}, "side-band-64k ofs-delta thin-pack no-progress"},
		"side-band":     {[]string{"side-band-64k"}, "multi_ack_detailed side-band ofs-delta thin-pack no-progress"},
		"no side band":  {[]string{"side-band-64k", "side-band"}, "multi_ack_detailed ofs-delta thin-pack no-progress"},
		"nothing else":  {[]string{"multi_ack_detailed", "side-band-64k", "side-band", "ofs-delta", "thin-pack", "no-progress"}, "multi_ack"},
		"old and plain": {[]string{"multi_ack_detailed", "multi_ack", "side-band-64k", "side-band", "ofs-delta", "thin-pack", "no-progress"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			git := func(args ...string) string { return gittest.Run(t, root, args...) }
			git("init", "-q", "--bare", "ours.git")
			git("init", "-q", "-b", "main", "theirs")
			commit := func(text string) (id nip34.ObjectID) {
				require.NoError(t, os.WriteFile(filepath.Join(root, "theirs", "f"), []byte(text), 0o600))
				git("-C", "theirs", "add", "f")
				git("-C", "theirs", "commit", "-q", "-m", text)
				id, err := nip34.ParseObjectID(git("-C", "theirs", "rev-parse", "HEAD"))
				require.NoError(t, err)
				return id
			}
			backend := gittest.Backend(t, root)
			var named []string // capabilities of each request
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del("Git-Protocol")
				if r.Method == http.MethodGet {
					answer := httptest.NewRecorder()
					backend.ServeHTTP(answer, r)
					text := answer.Body.String()
					for _, name := range c.hidden { // keeps the length of the packet
						text = regexp.MustCompile(`([ \x00])`+name+` `).ReplaceAllString(text, "${1}"+strings.Repeat("x", len(name))+" ")
					}
					w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
					_, _ = io.WriteString(w, text)
					return
				}
				body, err := io.ReadAll(r.Body)
				if err != nil {
					http.Error(w, "cut off", http.StatusBadRequest)
					return
				}
				first, _, _ := strings.Cut(string(body[len("0032want ")+40:]), "\n")
				first, _, _ = strings.Cut(strings.TrimSpace(first), " object-format=")
				first = strings.TrimPrefix(first, "object-format=sha1")
				named = append(named, first)
				if first != c.want {
					http.Error(w, "capabilities: "+first, http.StatusBadRequest)
					return
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				r.ContentLength = int64(len(body))
				backend.ServeHTTP(w, r)
			}))
			defer server.Close()
			dialer, err := egress.NewDialer(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPlaintext: true})
			require.NoError(t, err)
			f, err := gitfetch.New(t.Context(), gitfetch.Config{Dialer: dialer, MinFreeDisk: 1})
			require.NoError(t, err)
			defer f.Close()
			from, err := graspsync.ParseCloneURL(server.URL + "/theirs/.git")
			require.NoError(t, err)
			ours := filepath.Join(root, "ours.git")
			main, err := nip34.ParseRefName("refs/heads/main")
			require.NoError(t, err)
			var old nip34.ObjectID
			for _, text := range []string{"first", "second", "third"} { // the server receives our haves
				id := commit(strings.Repeat(text+"\n", 1000))
				require.NoError(t, fetch(t.Context(), f, ours, from, id))
				require.NoError(t, f.UpdateRefs(t.Context(), ours, []refplan.RefChange{{Name: main, Old: old, New: id}}, main))
				old = id
			}
			require.Equal(t, []string{c.want, c.want, c.want}, named)
			git("-C", "ours.git", "fsck", "--strict")
		})
	}
}
