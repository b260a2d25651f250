package state

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/graspsync/graspsync/internal/filelock"
)

// Errors of a [DB].
var (
	// ErrLocked is wrapped if another process, which the error names, or another DB uses the
	// folder.
	ErrLocked = errors.New("the folder is in use by another process")
	// ErrClosed is wrapped by all errors after Close.
	ErrClosed = errors.New("the store is closed")
	// ErrDamaged is wrapped by errors about a damaged file. The next Open sets it aside.
	ErrDamaged = errors.New("the file of records is damaged")
)

const (
	fileName    = "state.db"
	damagedName = fileName + ".damaged"
	lockName    = "lock"

	maxGroup    = 256             // changes per transaction
	partSize    = 1 << 20         // bytes that Each reads in one transaction
	minFileSize = 4 * 4096        // bytes; bbolt files have at least four pages
	lockWait    = 5 * time.Second // for the lock of bbolt, which only the holder of the folder lock may hold
)

// bucket contains all records. A checksum of key and value precedes each value.
var bucket = []byte("records")

// Config configures a [DB]. The zero value works.
type Config struct {
	// MaxBytes is the maximum total length of keys and values. More is refused with ErrFull. The
	// file is two to three times larger. Defaults to 256 MiB.
	MaxBytes int64
	// Logger receives failed writes and damage. Defaults to discarding them.
	Logger *slog.Logger
}

// Stats contains counts of a [DB].
type Stats struct {
	Keys  int   // number of records
	Bytes int64 // total length of all keys and values
	File  int64 // size of the file

	// Since Open:
	Failures uint64 // failed transactions
	Refused  uint64 // batches refused because the store is full

	SetAside int // damaged files set aside by Open, 0 or 1
}

// DB is a [Store] in a bbolt database. [Open] makes it. Concurrent changes share a transaction.
type DB struct {
	// set by Open, read-only
	cfg     Config
	lock    io.Closer // lock of the folder
	bolt    *bbolt.DB
	changes chan change
	closing chan struct{} // closed by Close
	ended   chan struct{} // closed when the writer ended

	broken error // owned by the writer: a panic of bbolt, which may still hold its locks

	closeOnce sync.Once

	mu    sync.Mutex
	stats Stats // guarded by mu
}

type change struct {
	puts    []Record // with encoded values
	deletes []string
	done    chan error // one slot
}

var _ Store = (*DB)(nil)

// Open opens the records in a folder, which it creates if necessary. A damaged file is renamed to
// state.db.damaged, and the DB is then empty. The error wraps [ErrLocked] if the folder is in use.
func Open(dir string, cfg Config) (*DB, error) {
	if cfg.MaxBytes < 0 || cfg.MaxBytes > 1<<31 {
		return nil, fmt.Errorf("opening records: MaxBytes is %d, want 0 to 2 GiB", cfg.MaxBytes)
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 256 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("opening records in %s: %w", dir, err)
	}
	d := &DB{cfg: cfg, lock: lock, changes: make(chan change), closing: make(chan struct{}), ended: make(chan struct{})}
	if err := d.open(dir); err != nil {
		return nil, fmt.Errorf("opening records in %s: %w", dir, errors.Join(err, lock.Close()))
	}
	go d.write()
	return d, nil
}

func lockFolder(dir string) (io.Closer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return file, filelock.Lock(file, ErrLocked)
}

func (d *DB) open(dir string) error {
	path := filepath.Join(dir, fileName)
	err := d.load(path)
	if errors.Is(err, ErrDamaged) {
		if rerr := os.Rename(path, filepath.Join(dir, damagedName)); rerr != nil {
			return errors.Join(err, rerr)
		}
		d.cfg.Logger.Error("records damaged and set aside", "kept_as", filepath.Join(dir, damagedName), "error", err)
		err = d.load(path)
		d.stats.SetAside++
	}
	if err == nil {
		err = d.bolt.Update(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucketIfNotExists(bucket)
			return err
		})
	}
	if err == nil {
		err = syncFolder(dir)
	}
	if err != nil && d.bolt != nil {
		err = errors.Join(err, d.bolt.Close())
	}
	return err
}

