package gitfetch

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"sync"

	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
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

// packIndex has the ids of the objects of a pack, sorted, one after the other.
type packIndex struct {
	ids   []byte
	idLen int
}

// readIndex reads the index of a pack. It keeps data.
func readIndex(data []byte, idLen int) (packIndex, error) {
	if len(data) < barerepo.IndexFanout || string(data[:len(barerepo.IndexMark)]) != barerepo.IndexMark {
		return packIndex{}, barerepo.ErrIndex
	}
	n := int64(binary.BigEndian.Uint32(data[barerepo.IndexFanout-4:]))
	data = data[barerepo.IndexFanout:]
	if n > int64(len(data)/idLen) {
		return packIndex{}, barerepo.ErrIndex
	}
	return packIndex{ids: data[:n*int64(idLen)], idLen: idLen}, nil
}

func (x packIndex) len() int { return len(x.ids) / x.idLen }

func (x packIndex) has(id []byte) bool {
	at := func(i int) []byte { return x.ids[i*x.idLen : (i+1)*x.idLen] }
	i := sort.Search(x.len(), func(i int) bool { return bytes.Compare(at(i), id) >= 0 })
	return i < x.len() && bytes.Equal(at(i), id)
}

type packIndexes []packIndex

// objects counts what is in more than one pack more than once: it is too much, too.
func (xs packIndexes) objects() (n int) {
	for _, x := range xs {
		n += x.len()
	}
	return n
}

// has looks for an id in hex.
func (xs packIndexes) has(hexID []byte) bool {
	var id [32]byte
	n, err := hex.Decode(id[:], hexID[:min(len(hexID), 2*len(id))])
	return err == nil && slices.ContainsFunc(xs, func(x packIndex) bool { return x.idLen == n && x.has(id[:n]) })
}

// A repository that comes in parts has the earlier ones before a ref does: servers are told
// of so many of them, for so many repositories.
const (
	maxParts     = 64
	maxPartsDirs = 256
)

// parts are what was promoted to repositories, and no ref has yet. It is safe for
// concurrent use.
type parts struct {
	mu sync.Mutex
	of *limit.Table[string, promoted] // by folder; guarded by mu
}

// promoted is what is known of one repository.
type promoted struct {
	ids   []nip34.ObjectID
	last  int    // how many of them came last
	stamp string // of the repository after that
}

func newParts() *parts { return &parts{of: limit.NewTable[string, promoted](maxPartsDirs, 0)} }

// took notes what was promoted, with all that it needs. It is kept from garbage collection
// until letGo. stamp is that of the repository now, empty if it is unknown.
func (p *parts) took(dir string, ids []nip34.ObjectID, stamp string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of, _ := p.of.Get(dir)
	all := slices.Concat(of.ids, ids)
	all = all[max(0, len(all)-maxParts):]
	p.of.Put(dir, limit.Stranger{ID: ownerOf(dir)}, 0, promoted{ids: all, last: min(len(ids), len(all)), stamp: stamp})
}

func (p *parts) letGo(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of.Delete(dir)
}

func (p *parts) promoted(dir string) []nip34.ObjectID {
	p.mu.Lock()
	defer p.mu.Unlock()
	of, _ := p.of.Get(dir)
	return of.ids
}

// proven returns what was promoted last, with all that it needs, and the stamp of the
// repository after that: for as long as it has this, nothing that was needed has gone.
func (p *parts) proven(dir string) (ids []nip34.ObjectID, stamp string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of, _ := p.of.Get(dir)
	return of.ids[len(of.ids)-of.last:], of.stamp
}
