package gitserve

import (
	"errors"
	"os"
	"path"
	"strconv"
	"sync/atomic"
)

// layout is the folder that repositories, what is staged and what is on its way share, and
// how things come and go in it. It is safe for concurrent use.
type layout struct {
	// set by newLayout, read-only
	dir   string
	root  folder
	flush func(*os.File) error // to the disk

	names atomic.Uint64
}

func newLayout(dir string, root folder) *layout {
	return &layout{dir: dir, root: root, flush: (*os.File).Sync}
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

// sync makes the entries of a folder durable.
func (l *layout) sync(name string) error {
	d, err := l.root.Open(name)
	if err != nil {
		return err
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