// load opens a file and reads all records. The error wraps [ErrDamaged] if it must be set aside.
func (d *DB) load(path string) error {
	if info, err := os.Stat(path); err == nil && info.Size() > 0 && info.Size() < minFileSize {
		return fmt.Errorf("%w: it has %d bytes", ErrDamaged, info.Size())
	}
	var file *os.File // closed below if bbolt panics
	err := recoverPanic(func() (err error) {
		d.bolt, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout: lockWait, FreelistType: bbolt.FreelistMapType,
			OpenFile: func(name string, flag int, mode fs.FileMode) (_ *os.File, err error) {
				file, err = os.OpenFile(name, flag, mode)
				return file, err
			},
		})
		if errors.Is(err, bolterrors.ErrInvalid) || errors.Is(err, bolterrors.ErrChecksum) || errors.Is(err, bolterrors.ErrVersionMismatch) {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if err != nil {
			return err
		}
		return d.bolt.View(d.countRecords)
	})
	if err != nil && file != nil {
		_ = file.Close() // nothing was written
		d.bolt = nil
	}
	return err
}

func (d *DB) countRecords(tx *bbolt.Tx) error {
	d.stats.Keys, d.stats.Bytes, d.stats.File = 0, 0, tx.Size()
	b := tx.Bucket(bucket)
	if b == nil {
		return nil
	}
	var last []byte
	return b.ForEach(func(k, v []byte) error {
		value, err := decode(k, v)
		if err == nil && (bytes.Compare(k, last) <= 0 || !bytes.Equal(b.Get(k), v)) {
			err = fmt.Errorf("%w: record %q is misplaced", ErrDamaged, k)
		}
		last = k
		d.stats.Keys++
		d.stats.Bytes += int64(len(k) + len(value))
		return err
	})
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// recoverPanic converts a panic of bbolt on a damaged file or a failing disk to an error.
func recoverPanic(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return f()
}

const checksumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

func encode(r Record) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, checksumSize+len(r.Value)), checksum([]byte(r.Key), r.Value))
	return append(b, r.Value...)
}

func decode(k, v []byte) ([]byte, error) {
	if len(v) < checksumSize || binary.BigEndian.Uint32(v) != checksum(k, v[checksumSize:]) {
		return nil, fmt.Errorf("%w: record %q", ErrDamaged, k)
	}
	return v[checksumSize:], nil
}

func (d *DB) view(f func(*bbolt.Bucket) error) error {
	return recoverPanic(func() error {
		err := d.bolt.View(func(tx *bbolt.Tx) error { return f(tx.Bucket(bucket)) })
		if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
			return ErrClosed
		}
		return err
	})
}

// Put implements [Store]. If ctx ends during the write, the records may be stored.
func (d *DB) Put(ctx context.Context, records ...Record) error {
	err := checkArgs(ctx, nil, records)
	if err == nil && len(records) > 0 {
		c := change{puts: make([]Record, len(records))}
		for i, r := range records {
			c.puts[i] = Record{r.Key, encode(r)}
		}
		err = d.change(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("writing records: %w", err)
	}
	return nil
}

// Delete implements [Store]. If ctx ends during the write, the records may be deleted.
func (d *DB) Delete(ctx context.Context, keys ...string) error {
	err := checkArgs(ctx, keys, nil)
	if err == nil {
		err = d.view(func(b *bbolt.Bucket) error { // avoids a transaction if no record exists
			keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return b.Get([]byte(key)) == nil })
			return nil
		})
	}
	if err == nil && len(keys) > 0 {
		err = d.change(ctx, change{deletes: keys})
	}
	if err != nil {
		return fmt.Errorf("deleting records: %w", err)
	}
	return nil
}

