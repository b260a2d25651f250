// Package front has what servers put before all their handlers.
package front

import (
	"io"
	"net/http"
	"time"
)

// leastRate is how fast a body must come beyond what time it has in any case, in bytes a second on the average.
const leastRate = 1 << 10

// Bodies gives the body of a request a while to come, and more for what comes of it. net/http reads some of what a handler has left
// unread before it answers, and waits for that without end: who announces a body and sends none keeps a connection for good. A handler
// may set deadlines of its own before it reads.
func Bodies(h http.Handler, most time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			b := &body{ReadCloser: r.Body, c: http.NewResponseController(w), by: time.Now().Add(most), most: most}
			// Where there can't be one, somebody else answers for the connection.
			_ = b.c.SetReadDeadline(b.by)
			defer func() { _ = b.c.SetReadDeadline(time.Now().Add(most)) }() // that of the handler is over
			r.Body = b
		}
		h.ServeHTTP(w, r)
	})
}

// body is a body as it comes. Owned by whoever reads it.
type body struct {
	io.ReadCloser
	c    *http.ResponseController
	by   time.Time
	most time.Duration // until more comes
}

// Read implements [io.Reader]. When all has come the handler has the time that it takes.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	var by time.Time
	if err == nil {
		b.by = b.by.Add(time.Duration(n) * (time.Second / leastRate))
		if by = time.Now().Add(b.most); b.by.Before(by) {
			by = b.by
		}
	}
	_ = b.c.SetReadDeadline(by)
	return n, err
}
