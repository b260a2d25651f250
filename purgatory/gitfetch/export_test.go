package gitfetch

import (
	"context"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/limit"
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

// Validate returns an error that names each field that can't be used.
func (c Config) Validate() error { return c.validate() }

// OSFiles is the file system that a Fetcher uses. Tests embed it to make an operation fail.
type OSFiles = osFiles

// CheckVersion is called by [New] with a time of its own.
var CheckVersion = checkVersion

// Files returns the file system of f, to replace it.
func (f *Fetcher) Files() *files { return &f.disk.files }

// Free returns the function that f asks for the free bytes of a disk, to replace it.
func (f *Fetcher) Free() *func(dir string) (uint64, error) { return &f.disk.free }

// Started returns the function that is called before f starts a git child, to replace it.
func (f *Fetcher) Started() *func(*exec.Cmd) { return &f.git.started }

// Synced returns the function that is called when f has synced a path, to replace it.
func (f *Fetcher) Synced() *func(path string) { return &f.disk.synced }

// Placed returns the function that is called before f renames a file into a repository.
func (f *Fetcher) Placed() *func(path string) { return &f.disk.placed }

// Open returns a quarantine with its own type.
func (f *Fetcher) Open(dir string) (*Quarantine, error) { return f.quarantines.open(dir) }

// Path returns the folder of q.
func (q *Quarantine) Path() string { return q.path() }

// Packs returns the folder of the packs of q.
func (q *Quarantine) Packs() string { return q.packs() }

// Children returns the number of git children of f that may run now.
func (f *Fetcher) Children() int {
	used, _ := f.git.children.Stats()
	return int(used)
}

// HoldChild takes the place of a git child for the owner of dir until release is called.
func (f *Fetcher) HoldChild(ctx context.Context, dir string) (release func(), err error) {
	return f.git.acquire(ctx, dir, false)
}

// HoldFetch takes the place of a fetch until release is called.
func (f *Fetcher) HoldFetch(ctx context.Context) (release func(), err error) {
	place, err := f.quarantines.receiver.fetching.Acquire(ctx, limit.Stranger{}, 1)
	return func() { place.Release() }, err
}

// Watch returns a context that ends as that of a fetch does whose bytes the meter counts.
func Watch(ctx context.Context) (context.Context, upload.Meter, func()) {
	r := &receiver{cfg: Config{}.withDefaults(), disk: &storage{free: func(string) (uint64, error) { return 1 << 40, nil }}}
	m := &meter{}
	m.run()
	ctx, stop := r.watch(ctx, m, "")
	return ctx, m, stop
}

// Idle fails the test if f counts a child, a fetch or a repository as in use, because a place
// that is not released keeps others out forever.
func (f *Fetcher) Idle(t testing.TB) {
	t.Helper()
	for _, places := range []*limit.Slots{f.git.children, f.git.long, f.quarantines.receiver.fetching, f.maintainer.places} {
		used, waiting := places.Stats()
		require.Zero(t, used)
		require.Zero(t, waiting)
	}
	f.maintainer.mu.Lock()
	defer f.maintainer.mu.Unlock()
	require.Empty(t, f.maintainer.busy)
}
