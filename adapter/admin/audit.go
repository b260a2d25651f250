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
	Outcome string    `json:"outcome"`         // [Done] or [Failed]
	Error   string    `json:"error,omitempty"` // of what failed
}

// The outcomes of a command. What failed may be done in part.
const (
	Done   = "done"
	Failed = "failed"
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
	file *os.File
	size int64
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
	l.file, l.size = f, info.Size()
	if l.size == 0 {
		return nil
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, l.size-1); err == nil && last[0] != '\n' { // we were killed in the middle
		_, err = f.Write([]byte("\n"))
		l.size++
		return err
	}
	return nil
}

// Record appends an entry, durably.
func (l *Log) Record(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("writing the audit log: %w", err)
	}
	line = append(line, '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(line)) > maxAudit {
		err = errors.Join(l.file.Close(), os.Rename(l.path, l.path+".1"), l.open())
		if err != nil {
			return fmt.Errorf("beginning the audit log anew: %w", err)
		}
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	if err = errors.Join(err, l.file.Sync()); err != nil {
		return fmt.Errorf("writing the audit log: %w", err)
	}
	return nil
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
	return l.file.Close()
}
