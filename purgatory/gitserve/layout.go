package gitserve

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

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

// mark is the file that is there while a push goes on.
func (l *layout) mark(ref graspsync.RepoRef) string { return l.marked(pushMark, ref) }

func (l *layout) marked(with string, ref graspsync.RepoRef) string {
	return path.Join(incoming, with+strings.Replace(l.at(ref), "/", "-", 1))
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
