package filestate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

var errFault = errors.New("no space left on device")

// disk is a folder in memory that forgets what was not synced when the power is
// cut, and whose calls can be made to fail.
type disk struct {
	mu sync.Mutex
	// guarded by mu
	rng   *rand.Rand
	names map[string]*inode // as processes see it
	safe  map[string]*inode // as it is after a power cut
	calls int
	fails func(call int) bool // may be nil

	logged logged
}

// logged counts what is logged.
type logged struct{ lines atomic.Int64 }

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logged) WithGroup(string) slog.Handler            { return l }
func (l *logged) Handle(context.Context, slog.Record) error {
	l.lines.Add(1)
	return nil
}

type inode struct {
	data   []byte
	synced []byte
	lost   bool // an fsync failed: what was not synced then never will be
}

func newDisk(rng *rand.Rand) *disk {
	return &disk{rng: rng, names: make(map[string]*inode), safe: make(map[string]*inode)}
}

// fault says whether this call fails, and if so, whether it is done all the same.
// The caller holds mu.
func (d *disk) fault() (fails, done bool) {
	d.calls++
	if d.fails == nil || !d.fails(d.calls) {
		return false, true
	}
	return true, d.rng.IntN(2) == 0
}

func (d *disk) do(f func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	fails, done := d.fault()
	if done {
		if err := f(); err != nil {
			return err
		}
	}
	if fails {
		return errFault
	}
	return nil
}

func (d *disk) Open(name string) (io.ReadCloser, int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.names[name]
	if i == nil {
		return nil, 0, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(bytes.Clone(i.data))), int64(len(i.data)), nil
}

func (d *disk) Create(name string) (file, error) {
	i := &inode{}
	err := d.do(func() error { d.names[name] = i; return nil })
	if err != nil {
		return nil, err
	}
	return diskFile{d, i}, nil
}

func (d *disk) Rename(from, to string) error {
	return d.do(func() error {
		i := d.names[from]
		if i == nil {
			return fs.ErrNotExist
		}
		d.names[to] = i
		delete(d.names, from)
		return nil
	})
}

func (d *disk) Link(name, other string) error {
	return d.do(func() error {
		i := d.names[name]
		switch {
		case i == nil:
			return fs.ErrNotExist
		case d.names[other] != nil:
			return fs.ErrExist
		}
		d.names[other] = i
		return nil
	})
}

func (d *disk) Remove(name string) error {
	return d.do(func() error {
		if d.names[name] == nil {
			return fs.ErrNotExist
		}
		delete(d.names, name)
		return nil
	})
}

func (d *disk) Sync() error {
	return d.do(func() error { d.safe = maps.Clone(d.names); return nil })
}

func (d *disk) Close() error { return nil }

type diskFile struct {
	d *disk
	i *inode
}

func (f diskFile) Write(b []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	n := len(b)
	fails, _ := f.d.fault()
	if fails {
		n = f.d.rng.IntN(len(b) + 1)
	}
	f.i.data = append(f.i.data, b[:n]...)
	if fails {
		return n, errFault
	}
	return n, nil
}

// Sync that fails leaves pages that the system believes to be clean.
func (f diskFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if fails, _ := f.d.fault(); fails {
		f.i.lost = true
		return errFault
	}
	if !f.i.lost {
		f.i.synced = bytes.Clone(f.i.data)
	}
	return nil
}

func (f diskFile) Close() error { return nil }

// cut is the disk after the power was cut: of what was not synced some may be there,
// with holes, the last of it torn; names that were not synced may be there or not.
func (d *disk) cut() *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := d.safe
	if d.rng.IntN(2) == 0 {
		names = d.names
	}
	out := newDisk(d.rng)
	for name, i := range names {
		data := bytes.Clone(i.synced)
		if rest := len(i.data) - len(data); rest > 0 {
			tail := bytes.Clone(i.data[len(data):][:d.rng.IntN(rest+1)])
			if len(tail) > 0 && d.rng.IntN(2) == 0 {
				from := d.rng.IntN(len(tail))
				clear(tail[from:min(len(tail), from+1+d.rng.IntN(4096))])
			}
			data = append(data, tail...)
		}
		out.names[name] = &inode{data: data, synced: bytes.Clone(data)}
	}
	out.safe = maps.Clone(out.names)
	return out
}

// kill is the disk after the process was killed.
func (d *disk) kill() *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &disk{rng: d.rng, names: maps.Clone(d.names), safe: maps.Clone(d.safe)}
}

func openDisk(t *testing.T, d *disk) *Store {
	t.Helper()
	s, err := open(d, io.NopCloser(nil), Config{Logger: slog.New(&d.logged)}.withDefaults())
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		requireIdle(t, s)
	})
	return s
}

// requireIdle checks what a store holds and counts when nothing is being written.
func requireIdle(t testing.TB, s *Store) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.pending)
	require.Empty(t, s.queue)
	require.Zero(t, s.reserved)
	size := int64(0)
	for key, e := range s.entries {
		size += int64(len(key) + len(e.value))
		require.LessOrEqual(t, e.version, s.last)
	}
	require.Equal(t, size, s.bytes)
	if d, ok := s.log.folder.(*disk); ok && s.log.usable() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if i := d.names[logName]; i == s.log.file.(diskFile).i {
			require.Len(t, i.data, int(s.stats.File))
		}
	}
}
