package filestate

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"slices"

	"github.com/graspsync/graspsync/state"
)

// The files in the folder.
const (
	logName     = "state.log"
	newName     = "state.log.new"     // being written; without meaning after a crash
	damagedName = "state.log.damaged" // the last log that had damaged parts
	lockName    = "lock"
)

// log is the file that is appended to. It belongs to the writer.
type log struct {
	folder  folder
	logger  *slog.Logger
	damaged bool // the log in the folder holds more than could be read of it

	file   file // nil: there is none that may be appended to
	number uint64
	size   int64
	least  int64 // no compaction below this size
	buffer []byte

	syncs, rewrites uint64
}

func (l *log) usable() bool { return l.file != nil }

// compactFrom is the size of garbage at which a log is not worth writing anew.
const compactFrom = 1 << 20

// bloated reports whether the log is better written anew, with live bytes of
// records in it.
func (l *log) bloated(live int64) bool {
	return l.size > max(2*live+compactFrom, l.least)
}

// append adds changes to the log. After an error the log is not touched again:
// whether its end is on the disk, nobody knows.
func (l *log) append(group []*request) error {
	b := l.buffer[:0]
	for _, r := range group {
		b = appendRecord(b, l.number, r.record)
	}
	if l.buffer = b; cap(b) > 1<<20 {
		l.buffer = nil
	}
	_, err := l.file.Write(b)
	if err == nil {
		l.syncs++
		err = l.file.Sync()
	}
	if err != nil {
		l.abandon()
		return fmt.Errorf("appending to the log: %w", err)
	}
	l.size += int64(len(b))
	return nil
}

func (l *log) abandon() {
	if l.file != nil {
		_ = l.file.Close() // nothing more is expected of it
		l.file = nil
	}
}

func (l *log) close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// rewrite puts a new log with the records in place of the old one. When it fails
// before the folder was touched, the old one stays usable.
func (l *log) rewrite(records []record, last state.Version) error {
	number := rand.Uint64()
	f, size, err := l.prepare(records, number, last)
	if err != nil {
		l.least = l.size + l.size/2 // not at every write
		return fmt.Errorf("writing a new log: %w", err)
	}
	l.keepDamaged()
	l.abandon() // whatever happens now: its name may be gone
	if err := l.install(); err != nil {
		_ = f.Close() // it may not be the log, or not after a crash
		return fmt.Errorf("installing a new log: %w", err)
	}
	l.file, l.number, l.size, l.least = f, number, size, 0
	l.rewrites++
	return nil
}

// prepare writes and syncs the new file.
func (l *log) prepare(records []record, number uint64, last state.Version) (file, int64, error) {
	slices.SortFunc(records, func(a, b record) int { return cmp.Compare(a.version, b.version) })
	f, err := l.folder.Create(newName)
	if err != nil {
		return nil, 0, err
	}
	size, err := writeAll(f, records, number, last)
	if err == nil {
		l.syncs++
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close() // it is given up
		if rerr := l.folder.Remove(newName); rerr != nil {
			err = errors.Join(err, rerr)
		}
		return nil, 0, err
	}
	return f, size, nil
}

func writeAll(f file, records []record, number uint64, last state.Version) (size int64, err error) {
	w := bufio.NewWriterSize(f, 256<<10)
	b := appendFileHead(nil, number, last)
	size = int64(len(b))
	_, err = w.Write(b)
	for _, r := range records {
		if err != nil {
			return 0, err
		}
		b = appendRecord(b[:0], number, r)
		size += int64(len(b))
		_, err = w.Write(b)
	}
	if err != nil {
		return 0, err
	}
	return size, w.Flush()
}

func (l *log) install() error {
	if err := l.folder.Rename(newName, logName); err != nil {
		return err
	}
	return l.folder.Sync()
}

// keepDamaged keeps a log with damaged parts for whoever wants to look at it.
func (l *log) keepDamaged() {
	if !l.damaged {
		return
	}
	err := l.folder.Remove(damagedName)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = l.folder.Link(logName, damagedName)
	}
	if err != nil {
		l.logger.Warn("damaged state log could not be kept", "error", err)
	}
	l.damaged = false
}
