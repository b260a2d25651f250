package gitfetch

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"
)

// copies bounds what is copied between repositories in a day: keys are free, and each may
// say that it needs what another repository has. Half of it is for repositories that have
// served something for a day: who makes keys by the hundred takes none of that.
type copies struct {
	most int64 // bytes a day
	mu   sync.Mutex
	// guarded by mu
	since   time.Time
	pools   [2]pool // for everybody, and for who has served
	refused uint64
}

func newCopies(most int64) *copies { return &copies{most: most} }

// pool is what there is of something to be shared by owners.
type pool struct {
	spent int64
	by    map[string]int64
}

// payer is whom a copy is charged to.
type payer struct {
	owner  string
	served bool // his repository has served something for a day
}

const (
	// maxCopies is how much is copied in a day, in bytes.
	maxCopies = 4 << 30
	// maxGrowth: a delta whose base is not copied is written out in full. A copy may have so
	// many times the bytes that its objects have where they are.
	maxGrowth = 4
	// copiesShare: one owner may have this part of what the others have left.
	copiesShare = 8
	// servedAfter is how old a repository must be to be one that has served.
	servedAfter = 24 * time.Hour
)

var errCopies = errors.New("too much was copied between repositories today")

// payerOf says for whom a repository is given a copy.
func payerOf(ctx context.Context, git *program, disk *storage, dir string) (payer, error) {
	who := payer{owner: filepath.Dir(dir)}
	info, err := disk.files.Stat(filepath.Join(dir, "config")) // nothing of ours writes it anew
	if err != nil || time.Since(info.ModTime()) < servedAfter {
		return who, err
	}
	out, err := git.run(ctx, child{dir: dir, args: []string{"for-each-ref", "--count=1", "--format=%(refname)", "refs/heads", "refs/tags"}})
	who.served = len(out) > 0
	return who, err
}

// spend charges somebody with a copy. The first may have more of a pool than those who come
// later, but nobody's coming empties it. Should it be larger in the end, more is called.
func (c *copies) spend(now time.Time, who payer, bytes int64) (more func(bytes int64), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.since) >= 24*time.Hour {
		c.since, c.pools = now, [2]pool{}
	}
	for i := range c.pools {
		if p := &c.pools[i]; (i == 0 || who.served) && p.left(c.most/2, who.owner) >= bytes {
			p.take(who.owner, bytes)
			return func(bytes int64) {
				c.mu.Lock()
				defer c.mu.Unlock()
				if bytes > 0 {
					c.pools[i].take(who.owner, bytes)
				}
			}, nil
		}
	}
	c.refused++
	return nil, errCopies
}

func (p *pool) take(owner string, bytes int64) {
	if p.by == nil {
		p.by = make(map[string]int64)
	}
	p.spent += bytes
	p.by[owner] += bytes
}

// left is how much one owner may still have of so many bytes.
func (p *pool) left(of int64, owner string) int64 {
	own := p.by[owner]
	return (of-p.spent+own)/copiesShare - own
}
