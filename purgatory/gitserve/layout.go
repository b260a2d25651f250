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

// layout is the folder that repositories, what is staged and what is on its way share, and
// how things come and go in it. It is safe for concurrent use.
type layout struct {
	// set by newLayout, read-only
	dir   string
	root  folder
	flush func(*os.File) error // to the disk
	plain bool                 // PlainNames of RepositoriesConfig

	names atomic.Uint64
}

func newLayout(dir string, root folder) *layout {
	return &layout{dir: dir, root: root, flush: (*os.File).Sync}
}

// at is where a repository is, below the root.
func (l *layout) at(ref graspsync.RepoRef) string {
	if l.plain && isPlain(ref.Identifier) {
		return path.Join(ref.Owner.String(), ref.Identifier)
	}
	return hashed(ref)
}

// hashed is where a repository is unless names are plain: nothing of it is a stranger's text,
// and no two differ in case only.
func hashed(ref graspsync.RepoRef) string {
	sum := sha256.Sum256([]byte(ref.Identifier))
	return path.Join(ref.Owner.String(), hex.EncodeToString(sum[:20])+".git")
}

// longestPlain is the longest identifier that names a folder: the names of marks have it, with the
// owner and more.
const longestPlain = 150

var (
	plainName  = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
	hashedName = regexp.MustCompile(`^[0-9a-f]{40}\.git$`)
)

// isPlain reports whether an identifier is the name of its repository's folder where names are
// plain: it leads nowhere else, and is no name that place gives.
func isPlain(identifier string) bool {
	return len(identifier) <= longestPlain && plainName.MatchString(identifier) && identifier != "." && identifier != ".." &&
		!hashedName.MatchString(identifier)
}

// mark is the file that is there while a repository is locked.
func (l *layout) mark(ref graspsync.RepoRef) string {
	return path.Join(incoming, lockMark+strings.Replace(l.at(ref), "/", "-", 1))
}

// incoming has what is not there yet, and what is not there any more.
const incoming = "incoming"

// fresh is a new name for something that is not there yet, or not any more.
func (l *layout) fresh() string {
	return path.Join(incoming, strconv.FormatUint(l.names.Add(1), 10))
}

// write makes a file, durably but for its entry in the folder.
func (l *layout) write(name, text string) error {
	f, err := l.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, l.flush(f), f.Close())
}

// sync makes the entries of a folder durable. A folder that is gone has none: that of an owner goes with
// the last repository in it, while another repository of the owner comes or goes.
func (l *layout) sync(name string) error {
	d, err := l.root.Open(name)
	if err != nil {
		return ifExists(err)
	}
	return errors.Join(l.flush(d), d.Close())
}

// away removes a folder: in one step for all who look, and durably.
func (l *layout) away(at string) error {
	old := l.fresh()
	if err := l.root.Rename(at, old); err != nil {
		return ifExists(err)
	}
	return errors.Join(l.sync(path.Dir(at)), l.root.RemoveAll(old))
}

// isThere reports whether a repository is at a place.
func (l *layout) isThere(at string) (bool, error) {
	_, err := l.root.Stat(path.Join(at, "HEAD"))
	return err == nil, ifExists(err)
}

// folder is the folder of repositories. It is an [os.Root], but in tests of disks that fail.
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

// storage is the disk that the repositories are on. It is safe for concurrent use.
type storage struct {
	layout *layout
	free   func(dir string) (uint64, error)
	least  uint64 // bytes that stay free
}

// room reports whether there is room for more bytes.
func (d *storage) room(more int64) error {
	free, err := d.free(d.layout.dir)
	if err != nil {
		return fmt.Errorf("looking at the disk: %w", err)
	}
	if free < d.least || free-d.least < uint64(more) {
		return fmt.Errorf("%w: %d bytes are free", errDisk, free)
	}
	return nil
}

// roomPeriod is how often the disk is looked at while git works on a push.
const roomPeriod = time.Second

// scratch makes a file that is on no folder's list, and gone when it is closed.
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
