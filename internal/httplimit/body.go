// Package httplimit limits idle connections and slow request bodies of HTTP servers.
package httplimit

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// minRate is the minimum speed of a body after the initial time, in bytes per second.
const minRate = 1 << 10

// Bodies limits the time for a request body to most, plus one second per received minRate bytes,
// never more than most from now. net/http would wait forever. A handler may set earlier deadlines.
func Bodies(h http.Handler, most time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			b := &body{ReadCloser: r.Body, c: http.NewResponseController(w), remaining: most, most: most}
			b.begin() // limits all readers of the body
			// net/http reads the body of its own request, and removes the files of its form.
			own := r
			r = r.WithContext(r.Context())
			defer func() {
				own.MultipartForm = r.MultipartForm
				_ = b.c.SetReadDeadline(time.Now().Add(most)) // replaces the deadline of the handler
			}()
			r.Body, w = b, &writer{w, b}
		}
		h.ServeHTTP(w, r)
	})
}

// body is a request body with deadlines. Its reader owns it.
type body struct {
	io.ReadCloser
	c               *http.ResponseController
	remaining       time.Duration // remaining wait for reads, without the time of the handler
	readDeadline    time.Time     // deadline of the current or last read
	most            time.Duration // maximum of remaining
	handlerDeadline time.Time     // deadline of the handler; zero: none
	ended           bool          // the body is complete or closed
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	began := b.begin()
	n, err := b.ReadCloser.Read(p)
	b.remaining = min(b.most, b.remaining-time.Since(began)+time.Duration(n)*(time.Second/minRate))
	if errors.Is(err, io.EOF) {
		b.end()
	}
	return n, err
}

func (b *body) begin() time.Time {
	now := time.Now()
	if !b.ended {
		b.readDeadline = now.Add(b.remaining)
		b.set()
	}
	return now
}

// Close implements [io.Closer]. net/http then reads a part of the rest.
func (b *body) Close() error {
	b.begin()
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// end removes the deadline, which net/http would take for a disconnect.
func (b *body) end() {
	if !b.ended {
		b.ended = true
		_ = b.c.SetReadDeadline(time.Time{})
	}
}

// set sets the earlier of both deadlines. An error means that the connection has none.
func (b *body) set() {
	by := b.readDeadline
	if !b.handlerDeadline.IsZero() && b.handlerDeadline.Before(by) {
		by = b.handlerDeadline
	}
	_ = b.c.SetReadDeadline(by)
}

// writer passes read deadlines to the body.
type writer struct {
	http.ResponseWriter
	body *body
}

// Unwrap supports [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// SetReadDeadline supports [http.ResponseController].
func (w *writer) SetReadDeadline(by time.Time) error {
	w.body.handlerDeadline = by
	if w.body.ended {
		return w.body.c.SetReadDeadline(by)
	}
	w.body.set()
	return nil
}

func (w *writer) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
