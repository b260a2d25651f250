package gitfetch

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// quarantines makes quarantines, and removes those that were left. It is safe for concurrent
// use.
type quarantines struct {
	// set by newQuarantines, read-only
	git      *program
	disk     *storage
	objects  *objectReader
	parts    *parts
	receiver *receiver
	epoch    string // in the names of quarantines: whose they are

	names atomic.Uint64
}

func newQuarantines(git *program, disk *storage, objects *objectReader, parts *parts, receiver *receiver) *quarantines {
	return &quarantines{git: git, disk: disk, objects: objects, parts: parts, receiver: receiver, epoch: newEpoch()}
}

// open makes a quarantine in a repository.
func (qs *quarantines) open(dir string) (*Quarantine, error) {
	if err := qs.sweep(dir); err != nil { // or a crash loop would fill the disk
		return nil, err
	}
	q := &Quarantine{
		git: qs.git, disk: qs.disk, objects: qs.objects, parts: qs.parts, receiver: qs.receiver,
		dir: dir, name: fmt.Sprintf("%s%s-%d", quarantinePrefix, qs.epoch, qs.names.Add(1)),
	}
	for _, p := range []string{q.path(), q.packs()} {
		if err := qs.disk.files.Mkdir(p, 0o700); err != nil {
			return nil, fmt.Errorf("making a quarantine: %w", errors.Join(err, q.Discard()))
		}
	}
	return q, nil
}

func newEpoch() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// sweep removes the quarantines that earlier processes left in a repository.
func (qs *quarantines) sweep(dir string) error {
	entries, err := qs.disk.files.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("sweeping quarantines: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), quarantinePrefix) && !strings.HasPrefix(e.Name(), quarantinePrefix+qs.epoch) {
			errs = append(errs, qs.disk.files.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
