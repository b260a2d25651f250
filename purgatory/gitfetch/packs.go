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

// spool is an unlinked file for a received pack, of which nothing is left after a crash.
type spool struct {
	file *os.File
	size int64
}

func newSpool(on files, path string) (*spool, error) {
	file, err := on.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating a pack file: %w", err)
	}
	if err := on.Remove(path); err != nil {
		return nil, fmt.Errorf("creating a pack file: %w", errors.Join(err, file.Close()))
	}
	return &spool{file: file}, nil
}

func (s *spool) Write(p []byte) (int, error) {
	n, err := s.file.WriteAt(p, s.size)
	s.size += int64(n)
	return n, err
}

func (s *spool) empty() error {
	if err := s.file.Truncate(0); err != nil {
		return fmt.Errorf("truncating a pack file: %w", err)
	}
	s.size = 0
	return nil
}

func (s *spool) reader() io.Reader { return io.NewSectionReader(s.file, 0, s.size) }

func (s *spool) close() { _ = s.file.Close() }

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
