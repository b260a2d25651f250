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

// Entry is one command in an audit log.
type Entry struct {
	At      time.Time `json:"at"`
	By      string    `json:"by"` // an npub, or a name of the program
	Command string    `json:"command"`
	Args    []string  `json:"args,omitempty"`
	Outcome string    `json:"outcome"`         // [Done], [Failed] or [Begun]
	Error   string    `json:"error,omitempty"` // of a failed command
}

// Outcomes of a command. A failed command may be done in part.
const (
	Done   = "done"
	Failed = "failed"
	Begun  = "begun" // before the command; a later entry has its outcome
)

// maxAudit is the size in bytes at which the file is renamed and a new one begins.
const maxAudit = 8 << 20

// Log is an audit log: a file with one JSON object per line. At 8 MiB it is renamed with the suffix
// .1, replacing an earlier one. It is safe for concurrent use.
type Log struct {
	path string // read-only

	mu sync.Mutex // held until a line is written
	// guarded by mu
	file   *os.File // nil if it could not be opened again
	size   int64
	torn   bool // it does not end with a newline
	closed bool
}

// OpenLog opens or creates a log. The caller closes it.
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
	l.torn = n == 0 || last[0] != '\n' // the process was killed while writing, or the disk was full
	return nil
}

// mostAudit is the maximum size in bytes of a log that cannot be renamed.
const mostAudit = 2 * maxAudit

// Record appends an entry durably. A line that was cut off is not read as an entry and does not
// affect the next one. A log that cannot be renamed grows up to 16 MiB, and the error says so.
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

// write appends a line, after a newline if the last one was cut off.
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

// beginAnew renames the file if it has no room for the bytes, and opens a new one. The next call
// continues after an error.
func (l *Log) beginAnew(bytes int64) error {
	if l.closed {
		return nil
	}
	var err error
	if l.file != nil {
		if l.size == 0 || l.size+bytes <= maxAudit {
			return nil
		}
		err = l.file.Close() // some systems cannot rename open files
		l.file = nil
		err = errors.Join(err, os.Rename(l.path, l.path+".1"))
	}
	return errors.Join(err, l.open())
}

// Recent returns the last entries, the oldest first. Invalid lines are skipped.
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
