package filestate

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/graspsync/graspsync/state"
)

// contents is what a log holds.
type contents struct {
	entries map[string]entry
	bytes   int64
	last    state.Version // the newest that may have been given out

	setAside int   // stretches that could not be read, with more behind them
	skipped  int64 // their bytes
	torn     int64 // bytes cut off the end
}

// lostVersions is how far versions are moved on when nobody knows any more which
// ones were given out.
const lostVersions = 1 << 32

// reader goes through a log once. Its memory is what the log holds plus the longest
// record; a length that the log has no bytes for is never allocated.
type reader struct {
	in   *bufio.Reader
	left int64 // bytes not read yet

	out    contents
	number uint64 // of the file, if known
	known  bool
	newest state.Version // of the records read so far
	gap    int64         // bytes skipped since the last good record
}

// read takes in a log of size bytes. Whatever they are, all that can be believed of
// them is used; the error is one of reading.
func read(src io.Reader, size int64) (contents, error) {
	r := &reader{in: bufio.NewReaderSize(io.LimitReader(src, size), 64<<10), left: size}
	r.out.entries = make(map[string]entry)
	if err := r.fileHead(); err != nil {
		return contents{}, err
	}
	for r.left > 0 {
		if err := r.record(); err != nil {
			return contents{}, err
		}
	}
	r.out.torn = r.gap
	r.out.last = max(r.out.last, r.newest)
	if r.out.setAside > 0 {
		r.out.last += lostVersions
	}
	return r.out, nil
}

func (r *reader) peek(n int) ([]byte, error) {
	b, err := r.in.Peek(n)
	if err != nil {
		return nil, fmt.Errorf("reading the log: %w", short(err))
	}
	return b, nil
}

func (r *reader) discard(n int64) error {
	for n > 0 {
		step := min(n, 1<<30)
		if _, err := r.in.Discard(int(step)); err != nil {
			return fmt.Errorf("reading the log: %w", short(err))
		}
		r.left -= step
		n -= step
	}
	return nil
}

// short makes of an end that comes too early an error that nobody takes for the end.
func short(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (r *reader) fileHead() error {
	if r.left < fileHeadSize {
		r.gap = r.left
		return r.discard(r.left)
	}
	b, err := r.peek(fileHeadSize)
	if err != nil {
		return err
	}
	number, last, ok := parseFileHead(b)
	if !ok {
		return nil // searched like any other damaged stretch
	}
	r.number, r.known = number, true
	r.out.last = last
	return r.discard(fileHeadSize)
}

// record reads the next record, or skips what can't be one.
func (r *reader) record() error {
	if r.left < headSize {
		r.gap += r.left
		return r.discard(r.left)
	}
	b, err := r.peek(headSize)
	if err != nil {
		return err
	}
	h, ok := parseHead(b)
	switch {
	case !ok, r.known && h.number != r.number, h.version <= r.newest:
		r.gap++
		return r.discard(1)
	case h.body() > r.left-headSize:
		// The file ends in this record, or did, before something was lost.
		r.gap++
		return r.discard(1)
	}
	if err := r.discard(headSize); err != nil {
		return err
	}
	body := make([]byte, h.body())
	if _, err := io.ReadFull(r.in, body); err != nil {
		return fmt.Errorf("reading the log: %w", short(err))
	}
	r.left -= h.body()
	r.number, r.known, r.newest = h.number, true, h.version
	if sum(body) != h.contents {
		r.gap += headSize + h.body()
		return nil
	}
	r.closeGap()
	r.apply(h, body)
	return nil
}

// closeGap books what was skipped: something good came after it.
func (r *reader) closeGap() {
	if r.gap > 0 {
		r.out.setAside++
		r.out.skipped += r.gap
		r.gap = 0
	}
}

func (r *reader) apply(h head, body []byte) {
	key := string(body[:h.key])
	r.out.bytes -= footprint(key, r.out.entries)
	if h.kind == remove {
		delete(r.out.entries, key)
		return
	}
	r.out.entries[key] = entry{value: body[h.key:], version: h.version}
	r.out.bytes += footprint(key, r.out.entries)
}

// footprint is what a key takes of the bound on bytes.
func footprint(key string, entries map[string]entry) int64 {
	e, ok := entries[key]
	if !ok {
		return 0
	}
	return int64(len(key) + len(e.value))
}
