package gitserve

import (
	"context"
	"io"
	"io/fs"
	"os"

	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// untilDisk is a disk on which nothing is opened or read any more when ctx has ended: there may be
// hundreds of thousands of refs. It lives as long as one call.
type untilDisk struct {
	ctx context.Context //nolint:containedctx // of the one call
	on  folder
}

var _ barerepo.Disk = untilDisk{}

// Mkdir implements [barerepo.Disk].
func (d untilDisk) Mkdir(name string, mode fs.FileMode) error { return d.on.Mkdir(name, mode) }

// OpenFile implements [barerepo.Disk].
func (d untilDisk) OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	if d.ctx.Err() != nil {
		return nil, context.Cause(d.ctx)
	}
	return d.on.OpenFile(name, flag, mode)
}

// ReadFile implements [barerepo.Disk].
func (d untilDisk) ReadFile(name string) ([]byte, error) {
	if d.ctx.Err() != nil {
		return nil, context.Cause(d.ctx)
	}
	return d.on.ReadFile(name)
}

// untilWriter writes nothing any more when ctx has ended. It lives as long as one call.
type untilWriter struct {
	ctx context.Context //nolint:containedctx // of the one call
	to  io.Writer
}

// Write implements [io.Writer].
func (w untilWriter) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.to.Write(p)
}
