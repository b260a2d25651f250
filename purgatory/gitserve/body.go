package gitserve

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// errBody is wrapped when a request can't be read to its end.
var errBody = errors.New("reading the request")

// errEncoding is returned for a request in a content encoding that git does not use.
var errEncoding = errors.New("the content encoding is not supported: gzip is, and none")

// limitError is returned for what is beyond a limit, which it names.
type limitError struct{ beyond string }

// Error says how much would have been taken.
func (e *limitError) Error() string { return e.beyond }

func tooLarge(most int64) error {
	return &limitError{fmt.Sprintf("more than %d bytes, which is the limit of this server", most)}
}

// body is the body of a request, kept in a file that is on no folder's list while it
// comes. Nothing a client sends holds a lock or a child process.
type body struct {
	file *os.File
	from io.Reader
	wire *http.ResponseController
	wait *patience
	most int64 // bytes that may still come
	max  int64
	// room, if not nil, is asked now and then whether there is room for more.
	room  func() error
	since int64 // bytes kept since it was asked
	// closed, if not nil, is called when the file is gone.
	closed []func()
}

// roomEvery is how often room is asked for, in bytes.
const roomEvery = 8 << 20

// Read reads what comes, and keeps it.
func (b *body) Read(p []byte) (int, error) {
	if b.most == 0 {
		// It may end exactly here.
		n, err := io.ReadFull(b.from, make([]byte, 1))
		if n > 0 {
			return 0, tooLarge(b.max)
		}
		return 0, b.wrap(err)
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.most)])
	b.most -= int64(n)
	if b.since += int64(n); b.room != nil && b.since >= roomEvery {
		b.since = 0
		if rerr := b.room(); rerr != nil {
			return n, rerr
		}
	}
	if _, werr := b.file.Write(p[:n]); werr != nil {
		return n, fmt.Errorf("keeping a request: %w", werr)
	}
	return n, b.wrap(err)
}

func (b *body) wrap(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("%w: %w", errBody, err)
}

// size is how many bytes came so far.
func (b *body) size() int64 { return b.max - b.most }

// readAll reads what is left, and makes the file one to be read from its beginning.
func (b *body) readAll() error {
	if _, err := io.CopyBuffer(io.Discard, onlyReader{b}, make([]byte, 64<<10)); err != nil {
		return err
	}
	b.rest()
	if _, err := b.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("keeping a request: %w", err)
	}
	return nil
}

// begins reports whether what was read begins with a text.
func (b *body) begins(text string) bool {
	head := make([]byte, len(text))
	_, err := b.file.ReadAt(head, 0)
	return err == nil && string(head) == text
}

// onlyReader hides what else a reader can do.
type onlyReader struct{ io.Reader }

// skip reads what is left without keeping it; more than most bytes are an error, and so
// are those that have not come at end.
func (b *body) skip(most int64, end time.Time) error {
	b.wait.end = end
	n, err := io.Copy(io.Discard, io.LimitReader(b.from, most+1))
	switch {
	case err != nil:
		return b.wrap(err)
	case n > most:
		return tooLarge(most)
	}
	b.rest()
	return nil
}

// rest ends the time for reading when all is read: the server would take its end for
// that of the connection, while git works. Where something is left the time goes on,
// since the server wants to read that before it answers.
func (b *body) rest() { _ = b.wire.SetReadDeadline(time.Time{}) } // not every connection has one

// until is when the client must have sent what is left.
func (b *body) until(end time.Time) { b.wait.end = end }

func (b *body) close() {
	_ = b.file.Close() // it is gone with that
	for _, f := range b.closed {
		f()
	}
	b.closed = nil
}

// patientBody gives each read its time.
type patientBody struct {
	io.Reader
	c        *http.ResponseController
	patience *patience
}

// Read implements [io.Reader].
func (p *patientBody) Read(b []byte) (int, error) {
	return p.patience.during(p.c.SetReadDeadline, func() (int, error) { return p.Reader.Read(b) })
}

// patient gives each write its time.
type patient struct {
	http.ResponseWriter
	c        *http.ResponseController
	patience patience
}

// Unwrap is for [http.ResponseController].
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// piece is how much is written at once, in bytes: of a larger one it is seen too late
// that the client takes it.
const piece = 4 << 10

// Write implements [io.Writer].
func (p *patient) Write(b []byte) (done int, err error) {
	for err == nil && done < len(b) {
		var n int
		n, err = p.patience.during(p.c.SetWriteDeadline, func() (int, error) {
			return p.ResponseWriter.Write(b[done:min(done+piece, len(b))])
		})
		done += n
	}
	return done, err
}

// FlushError is for [http.ResponseController].
func (p *patient) FlushError() error {
	_, err := p.patience.during(p.c.SetWriteDeadline, func() (int, error) {
		return 0, http.NewResponseController(p.ResponseWriter).Flush()
	})
	return err
}
