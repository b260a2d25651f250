package gitserve

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"sync/atomic"

	"github.com/graspsync/graspsync"
)

// layout is the folder of repositories. It is safe for concurrent use.
type layout struct {
	// set by Open, read-only
	dir   string
	root  folder
	flush func(*os.File) error // fsync
	plain bool                 // PlainNames of RepositoriesConfig

	names atomic.Uint64
}

func (l *layout) at(ref graspsync.RepoRef) string {
	if l.plain && isPlain(ref.Identifier) {
		return path.Join(ref.Owner.String(), ref.Identifier)
	}
	return hashed(ref)
}

// hashed returns a path without text of clients. Paths differ not only in case.
func hashed(ref graspsync.RepoRef) string {
	sum := sha256.Sum256([]byte(ref.Identifier))
	return path.Join(ref.Owner.String(), hex.EncodeToString(sum[:20])+".git")
}

const longestPlain = 150 // bytes of a plain name

var (
	plainName  = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
	hashedName = regexp.MustCompile(`^[0-9a-f]{40}\.git$`)
)

// isPlain reports whether an identifier can be a folder name. It must not look like a hashed name.
func isPlain(identifier string) bool {
	return len(identifier) <= longestPlain && plainName.MatchString(identifier) && identifier != "." && identifier != ".." &&
		!hashedName.MatchString(identifier)
}

const incoming = "incoming"

func (l *layout) fresh() string {
	return path.Join(incoming, strconv.FormatUint(l.names.Add(1), 10))
}

// write creates a file and syncs it. Its folder entry is not durable yet.
func (l *layout) write(name, text string) error {
	f, err := l.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, l.flush(f), f.Close())
}

// sync makes the entries of a folder durable, if it exists. The folder of an owner is removed with
// its last repository.
func (l *layout) sync(name string) error {
	d, err := l.root.Open(name)
	if err != nil {
		return ifExists(err)
	}
	return errors.Join(l.flush(d), d.Close())
}

func (l *layout) away(at string) error {
	old := l.fresh()
	if err := l.root.Rename(at, old); err != nil {
		return ifExists(err)
	}
	return errors.Join(l.sync(path.Dir(at)), l.root.RemoveAll(old))
}

func (l *layout) isThere(at string) (bool, error) {
	_, err := l.root.Stat(path.Join(at, "HEAD"))
	return err == nil, ifExists(err)
}

// folder is an [os.Root], or in tests a failing disk.
type folder interface {
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)
	Open(name string) (*os.File, error)
	OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error)
	ReadFile(name string) ([]byte, error)
	Mkdir(name string, mode fs.FileMode) error
	Rename(from, to string) error
	Remove(name string) error
	RemoveAll(name string) error
	FS() fs.FS
	Close() error
}

var _ folder = (*os.Root)(nil)

func (l *layout) scratch() (*os.File, error) {
	name := l.fresh()
	file, err := l.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := l.root.Remove(name); err != nil {
		return nil, errors.Join(err, file.Close(), l.root.RemoveAll(name))
	}
	return file, nil
}
