package gitserve

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

type refusal struct {
	status int // of HTTP
	text   string
	cause  error // of git; may be nil
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) Unwrap() error { return r.cause }

func limitError(format string, args ...any) error {
	return &refusal{status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf(format, args...)}
}

func tooLarge(most int64) error {
	return limitError("more than %d bytes, which is the limit of this server", most)
}

func isRefusal(err error, status int) bool {
	var r *refusal
	return errors.As(err, &r) && r.status == status
}

var errBody = errors.New("reading the request")

// body is the body of a request, saved in an unlinked file. While a client sends, no lock and no
// child process is held.
type body struct {
	file  *os.File
	sent  stream    // from the client
	raw   io.Reader // as the client sent it
	from  io.Reader // unpacked
	size  int64     // unpacked bytes so far
	most  int64
	room  func() error
	since int64    // bytes since the last call of room
	held  []func() // released by close
}

const roomEvery = 8 << 20

func (h *Handler) open(w http.ResponseWriter, r *http.Request, t *transfer, most int64, end time.Time) (*body, error) {
	b := &body{most: most, sent: stream{transfer: t, setDeadline: http.NewResponseController(w).SetReadDeadline, idle: h.cfg.fixed.RateWindow, end: end}}
	b.raw = readerFunc(func(p []byte) (int, error) {
		return b.sent.move(func() (int, error) { return r.Body.Read(p) })
	})
	b.from = b.raw
	var err error
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "", "identity":
	case "gzip", "x-gzip":
		if b.from, err = gzip.NewReader(b.raw); err != nil {
			return nil, fmt.Errorf("%w: %w", errBody, err)
		}
	default:
		w.Header().Set("Accept-Encoding", "gzip")
		return nil, &refusal{status: http.StatusUnsupportedMediaType, text: "the content encoding is not supported: gzip is, and none"}
	}
	if b.file, err = h.repos.scratch(); err != nil {
		return nil, fmt.Errorf("saving a request: %w", err)
	}
	return b, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func (b *body) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.size += int64(n); b.size > b.most {
		return 0, tooLarge(b.most)
	}
	if b.since += int64(n); b.room != nil && b.since >= roomEvery {
		b.since = 0
		if rerr := b.room(); rerr != nil {
			return n, rerr
		}
	}
	if _, werr := b.file.Write(p[:n]); werr != nil {
		return n, fmt.Errorf("saving a request: %w", werr)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", errBody, err)
	}
	return n, err
}

func (b *body) readAll() error {
	if _, err := io.Copy(io.Discard, b); err != nil {
		return err
	}
	b.rest()
	if _, err := b.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("saving a request: %w", err)
	}
	return nil
}

func (b *body) begins(text string) bool {
	head := make([]byte, len(text))
	_, err := b.file.ReadAt(head, 0)
	return err == nil && bytes.Equal(head, []byte(text))
}

func (b *body) skip(of io.Reader, most int64, end time.Time) error {
	b.sent.end = end
	n, err := io.Copy(io.Discard, io.LimitReader(of, most+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errBody, err)
	case n > most:
		return tooLarge(most)
	}
	b.rest()
	return nil
}

// rest removes the read deadline after everything was read, because the HTTP server would take an
// expired deadline for the end of the connection while git works.
func (b *body) rest() { _ = b.sent.setDeadline(time.Time{}) } // not every connection has deadlines

func (b *body) close() {
	_ = b.file.Close() // this also deletes the unlinked file
	for _, release := range b.held {
		release()
	}
	b.held = nil
}

// clientWriter is an [http.ResponseWriter] that measures the speed of a client.
type clientWriter struct {
	http.ResponseWriter
	c    *http.ResponseController
	sent stream
}

func (p *clientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// piece is the size of one write in bytes. Larger writes would hide progress.
const piece = 4 << 10

func (p *clientWriter) Write(b []byte) (done int, err error) {
	for err == nil && done < len(b) {
		var n int
		n, err = p.sent.move(func() (int, error) {
			return p.ResponseWriter.Write(b[done:min(done+piece, len(b))])
		})
		done += n
	}
	return done, err
}

// FlushError supports [http.ResponseController].
func (p *clientWriter) FlushError() error {
	_, err := p.sent.move(func() (int, error) { return 0, p.c.Flush() })
	return err
}
