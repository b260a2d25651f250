package gitserve

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"time"

	"github.com/graspsync/graspsync/filters"
)

// ceiling bounds what repositories take up. How much that is is measured on the disk,
// where fetches and maintenance change it as well, and no more often than it must be.
type ceiling struct {
	repos *Repositories
	owner int64 // bytes; zero: no limit
	all   int64

	// walking has one value while everything is measured.
	walking chan struct{}

	mu sync.Mutex
	// guarded by mu
	sizes  map[string]size // by the folder of the owner
	sum    int64
	walked time.Time // when everything was measured last
}

// size is what an owner has.
type size struct {
	bytes    int64     // with what pushes take that are under way
	measured int64     // of these
	at       time.Time // when
}

// What an owner has is measured again after a push and after sizeAge, what all have after
// sizesAge. Pushes that are under way are charged with what they have sent.
const (
	sizeAge  = time.Minute
	sizesAge = time.Hour
)

// Why repositories have no more room, for who pushed.
var (
	errOwnerFull = errors.New("the repositories of this owner take up all that they may on this server")
	errFull      = errors.New("the repositories of this server take up all that they may")
)

func newCeiling(repos *Repositories, cfg Config) *ceiling {
	return &ceiling{
		repos: repos, owner: cfg.MaxOwnerBytes, all: cfg.MaxBytes, walking: make(chan struct{}, 1), sizes: make(map[string]size),
	}
}

// levy is what a push that is under way takes of the room there is. A nil one is that of a
// push where there is no limit.
type levy struct {
	c     *ceiling
	ref   filters.RepoRef
	bytes int64
}

// begin makes a push one that takes room. It must be ended. The error is why there is none.
// What all have is measured aside: until that was done, what is known of it counts.
func (c *ceiling) begin(ref filters.RepoRef, aside func(func(context.Context))) (*levy, error) {
	if c.owner == 0 && c.all == 0 {
		return nil, nil
	}
	now := time.Now()
	if err := c.measure(ref.Owner.String(), now); err != nil {
		return nil, err
	}
	if c.all > 0 && c.stale(now) {
		aside(c.walk)
	}
	l := &levy{c: c, ref: ref}
	return l, l.charge(0)
}

// charge says how many bytes a push has sent by now.
func (l *levy) charge(bytes int64) error {
	if l == nil {
		return nil
	}
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(l.ref.Owner.String(), bytes-l.bytes)
	l.bytes = bytes
	switch {
	case c.owner > 0 && c.sizes[l.ref.Owner.String()].bytes >= c.owner:
		return errOwnerFull
	case c.all > 0 && c.sum >= c.all:
		return errFull
	}
	return nil
}

// end takes a charge back: what has become of the push is measured when there is another
// one.
func (l *levy) end() {
	if l == nil {
		return
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	folder := l.ref.Owner.String()
	l.c.add(folder, -l.bytes)
	s := l.c.sizes[folder]
	s.at = time.Time{}
	l.c.sizes[folder] = s
	l.bytes = 0
}

// add is called with mu held.
func (c *ceiling) add(folder string, bytes int64) {
	s := c.sizes[folder]
	s.bytes += bytes
	c.sizes[folder] = s
	c.sum += bytes
}

// measure measures what an owner has, unless it was not long ago.
func (c *ceiling) measure(folder string, now time.Time) error {
	c.mu.Lock()
	was := c.sizes[folder]
	c.mu.Unlock()
	if now.Sub(was.at) < sizeAge {
		return nil
	}
	var bytes int64
	add := func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				bytes += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // somebody has removed it since
			return nil
		}
		return err
	}
	// What is out of service takes room until it goes.
	if err := errors.Join(fs.WalkDir(c.repos.root.FS(), folder, add),
		fs.WalkDir(c.repos.root.FS(), path.Join(departed, folder), add)); err != nil {
		return fmt.Errorf("measuring repositories: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sizes[folder]
	c.sum += bytes - s.measured
	s.bytes += bytes - s.measured // what pushes take that are under way stays
	s.measured, s.at = bytes, now
	c.sizes[folder] = s
	return nil
}

// stale reports whether all is to be measured, and then has the right to do that.
func (c *ceiling) stale(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.walked.IsZero() && now.Sub(c.walked) < sizesAge {
		return false
	}
	select {
	case c.walking <- struct{}{}:
		return true
	default:
		return false
	}
}

// walk measures what all have. What can't be measured now is when it is pushed to.
func (c *ceiling) walk(ctx context.Context) {
	defer func() { <-c.walking }()
	folders, err := fs.ReadDir(c.repos.root.FS(), ".")
	if err != nil {
		return
	}
	out, err := fs.ReadDir(c.repos.root.FS(), departed)
	if err != nil {
		return
	}
	folders = append(folders, out...)
	known := make(map[string]bool)
	for _, f := range folders {
		if key, err := hex.DecodeString(f.Name()); err != nil || len(key) != len(filters.PubKey{}) {
			continue
		}
		if known[f.Name()] {
			continue
		}
		known[f.Name()] = true
		if err := c.measure(f.Name(), time.Now()); err != nil || ctx.Err() != nil {
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for folder, s := range c.sizes {
		if !known[folder] && s.bytes == s.measured {
			c.sum -= s.bytes
			delete(c.sizes, folder)
		}
	}
	c.walked = time.Now()
}
