package admin

import (
	"encoding/json"
	"errors"
	"fmt"
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

// Outcomes of a command.
const (
	Done   = "done"
	Failed = "failed"
	Begun  = "begun" // before the command; a later entry has its outcome
)

const maxLog = 16 << 20

// Log is a file of JSON lines. After 16 MiB it is renamed to end in ".1". It is safe for concurrent use.
type Log struct {
	path string

	mu sync.Mutex // held until a line is written
	// guarded by mu
	file *os.File
	size int64
	torn bool // the last line was cut off
}

// OpenLog opens or creates a log.
func OpenLog(path string) (*Log, error) {
	l := &Log{path: path}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Log) open() (err error) {
	if l.file, err = os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	l.size = 0
	if info, err := l.file.Stat(); err == nil && info.Size() > 0 {
		l.size = info.Size()
		last := make([]byte, 1)
		_, err = l.file.ReadAt(last, info.Size()-1)
		l.torn = err != nil || last[0] != '\n' // the process was killed while writing
	}
	return nil
}

// Record appends an entry durably.
func (l *Log) Record(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("writing the audit log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > maxLog {
		if err := errors.Join(os.Rename(l.path, l.path+".1"), l.file.Close(), l.open()); err != nil {
			return fmt.Errorf("writing the audit log: %w", err)
		}
	}
	if l.torn {
		line = append([]byte("\n"), line...)
	}
	n, err := l.file.Write(append(line, '\n'))
	l.size += int64(n)
	l.torn = err != nil
	if err = errors.Join(err, l.file.Sync()); err != nil {
		return fmt.Errorf("writing the audit log: %w", err)
	}
	return nil
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
