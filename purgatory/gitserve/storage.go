package gitserve

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// errDisk is wrapped when less than Config.MinFreeDisk would be free.
var errDisk = errors.New("not enough free disk")

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
		return fmt.Errorf("%w: %d bytes", errDisk, free)
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
