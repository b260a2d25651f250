package gitserve

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
)

// layout is the folder of repositories, staged data and temporary files. It is safe for concurrent
// use.
type layout struct {
	// set by newLayout, read-only
	dir   string
	root  folder
	flush func(*os.File) error // fsync
	plain bool                 // PlainNames of RepositoriesConfig

	names atomic.Uint64
}

func newLayout(dir string, root folder) *layout {
	return &layout{dir: dir, root: root, flush: (*os.File).Sync}
}

func (l *layout) at(ref graspsync.RepoRef) string {
	if l.plain && isPlain(ref.Identifier) {
		return path.Join(ref.Owner.String(), ref.Identifier)
	}
	return hashed(ref)
}

// hashed returns the path of a repository with a hashed name. It contains no text of clients, and
// names differ not only in case.
func hashed(ref graspsync.RepoRef) string {
	sum := sha256.Sum256([]byte(ref.Identifier))
	return path.Join(ref.Owner.String(), hex.EncodeToString(sum[:20])+".git")
}

// longestPlain is the maximum length of an identifier as folder name. Names of lock marks contain
// the identifier, the owner and more.
const longestPlain = 150

var (
	plainName  = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
	hashedName = regexp.MustCompile(`^[0-9a-f]{40}\.git$`)
)

// isPlain reports whether an identifier can be a folder name. It must not name another folder or
// look like a hashed name.
func isPlain(identifier string) bool {
	return len(identifier) <= longestPlain && plainName.MatchString(identifier) && identifier != "." && identifier != ".." &&
		!hashedName.MatchString(identifier)
}

// mark returns the path of the file that exists while a repository is locked.
func (l *layout) mark(ref graspsync.RepoRef) string {
	return path.Join(incoming, lockMark+strings.Replace(l.at(ref), "/", "-", 1))
}

// incoming is the folder of incomplete and removed data.
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

// sync makes the entries of a folder durable. A missing folder is no error, because the folder of
// an owner is removed with its last repository, possibly concurrently.
func (l *layout) sync(name string) error {
	d, err := l.root.Open(name)
	if err != nil {
		return ifExists(err)
	}
	return errors.Join(l.flush(d), d.Close())
}

// away removes a folder atomically and durably.
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
	Create(name string) (*os.File, error)
	ReadFile(name string) ([]byte, error)
	Mkdir(name string, mode fs.FileMode) error
	Rename(from, to string) error
	Remove(name string) error
	RemoveAll(name string) error
	FS() fs.FS
	Close() error
}

var _ folder = (*os.Root)(nil)

// storage is the disk of the repositories. It is safe for concurrent use.
type storage struct {
	layout *layout
	free   func(dir string) (uint64, error)
	least  uint64 // minimum free bytes
}

// room returns an error if more bytes do not fit on the disk.
func (d *storage) room(more int64) error {
	free, err := d.free(d.layout.dir)
	if err != nil {
		return fmt.Errorf("checking the disk: %w", err)
	}
	if free < d.least || free-d.least < uint64(more) {
		return fmt.Errorf("%w: %d bytes are free", errDisk, free)
	}
	return nil
}

// roomPeriod is the interval of checks of free space while git receives a push.
const roomPeriod = time.Second

// scratch returns an unlinked temporary file.
func (d *storage) scratch() (*os.File, error) {
	name := d.layout.fresh()
	file, err := d.layout.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := d.layout.root.Remove(name); err != nil {
		return nil, errors.Join(err, file.Close(), d.layout.root.RemoveAll(name))
	}
	return file, nil
}
