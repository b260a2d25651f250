package gitfetch

import (
	"fmt"
	"io"
	"os"
)

// spool is a file with what has come of a pack. It has no name: nothing is left of it,
// whatever ends us.
type spool struct{ file *os.File }

// newSpool makes a file in a folder of the disk that is watched.
func newSpool(dir string) (*spool, error) {
	file, err := os.CreateTemp(dir, "spool-")
	if err != nil {
		return nil, fmt.Errorf("making room for a pack: %w", err)
	}
	s := &spool{file}
	if err := os.Remove(file.Name()); err != nil {
		s.close()
		return nil, fmt.Errorf("making room for a pack: %w", err)
	}
	return s, nil
}

// Write implements [io.Writer].
func (s *spool) Write(p []byte) (int, error) { return s.file.Write(p) }

// empty drops what has come.
func (s *spool) empty() error {
	_, err := s.reader()
	if err == nil {
		err = s.file.Truncate(0)
	}
	if err != nil {
		return fmt.Errorf("dropping a pack: %w", err)
	}
	return nil
}

// reader reads what has come, from its beginning.
func (s *spool) reader() (io.Reader, error) {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading a pack: %w", err)
	}
	return struct{ io.Reader }{s.file}, nil
}

// close lets go of the file. It had nothing that was to stay.
func (s *spool) close() { _ = s.file.Close() }
