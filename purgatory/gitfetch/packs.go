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

// spool is an unlinked file for a received pack. It leaves nothing behind after a crash.
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

// packIndex contains the sorted object ids of a pack.
type packIndex struct {
	ids   []byte
	idLen int
}

// readIndex parses the index of a pack. It keeps a reference to data.
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

// objects returns the number of objects. Objects in several packs count several times, because
// duplicates are excess data too.
func (xs packIndexes) objects() (n int) {
	for _, x := range xs {
		n += x.len()
	}
	return n
}

// has reports whether a pack contains an object. The id is in hex.
func (xs packIndexes) has(hexID []byte) bool {
	var id [32]byte
	n, err := hex.Decode(id[:], hexID[:min(len(hexID), 2*len(id))])
	return err == nil && slices.ContainsFunc(xs, func(x packIndex) bool { return x.idLen == n && x.has(id[:n]) })
}

// A repository that is fetched in parts has objects before any ref reaches them. Servers are told
// at most maxParts of them, for at most maxPartsDirs repositories.
const (
	maxParts     = 64
	maxPartsDirs = 256
)

// parts contains objects that were promoted to repositories and that no ref reaches yet. It is safe
// for concurrent use.
type parts struct {
	mu sync.Mutex
	of *limit.Table[string, promoted] // by folder; guarded by mu
}

type promoted struct {
	ids   []nip34.ObjectID
	last  int    // number of ids of the last promotion
	stamp string // of the repository after the last promotion
}

func newParts() *parts { return &parts{of: limit.NewTable[string, promoted](maxPartsDirs, 0)} }

// took records promoted complete objects. They are protected from garbage collection until letGo.
// stamp is the current stamp of the repository, or "" if unknown.
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

// proven returns the complete objects of the last promotion, and the stamp after it. They are
// complete while the stamp is unchanged.
func (p *parts) proven(dir string) (ids []nip34.ObjectID, stamp string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of, _ := p.of.Get(dir)
	return of.ids[len(of.ids)-of.last:], of.stamp
}
