package gitfetch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/graspsync/graspsync/purgatory"
)

// maxUpkeep is how many repositories are maintained at once: one in turn, and one
// that an operator asks for. Their children are besides MaxChildren.
const maxUpkeep = 2

// upkeeps maintains repositories, few at a time. It is safe for concurrent use.
type upkeeps struct {
	// set by newUpkeeps, read-only
	git      *program
	disk     *storage
	objects  *objectReader
	unshared *copies // of packs that another repository has as well
	claims   *claims
	slots    chan struct{} // one for each repository that is maintained

	packed func(name string) // for tests, nil otherwise: which pack was made
}

func newUpkeeps(git *program, disk *storage, objects *objectReader) *upkeeps {
	return &upkeeps{
		git: git, disk: disk, objects: objects, unshared: newCopies(maxCopies),
		claims: &claims{dirs: make(map[string]bool)}, slots: make(chan struct{}, maxUpkeep),
	}
}

// maintain does what [Fetcher.Maintain] says.
func (us *upkeeps) maintain(ctx context.Context, how purgatory.Maintenance) (purgatory.Maintained, error) {
	release, err := acquire(ctx, us.slots)
	if err != nil {
		return purgatory.Maintained{}, err
	}
	defer release()
	u := us.begin(how, time.Now())
	if err := u.run(ctx); err != nil {
		return u.done, fmt.Errorf("maintaining a repository: %w", err)
	}
	return u.done, nil
}

func (us *upkeeps) begin(how purgatory.Maintenance, now time.Time) *upkeep {
	return &upkeep{
		git: us.git, disk: us.disk, objects: us.objects, unshared: us.unshared, claims: us.claims, packed: us.packed,
		how: how, now: now,
	}
}

// claims are the folders that are maintained: two at once would take each other's work for
// what was there before.
type claims struct {
	mu   sync.Mutex
	dirs map[string]bool // guarded by mu
}

// claim takes a folder. free must be called once.
func (c *claims) claim(dir string) (free func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dirs[dir] {
		return nil, fmt.Errorf("%w: it is being maintained", purgatory.ErrInUse)
	}
	c.dirs[dir] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.dirs, dir)
	}, nil
}
