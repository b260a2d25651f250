package front_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/front"
)

// A request whose body never came was never answered, and kept its connection.
func TestBodies(t *testing.T) {
	s := httptest.NewServer(front.Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" { // it has a deadline of its own
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

// An upload that comes slowly, and comes, was cut after as long as a body may keep its connection that does not.
func TestBodiesThatCome(t *testing.T) {
	s := httptest.NewServer(front.Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		time.Sleep(100 * time.Millisecond) // what it does about it
		if err == nil {
			err = r.Context().Err()
		}
		_, _ = fmt.Fprint(w, n, err)
	}), 50*time.Millisecond))
	defer s.Close()
	in, out := io.Pipe()
	go func() {
		for range 20 {
			time.Sleep(20 * time.Millisecond)
			_, _ = out.Write(make([]byte, 1000))
		}
		_ = out.Close()
	}()
	resp, err := http.Post(s.URL, "", in) //nolint:noctx // it is over soon
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "20000 <nil>", string(text))
}

// What came at once was credit for a byte now and then: a connection for a quarter of an hour and a megabyte. And a deadline that
// a handler had set was forgotten with the first byte.
func TestBodiesThatStop(t *testing.T) {
	for name, own := range map[string]time.Duration{"after most of it": 0, "in time for all but the handler": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			most := 50 * time.Millisecond
			if own > 0 {
				most = time.Minute
			}
			took := make(chan time.Duration, 1)
			s := httptest.NewServer(front.Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// A handler that goes on working when all has come was ended with the time for that: net/http reads on to see whether the client
// goes, and took the deadline for its going. A push ended while git worked.
func TestWorkAfterTheBody(t *testing.T) {
	const most = 100 * time.Millisecond
	for name, c := range map[string]struct{ before, after bool }{
		"a deadline for each read, and none then": {true, true}, "none then": {false, true}, "a deadline before": {true, false}, "nothing": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(front.Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn := http.NewResponseController(w)
				if c.before {
					_ = conn.SetReadDeadline(time.Now().Add(most))
				}
				_, err := io.Copy(io.Discard, r.Body)
				if c.after {
					_ = conn.SetReadDeadline(time.Time{})
				}
				select {
				case <-r.Context().Done():
					err = r.Context().Err()
				case <-time.After(4 * most):
				}
				_, _ = fmt.Fprint(w, err)
			}), most))
			defer s.Close()
			resp, err := http.Post(s.URL, "", strings.NewReader(strings.Repeat("x", 100))) //nolint:noctx // it is over soon
			require.NoError(t, err)
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, "<nil>", string(text))
		})
	}
}
