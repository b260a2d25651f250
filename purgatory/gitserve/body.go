package gitserve

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// errBody is wrapped by errors of reading a request.
var errBody = errors.New("reading the request")

var errEncoding = errors.New("the content encoding is not supported: gzip is, and none")

type limitError struct{ beyond string }

// Error names the limit.
func (e *limitError) Error() string { return e.beyond }

func tooLarge(most int64) error {
	return &limitError{fmt.Sprintf("more than %d bytes, which is the limit of this server", most)}
}

// body is the body of a request, saved in an unlinked file. While a client sends, no lock and no
// child process is held.
type body struct {
	file *os.File
	sent io.Reader // as the client sent it
	from io.Reader // unpacked
	wire *http.ResponseController
	wait *patience
	most int64 // remaining
	max  int64
	// room, if not nil, is called every roomEvery bytes to check for free space.
	room  func() error
	since int64 // bytes since the last call of room
	// closed functions are called after the file was closed.
	closed []func()
}

const roomEvery = 8 << 20

// Read reads from the client and saves the data.
func (b *body) Read(p []byte) (int, error) {
	if b.most == 0 {
		// The body may end exactly at the limit.
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
		return n, fmt.Errorf("saving a request: %w", werr)
	}
	return n, b.wrap(err)
}

func (b *body) wrap(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("%w: %w", errBody, err)
}

func (b *body) size() int64 { return b.max - b.most }

// readAll reads the rest and rewinds the file.
func (b *body) readAll() error {
	if _, err := io.CopyBuffer(io.Discard, onlyReader{b}, make([]byte, 64<<10)); err != nil {
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
	return err == nil && string(head) == text
}

// onlyReader hides other methods of a reader.
type onlyReader struct{ io.Reader }

// skip reads and discards the rest of sent or from. More than most bytes, or data after end, are an
// error.
func (b *body) skip(of io.Reader, most int64, end time.Time) error {
	b.wait.end = end
	n, err := io.Copy(io.Discard, io.LimitReader(of, most+1))
	switch {
	case err != nil:
		return b.wrap(err)
	case n > most:
		return tooLarge(most)
	}
	b.rest()
	return nil
}

// rest removes the read deadline after everything was read. Otherwise the HTTP server would take an
// expired deadline for the end of the connection while git works. The deadline stays if data is
// left, because the server reads the rest before it answers.
func (b *body) rest() { _ = b.wire.SetReadDeadline(time.Time{}) } // not every connection has deadlines

func (b *body) until(end time.Time) { b.wait.end = end }

func (b *body) close() {
	_ = b.file.Close() // this also deletes the unlinked file
	for _, f := range b.closed {
		f()
	}
	b.closed = nil
}

type patientBody struct {
	io.Reader
	c        *http.ResponseController
	patience *patience
}

func (p *patientBody) Read(b []byte) (int, error) {
	return p.patience.during(p.c.SetReadDeadline, func() (int, error) { return p.Reader.Read(b) })
}

type patient struct {
	http.ResponseWriter
	c        *http.ResponseController
	patience patience
}

// Unwrap supports [http.ResponseController].
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// piece is the size of one write, in bytes. Larger writes would hide the progress of the client.
const piece = 4 << 10

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

// FlushError supports [http.ResponseController].
func (p *patient) FlushError() error {
	_, err := p.patience.during(p.c.SetWriteDeadline, func() (int, error) {
		return 0, http.NewResponseController(p.ResponseWriter).Flush()
	})
	return err
}
