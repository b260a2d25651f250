// Package front has what servers put before all their handlers.
package front

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// leastRate is how fast a body must come beyond what time it has in any case, in bytes a second.
const leastRate = 1 << 10

// Bodies gives the body of a request a while to come, and more for what comes of it, as long as that goes on: what came at once is no
// credit for later. net/http reads some of what a handler has left unread before it answers, and waits for that without end: who
// announces a body and sends none keeps a connection for good. A handler may set deadlines of its own, which end it sooner.
func Bodies(h http.Handler, most time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			b := &body{ReadCloser: r.Body, c: http.NewResponseController(w), left: most, most: most}
			b.begin() // whoever reads it
			// net/http looks at the body of its own request to know whether the connection can be kept, and removes the files of its form.
			own := r
			r = r.WithContext(r.Context())
			defer func() {
				own.MultipartForm = r.MultipartForm
				_ = b.c.SetReadDeadline(time.Now().Add(most)) // that of the handler is over
			}()
			r.Body, w = b, &writer{w, b}
		}
		h.ServeHTTP(w, r)
	})
}

// body is a body as it comes. Owned by whoever reads it.
type body struct {
	io.ReadCloser
	c      *http.ResponseController
	left   time.Duration // for which a read may wait: what the handler does meanwhile is not the client's time
	by     time.Time     // until when the read does that is under way, or the last one did
	most   time.Duration // of left
	theirs time.Time     // the handler's deadline; zero: it has none
	ended  bool          // nothing is read of it any more
}

// Read implements [io.Reader]. When all has come the handler has the time that it takes.
func (b *body) Read(p []byte) (int, error) {
	began := b.begin()
	n, err := b.ReadCloser.Read(p)
	b.left = min(b.most, b.left-time.Since(began)+time.Duration(n)*(time.Second/leastRate))
	if errors.Is(err, io.EOF) {
		b.end()
	}
	return n, err
}

// begin gives what is read next the time that there is.
func (b *body) begin() time.Time {
	now := time.Now()
	if !b.ended {
		b.by = now.Add(b.left)
		b.set()
	}
	return now
}

// Close implements [io.Closer]. net/http reads some of what is left then, which has no more time than there was for the next read.
func (b *body) Close() error {
	b.begin()
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// end has the deadline end no more than the body: net/http reads on to see whether the client goes, and takes it for that.
func (b *body) end() {
	if !b.ended {
		b.ended = true
		_ = b.c.SetReadDeadline(time.Time{})
	}
}

// set has the deadline be the sooner one. Where there can't be one, somebody else answers for the connection.
func (b *body) set() {
	by := b.by
	if !b.theirs.IsZero() && b.theirs.Before(by) {
		by = b.theirs
	}
	_ = b.c.SetReadDeadline(by)
}

// writer is a response whose deadline is that of the body.
type writer struct {
	http.ResponseWriter
	body *body
}

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// SetReadDeadline is for [http.ResponseController].
func (w *writer) SetReadDeadline(by time.Time) error {
	w.body.theirs = by
	if w.body.ended {
		return w.body.c.SetReadDeadline(by)
	}
	w.body.set()
	return nil
}

// Flush implements [http.Flusher].
func (w *writer) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
