package admin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// Entry is one command, as an audit log has it.
type Entry struct {
	At      time.Time `json:"at"`
	By      string    `json:"by"` // an npub, or what the program says
	Command string    `json:"command"`
	Args    []string  `json:"args,omitempty"`
	Outcome string    `json:"outcome"`         // [Done], [Failed] or [Begun]
	Error   string    `json:"error,omitempty"` // of what failed
}

// The outcomes of a command. What failed may be done in part.
const (
	Done   = "done"
	Failed = "failed"
	Begun  = "begun" // it is about to be done; how it went is in a later entry
)

// maxAudit is the size in bytes at which a log is begun anew. The one before is kept.
const maxAudit = 8 << 20

// Log is an audit log: a file with one JSON object a line, which is only ever appended to. At 8 MiB
// it is renamed, with .1 after its name, in place of what has that name. All methods may be called
// concurrently.
type Log struct {
	path string // read-only

	mu sync.Mutex // held while a line is written: that it is there is the point
	// guarded by mu
	file   *os.File // nil if it could not be opened again
	size   int64
	torn   bool // it does not end with the end of a line
	closed bool
}

// OpenLog opens a log, making it if need be. The caller closes it.
func OpenLog(path string) (*Log, error) {
	l := &Log{path: path}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	return l, nil
}

func (l *Log) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size, l.torn = f, info.Size(), false
	if l.size == 0 {
		return nil
	}
	last := make([]byte, 1)
	n, _ := f.ReadAt(last, l.size-1)
	l.torn = n == 0 || last[0] != '\n' // we were killed in the middle, or there was no room for more
	return nil
}

// mostAudit is the size in bytes of a log that can't be begun anew, at which nothing is added to it.
const mostAudit = 2 * maxAudit

// Record appends an entry, durably. One that could not be written whole is not read as one, nor does it
// harm the next. A log that can't be begun anew is gone on with, up to 16 MiB; the error says so, with
// the entry in it.
func (l *Log) Record(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("writing the audit log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.beginAnew(int64(len(line)) + 1)
	switch {
	case l.closed:
		return fmt.Errorf("writing the audit log: %w", os.ErrClosed)
	case l.file == nil, l.size > mostAudit:
		return fmt.Errorf("rotating the audit log: %w", old)
	}
	if err := l.write(append(line, '\n')); err != nil {
		return fmt.Errorf("writing the audit log: %w", err)
	}
	if old != nil {
		return fmt.Errorf("rotating the audit log, which is continued: %w", old)
	}
	return nil
}

// write appends a line, on one of its own whatever was written before.
func (l *Log) write(line []byte) error {
	if l.torn {
		line = append([]byte("\n"), line...)
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	if n > 0 {
		l.torn = line[n-1] != '\n'
	}
	return errors.Join(err, l.file.Sync())
}

// beginAnew renames the file if it has no room for so many bytes, and opens it if it is not. What was
// done of that if it fails is found by the next call.
func (l *Log) beginAnew(bytes int64) error {
	if l.closed {
		return nil
	}
	var err error
	if l.file != nil {
		if l.size == 0 || l.size+bytes <= maxAudit {
			return nil
		}
		err = l.file.Close() // else it can't be renamed everywhere
		l.file = nil
		err = errors.Join(err, os.Rename(l.path, l.path+".1"))
	}
	return errors.Join(err, l.open())
}

// Recent returns the last entries, at most so many, the oldest first. A line that is none is left
// out.
func (l *Log) Recent(most int) (out []Entry, err error) {
	for _, path := range []string{l.path + ".1", l.path} {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, maxAudit)
		for lines.Scan() {
			var e Entry
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				out = append(out, e)
			}
		}
	}
	return out[max(0, len(out)-most):], nil
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
