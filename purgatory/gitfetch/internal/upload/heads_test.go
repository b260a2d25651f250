package upload

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// headed is a server that answers all requests with one header and body.
func headed(t *testing.T, status int, header http.Header, body string) (*Client, graspsync.CloneURL) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	u, err := graspsync.ParseCloneURL(srv.URL + "/r.git")
	require.NoError(t, err)
	return &Client{HTTP: srv.Client(), Limits: Limits{AdvertBytes: 1 << 12, AdvertRefs: 5, PackBytes: 1 << 10, PackObjects: 5}}, u
}

// For each request, the header of a response is checked before the body is read, and its text is
// escaped.
func TestResponsesAreJudgedByTheirHead(t *testing.T) {
	for _, tt := range []struct {
		status      int
		kind, coded string
		want        error
	}{
		{http.StatusNotFound, "", "", ErrNotFound},
		{http.StatusGone, "", "", ErrNotFound},
		{http.StatusUnauthorized, "", "", ErrAuth},
		{http.StatusProxyAuthRequired, "", "", ErrAuth},
		{http.StatusForbidden, "", "", ErrStatus},
		{http.StatusNoContent, "", "", ErrStatus},
		{http.StatusBadGateway, "", "", ErrStatus},
		{http.StatusOK, "", "", ErrProtocol},
		{http.StatusOK, "text/html\u202e", "", ErrProtocol},
		{http.StatusOK, "KIND", "br", ErrProtocol},
		{http.StatusOK, "KIND", "gzip, gzip", ErrProtocol},
	} {
		for request, kind := range map[string]string{"discover": advertisement, "fetch": uploadResult, "list": uploadResult} {
			header := http.Header{"Content-Type": nil}
			if tt.kind != "" {
				header.Set("Content-Type", strings.ReplaceAll(tt.kind, "KIND", kind))
			}
			if tt.coded != "" {
				header.Set("Content-Encoding", tt.coded)
			}
			c, u := headed(t, tt.status, header, "")
			s := &Server{Version: 2, base: u.String()}
			var out bytes.Buffer
			m := &count{}
			var err error
			switch request {
			case "discover":
				_, err = c.Discover(t.Context(), u, m)
			case "fetch":
				err = c.Fetch(t.Context(), s, []nip34.ObjectID{oid(t, idA)}, nil, &out, m)
			case "list":
				err = c.ListTips(t.Context(), s, m)
			}
			require.ErrorIs(t, err, tt.want, "%s: %d %q %q", request, tt.status, tt.kind, tt.coded)
			require.NotContains(t, err.Error(), "\u202e")
			require.Zero(t, out.Len())
			require.Zero(t, m.begun, "nothing is waited for")
			require.Zero(t, m.n, "nothing was read")
		}
	}
	// Spellings of the content type that known servers use.
	for _, kind := range []string{advertisement, strings.ToUpper(advertisement), advertisement + "; charset=utf-8", advertisement + " ;x"} {
		c, u := headed(t, http.StatusOK, http.Header{"Content-Type": {kind}, "Content-Encoding": {"Identity"}},
			line("version 2\n")+line("fetch\n")+"0000")
		_, err := c.Discover(t.Context(), u, &count{})
		require.NoError(t, err, kind)
	}
}

// Each limit of an answer: at the limit it passes, above the limit an error names it, and no data
// of too large packs is passed on.
func TestLimitsOfAnswers(t *testing.T) {
	pack := func(objects byte, rest int) string {
		return "PACK\x00\x00\x00\x02\x00\x00\x00" + string(objects) + strings.Repeat("x", rest)
	}
	answer := func(bytes string) string { return line("packfile\n") + line("\x01"+bytes) }
	progress := strings.Repeat(line("\x02"+strings.Repeat("z", 1<<12-1)), maxProgress>>12)
	for name, tt := range map[string]struct{ body, limit string }{
		"as many bytes as may":   {answer(pack(5, 1<<10-packHeader)) + "0000", ""},
		"one byte more":          {answer(pack(5, 1<<10-packHeader+1)) + "0000", "pack bytes"},
		"one object more":        {answer(pack(6, 0)) + "0000", "pack objects"},
		"as much talk as may":    {line("packfile\n") + progress + line("\x01"+pack(1, 0)) + "0000", ""},
		"a bit more talk":        {line("packfile\n") + progress + line("\x02") + "0000", "progress bytes"},
		"packets of nothing":     {line("packfile\n") + strings.Repeat(line("\x01"), maxFraming>>2) + line("\x01"+pack(1, 0)) + "0000", ""},
		"a few more":             {line("packfile\n") + strings.Repeat(line("\x01"), maxFraming>>2+2) + "0000", "bytes of packets with nothing in them"},
		"a header in two pieces": {line("packfile\n") + line("\x01"+pack(6, 0)[:11]) + line("\x01"+pack(6, 0)[11:]) + "0000", "pack objects"},
	} {
		c, u := headed(t, http.StatusOK, http.Header{"Content-Type": {uploadResult}}, tt.body)
		var out bytes.Buffer
		err := c.Fetch(t.Context(), &Server{Version: 2, base: u.String()}, []nip34.ObjectID{oid(t, idA)}, nil, &out, &count{})
		if tt.limit == "" {
			require.NoError(t, err, name)
			require.Positive(t, out.Len(), name)
			continue
		}
		var limit *LimitError
		require.ErrorAs(t, err, &limit, name)
		require.Equal(t, tt.limit, limit.Limit, name)
		require.Zero(t, out.Len(), name)
	}

	long := line("version 2\n") + line("fetch\n") + strings.Repeat(line(strings.Repeat("x", 1<<9)+"\n"), 8) + "0000"
	c, u := headed(t, http.StatusOK, http.Header{"Content-Type": {advertisement}}, long)
	_, err := c.Discover(t.Context(), u, &count{})
	var limit *LimitError
	require.ErrorAs(t, err, &limit)
	require.Equal(t, "advertisement bytes", limit.Limit)

	tips := strings.Repeat(line(idA+" a\n"), 6) + "0000"
	c, u = headed(t, http.StatusOK, http.Header{"Content-Type": {uploadResult}}, tips)
	require.ErrorAs(t, c.ListTips(t.Context(), &Server{Version: 2, base: u.String()}, &count{}), &limit)
	require.Equal(t, "refs", limit.Limit)
}
