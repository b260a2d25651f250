package gitfetch

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// spool is a file with what has come of a pack. It has no name: nothing is left of it,
// whatever ends us.
type spool struct {
	file *os.File
	size int64
}

// newSpool makes a file on the disk that is watched.
func newSpool(on files, path string) (*spool, error) {
	file, err := on.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making room for a pack: %w", err)
	}
	if err := on.Remove(path); err != nil {
		return nil, fmt.Errorf("making room for a pack: %w", errors.Join(err, file.Close()))
	}
	return &spool{file: file}, nil
}

// Write implements [io.Writer].
func (s *spool) Write(p []byte) (int, error) {
	n, err := s.file.WriteAt(p, s.size)
	s.size += int64(n)
	return n, err
}

// empty drops what has come.
func (s *spool) empty() error {
	if err := s.file.Truncate(0); err != nil {
		return fmt.Errorf("dropping a pack: %w", err)
	}
	s.size = 0
	return nil
}

// reader reads what has come, from its beginning.
func (s *spool) reader() io.Reader { return io.NewSectionReader(s.file, 0, s.size) }

// close lets go of the file. It had nothing that was to stay.
func (s *spool) close() { _ = s.file.Close() }
