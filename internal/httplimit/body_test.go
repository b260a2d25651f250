package httplimit_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/httplimit"
)

// A request whose body never arrived was never answered, and kept its connection.
func TestBodies(t *testing.T) {
	s := httptest.NewServer(httplimit.Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" { // the handler has a deadline of its own
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
			time.Sleep(100 * time.Millisecond)
		}
		_, _ = fmt.Fprint(w, "hello")
	}), 50*time.Millisecond))
	defer s.Close()
	for _, path := range []string{"/", "/slow"} {
		for _, body := range []string{"Content-Length: 100000", "Transfer-Encoding: chunked"} {
			c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://")) //nolint:noctx // it is over at once
			require.NoError(t, err)
			_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", path, body)
			require.NoError(t, err)
			require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err, "%s %s", path, body)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
			require.NoError(t, c.Close())
		}
	}
}

// A slow but continuous upload was cut off at the time limit for stalled bodies.
func TestSlowBodies(t *testing.T) {
	s := httptest.NewServer(httplimit.Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		time.Sleep(100 * time.Millisecond) // the handler works
		if err == nil {
			err = r.Context().Err()
		}
		_, _ = fmt.Fprint(w, n, err)
	}), 3*time.Second))
	defer s.Close()
	in, out := io.Pipe()
	go func() {
		for range 40 {
			time.Sleep(100 * time.Millisecond)
			_, _ = out.Write(make([]byte, 1000))
		}
		_ = out.Close()
	}()
	resp, err := http.Post(s.URL, "", in) //nolint:noctx // it is over soon
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "40000 <nil>", string(text))
}

// Data that arrived early extended the time for single bytes later, up to a quarter of an hour per
// MB. The first byte also removed a deadline of the handler.
func TestStalledBodies(t *testing.T) {
	for name, own := range map[string]time.Duration{"after most of it": 0, "in time for all but the handler": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			most := 50 * time.Millisecond
			if own > 0 {
				most = time.Minute
			}
			took := make(chan time.Duration, 1)
			s := httptest.NewServer(httplimit.Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if own > 0 {
					_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(own))
				}
				began := time.Now()
				_, err := io.Copy(io.Discard, r.Body)
				if err != nil {
					took <- time.Since(began)
				}
			}), most))
			defer s.Close()
			c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://")) //nolint:noctx // it is over at once
			require.NoError(t, err)
			defer c.Close()
			_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n%s", make([]byte, 1_000_000))
			require.NoError(t, err)
			go func() {
				for {
					time.Sleep(10 * time.Millisecond)
					if _, err := c.Write([]byte{0}); err != nil {
						return
					}
				}
			}()
			select {
			case d := <-took:
				require.Less(t, d, 5*time.Second)
			case <-time.After(10 * time.Second):
				require.Fail(t, "it is waited for")
			}
		})
	}
}

// The files of a form are removed after the answer, like in net/http.
func TestFilesOfAForm(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	files := func() []os.DirEntry {
		list, err := os.ReadDir(folder)
		assert.NoError(t, err)
		return list
	}
	s := httptest.NewServer(httplimit.Bodies(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.NoError(t, r.ParseMultipartForm(0))
		assert.NotEmpty(t, files())
	}), time.Minute))
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	part, err := parts.CreateFormFile("f", "f")
	require.NoError(t, err)
	_, err = part.Write(make([]byte, 1000))
	require.NoError(t, err)
	require.NoError(t, parts.Close())
	resp, err := http.Post(s.URL, parts.FormDataContentType(), &form) //nolint:noctx // it is over at once
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	s.Close()
	require.Empty(t, files())
}

// A handler may pause before and between reads, because git may be slow, and a queue long.
func TestSlowHandlers(t *testing.T) {
	const most = time.Second
	for _, header := range []string{"", "100-continue"} {
		s := httptest.NewServer(httplimit.Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(most + most/10)
			_, err := io.ReadFull(r.Body, make([]byte, 1<<10))
			time.Sleep(most + most/10)
			n, also := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprint(w, n, err, also)
		}), most))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader(strings.Repeat("x", 1<<20)))
		require.NoError(t, err)
		if header != "" {
			req.Header.Set("Expect", header)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, fmt.Sprint(1<<20-1<<10, nil, nil), string(text))
		s.Close()
	}
}
