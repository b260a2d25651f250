package gitserve_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// Without [gitserve.Config.Client], a public address, or a /64 of IPv6, is a client with limits.
// Private addresses have no limits, because proxies have private addresses.
func TestClientsWithoutAConfig(t *testing.T) {
	for _, c := range []struct {
		first, second string
		code          int
	}{
		{"203.0.113.1:1", "203.0.113.1:2", http.StatusServiceUnavailable},
		{"203.0.113.1:1", "203.0.113.2:1", http.StatusOK},
		{"[::ffff:203.0.113.1]:1", "203.0.113.1:2", http.StatusServiceUnavailable},
		{"[2001:db8::1]:1", "[2001:db8::2]:1", http.StatusServiceUnavailable},
		{"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", http.StatusOK},
		{"10.0.0.1:1", "10.0.0.1:2", http.StatusOK},
		{"127.0.0.1:1", "127.0.0.1:2", http.StatusOK},
		{"@", "@", http.StatusOK}, // a Unix socket
	} {
		r := newRig(t, gitserve.Config{}.With(gitserve.Fixed{MaxReaders: 8, MaxPerClient: 1, Wait: 50 * time.Millisecond}))
		ask := func(from string, body io.Reader) int {
			req := httptest.NewRequest("POST", "/"+owner.Npub()+"/x.git/"+uploadPack, body)
			req.RemoteAddr = from
			w := httptest.NewRecorder()
			r.git.Middleware(http.NotFoundHandler()).ServeHTTP(w, req)
			return w.Code
		}
		ended, body := make(chan struct{}), &waiting{more: make(chan struct{})}
		go func() {
			defer close(ended)
			ask(c.first, body)
		}()
		r.taken(t, "requests", "fetch", 1)
		require.Equal(t, c.code, ask(c.second, strings.NewReader("0000")), "%s beside %s", c.second, c.first)
		close(body.more)
		<-ended
	}
}

// waiting is a body that ends when the test ends it.
type waiting struct{ more chan struct{} }

func (e *waiting) Read([]byte) (int, error) {
	<-e.more
	return 0, errors.New("gone")
}
