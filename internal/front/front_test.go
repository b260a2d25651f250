package front_test

import (
	"bufio"
	"fmt"
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