func (d *DB) change(ctx context.Context, c change) error {
	c.done = make(chan error, 1)
	select {
	case d.changes <- c:
	case <-d.closing:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *DB) write() {
	defer close(d.ended)
	for {
		select {
		case c := <-d.changes:
			d.commit(d.collect(c))
		case <-d.closing:
			return
		}
	}
}

func (d *DB) collect(first change) []change {
	group := []change{first}
	for len(group) < maxGroup {
		select {
		case c := <-d.changes:
			group = append(group, c)
		default:
			return group
		}
	}
	return group
}

func (d *DB) commit(group []change) {
	refused := make([]error, len(group))
	after := d.Stats()
	err := d.broken
	if err == nil {
		err = recoverPanic(func() error {
			return d.bolt.Update(func(tx *bbolt.Tx) error {
				b := tx.Bucket(bucket)
				for i, c := range group {
					if refused[i] = d.checkRoom(b, c, after); refused[i] != nil {
						after.Refused++
					} else if err := c.apply(b, &after); err != nil {
						return err
					}
				}
				after.File = tx.Size()
				return nil
			})
		})
	}
	if errors.Is(err, ErrDamaged) {
		d.broken = err
	}
	d.updateStats(after, err)
	for i, c := range group {
		c.done <- cmp.Or(err, refused[i])
	}
}

func (d *DB) updateStats(after Stats, err error) {
	if err != nil {
		d.cfg.Logger.Error("writing records failed", "error", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.stats.Failures++
	} else {
		d.stats = after
	}
}

func (d *DB) checkRoom(b *bbolt.Bucket, c change, now Stats) error {
	grown := int64(0)
	for _, r := range c.puts {
		grown += footprint(r.Key, r.Value) - footprint(r.Key, b.Get([]byte(r.Key)))
	}
	if grown > 0 && now.Bytes+grown > d.cfg.MaxBytes {
		return fmt.Errorf("%w: %d bytes", ErrFull, now.Bytes+grown)
	}
	return nil
}

func (c change) apply(b *bbolt.Bucket, stats *Stats) error {
	remove := func(key []byte) {
		if v := b.Get(key); v != nil {
			stats.Keys--
			stats.Bytes -= footprint(string(key), v)
		}
	}
	for _, r := range c.puts {
		key := []byte(r.Key)
		remove(key)
		if err := b.Put(key, r.Value); err != nil {
			return err
		}
		stats.Keys++
		stats.Bytes += footprint(r.Key, r.Value)
	}
	for _, k := range c.deletes {
		remove([]byte(k))
		if err := b.Delete([]byte(k)); err != nil {
			return err
		}
	}
	return nil
}

// footprint returns the counted size of a record, 0 if encoded is nil.
func footprint(key string, encoded []byte) int64 {
	if encoded == nil {
		return 0
	}
	return int64(len(key) + len(encoded) - checksumSize)
}

// Each implements [Store]. It reads the records in parts of partSize.
func (d *DB) Each(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for from := prefix; ; {
			part, err := d.readPart(ctx, prefix, from)
			for _, r := range part {
				if err = ctx.Err(); err != nil {
					break
				}
				if !yield(r, nil) {
					return
				}
				from = r.Key + "\x00" // the next possible key
			}
			if err != nil {
				yield(Record{}, fmt.Errorf("reading records: %w", err))
			}
			if err != nil || len(part) == 0 {
				return
			}
		}
	}
}

func (d *DB) readPart(ctx context.Context, prefix, from string) (out []Record, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = d.view(func(b *bbolt.Bucket) error {
		size := 0
		c := b.Cursor()
		for k, v := c.Seek([]byte(from)); k != nil && bytes.HasPrefix(k, []byte(prefix)) && size < partSize; k, v = c.Next() {
			value, err := decode(k, v)
			if err == nil && string(k) < from {
				err = fmt.Errorf("%w: record %q is misplaced", ErrDamaged, k)
			}
			if err != nil {
				return err
			}
			out = append(out, Record{string(k), append([]byte{}, value...)})
			size += len(k) + len(value)
		}
		return nil
	})
	return out, err
}

// Stats returns the counts of d.
func (d *DB) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// Close waits for current changes and unlocks the folder. Later calls do nothing.
func (d *DB) Close() (err error) {
	d.closeOnce.Do(func() {
		close(d.closing)
		<-d.ended
		if d.broken == nil { // otherwise Close may wait for its own locks
			err = d.bolt.Close()
		}
		if err = errors.Join(err, d.lock.Close()); err != nil {
			err = fmt.Errorf("closing records: %w", err)
		}
	})
	return err
}
