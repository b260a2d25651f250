package gitfetch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// newSpool creates an unlinked file for a received pack, of which nothing is left after a crash.
func newSpool(on files, path string) (*os.File, error) {
	file, err := on.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating a pack file: %w", err)
	}
	if err := on.Remove(path); err != nil {
		return nil, fmt.Errorf("creating a pack file: %w", errors.Join(err, file.Close()))
	}
	return file, nil
}

func empty(spool *os.File) error {
	_, err := spool.Seek(0, io.SeekStart)
	if err = errors.Join(err, spool.Truncate(0)); err != nil {
		return fmt.Errorf("truncating a pack file: %w", err)
	}
	return nil
}

// packIndexes are open indexes of packs.
type packIndexes struct {
	open []*barerepo.Index
	err  error // of has; the object then counts as absent
}

// indexes opens the indexes of packs. bases are the names without extension.
func (f *Fetcher) indexes(folder string, bases []string, idLen int) (*packIndexes, error) {
	xs := &packIndexes{}
	for _, base := range bases {
		x, err := barerepo.OpenIndex(f.disk.files, filepath.Join(folder, base+".idx"), idLen)
		if err != nil {
			xs.close()
			return nil, err
		}
		xs.open = append(xs.open, x)
	}
	return xs, nil
}

func (xs *packIndexes) close() {
	for _, x := range xs.open {
		x.Close()
	}
}

// objects returns the number of objects. Duplicates count, because they are excess data too.
func (xs *packIndexes) objects() (n int) {
	for _, x := range xs.open {
		n += x.Len()
	}
	return n
}

// has reports whether a pack contains an object. The id is in hex.
func (xs *packIndexes) has(id []byte) bool {
	return slices.ContainsFunc(xs.open, func(x *barerepo.Index) bool {
		has, err := x.Has(id)
		xs.err = errors.Join(xs.err, err)
		return has
	})
}

func idLen(ids []nip34.ObjectID) int { return len(ids[0].String()) / 2 }
