package gitfetch

import (
	"context"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch/internal/upload"
)

// Fixed is the type of the constants that only tests change.
type Fixed = constants

// Fixed returns the constants of a configuration.
func (c *Config) Fixed() *Fixed { return &c.fixed }

// With returns a copy of c with other constants.
func (c Config) With(f Fixed) Config {
	c.fixed = f
	return c
}

// WithDefaults returns a copy of c as [New] uses it.
func (c Config) WithDefaults() Config { return c.withDefaults() }

// Validate returns an error that names every invalid field.
func (c Config) Validate() error { return c.validate() }

// OSFiles is the file system of a Fetcher. Tests embed it to make operations fail.
type OSFiles = osFiles

// CheckVersion is called by [New].
var CheckVersion = checkVersion

// Files returns a pointer to the file system of f.
func (f *Fetcher) Files() *files { return &f.disk.files }

// Free returns a pointer to the function that returns free bytes.
func (f *Fetcher) Free() *func(dir string) (uint64, error) { return &f.disk.free }

// Started returns a pointer to the function called before each git child.
func (f *Fetcher) Started() *func(*exec.Cmd) { return &f.git.Started }

// Synced returns a pointer to the function called when f syncs a path.
func (f *Fetcher) Synced() *func(path string) { return &f.disk.synced }

// Placed returns a pointer to the function called before f renames a file into a repository.
func (f *Fetcher) Placed() *func(path string) { return &f.disk.placed }

func (f *Fetcher) Open(dir string) (*Quarantine, error) { return f.open(dir) }

// Fetch is [Fetcher.Fetch] into q. It returns the number of received bytes.
func (q *Quarantine) Fetch(ctx context.Context, from graspsync.CloneURL, ids []nip34.ObjectID) (int64, error) {
	var received atomic.Int64
	err := q.f.Fetch(ctx, purgatory.FetchRequest{From: from, Want: ids, Dir: q.dir, Quarantine: q.Folder(), Received: &received})
	return received.Load(), err
}

func (q *Quarantine) Path() string { return q.Folder() }

func (q *Quarantine) Packs() string { return q.packs() }

// Children returns the number of free slots for git children.
func (f *Fetcher) Children() int {
	used, _ := f.git.children.Stats()
	return int(used)
}

// HoldChild takes a slot of a git child for the owner of dir until release is called.
func (f *Fetcher) HoldChild(ctx context.Context, dir string) (release func(), err error) {
	return f.git.acquire(ctx, dir)
}

// Watch returns a context that ends like that of a fetch measured by the meter.
func Watch(ctx context.Context) (context.Context, *upload.Meter, func()) {
	f := &Fetcher{cfg: Config{}.withDefaults(), disk: &storage{free: func(string) (uint64, error) { return 1 << 40, nil }}}
	m := &upload.Meter{Total: new(atomic.Int64)}
	ctx, stop := f.watch(ctx, m, "")
	return ctx, m, stop
}

// Idle fails the test if a slot of f is in use, because a slot that is not released is lost.
func (f *Fetcher) Idle(t testing.TB) {
	t.Helper()
	for _, places := range []*limit.Slots{f.git.children, f.fetching, f.maintained} {
		used, waiting := places.Stats()
		require.Zero(t, used)
		require.Zero(t, waiting)
	}
}
