package gitserve

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// ceiling bounds what repositories take up. How much that is is measured on the disk,
// where fetches and maintenance change it as well, and no more often than it must be.
type ceiling struct {
	// set by newCeiling, read-only
	layout *layout
	owner  int64 // bytes; zero: no limit
	all    int64
	// weigh says how much of a repository only pull requests need, in bytes.
	weigh    func(ctx context.Context, dir string) (int64, error)
	tasks    *tasks    // in which is done what may outlast who asks
	failures *failures // that something could not be found out

	// walking has one value while everything is measured.
	walking chan struct{}

	mu sync.Mutex
	// guarded by mu
	sizes  map[string]size // by the folder of the owner
	sum    int64
	walked time.Time // when everything was measured last
	// weighing has, by the folder of an owner whose pull requests are being weighed, what is
	// closed when that is done.
	weighing map[string]chan struct{}
}

// size is what an owner has.
type size struct {
	bytes    int64     // with what pushes take that are under way
	measured int64     // of these
	disk     int64     // of that, and of what is ours for now, as far as it is on the disk once
	at       time.Time // when
	// theirs is what only pull requests need of these, as far as it matters; coming is
	// what pushes for those take that are under way.
	theirs, coming int64
	known          bool      // theirs was found out once
	parted         int64     // what was measured when that was found out, or not
	tried          time.Time // when
	failed         bool
	ends           int // pushes that have ended
}

// own is what counts for the owner, who may have most. Anybody can write pull requests: these
// have a room of their own, of the same size. Where what they take matters and could not be
// found out yet, as much as fits into that may be theirs.
func (s size) own(most int64) int64 {
	theirs := s.theirs
	if !s.known && s.measured > most/2 {
		theirs = min(s.measured, most)
	}
	return s.bytes - s.coming - theirs
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
	errPullsFull = errors.New("pull requests for the repositories of this owner take up all that they may on this server")
	errFull      = errors.New("the repositories of this server take up all that they may")
)

func newCeiling(l *layout, cfg RepositoriesConfig, weigh func(ctx context.Context, dir string) (int64, error), tasks *tasks, failures *failures) *ceiling {
	return &ceiling{
		layout: l, owner: cfg.MaxOwnerBytes, all: cfg.MaxBytes,
		weigh: weigh, tasks: tasks, failures: failures,
		walking: make(chan struct{}, 1), sizes: make(map[string]size), weighing: make(map[string]chan struct{}),
	}
}

// levy is what a push that is under way takes of the room there is. A nil one is that of a
// push where there is no limit.
type levy struct {
	c     *ceiling
	ref   graspsync.RepoRef
	pulls bool // it is for pull requests only
	bytes int64
}

// begin makes a push one that takes room, for pull requests only or not. It must be ended.
// The error is why there is none. displaced says how much of what an owner has no pull request
// needs any more. What all have is measured aside: until that was done, what is known of it counts.
func (c *ceiling) begin(ctx context.Context, ref graspsync.RepoRef, pulls bool, displaced func(owner graspsync.PubKey) int64) (*levy, error) {
	if c.owner == 0 && c.all == 0 {
		return nil, nil
	}
	now := time.Now()
	if err := c.measure(ctx, ref.Owner.String(), now); err != nil {
		return nil, err
	}
	c.part(ctx, ref, displaced, now)
	l := &levy{c: c, ref: ref, pulls: pulls}
	err := l.charge(0)
	if c.all > 0 && c.stale(now) {
		c.tasks.beside(c.walk) // not sooner, or what counts would be a matter of luck
	}
	return l, err
}

// charge says how many bytes a push has sent by now.
func (l *levy) charge(bytes int64) error {
	if l == nil {
		return nil
	}
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	folder := l.ref.Owner.String()
	l.take(bytes - l.bytes)
	switch s := c.sizes[folder]; {
	case c.owner > 0 && l.pulls && s.theirs+s.coming >= c.owner:
		return errPullsFull
	case c.owner > 0 && !l.pulls && s.own(c.owner) >= c.owner:
		return errOwnerFull
	case c.all > 0 && c.sum >= c.all:
		return errFull
	}
	return nil
}

// take is called with mu of the ceiling held.
func (l *levy) take(bytes int64) {
	folder := l.ref.Owner.String()
	l.c.add(folder, bytes)
	if l.pulls {
		s := l.c.sizes[folder]
		s.coming += bytes
		l.c.sizes[folder] = s
	}
	l.bytes += bytes
}

// end takes a charge back: what has become of the push is measured when there is another
// one.
func (l *levy) end() {
	if l == nil {
		return
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.bytes == 0 { // nothing has come
		return
	}
	l.take(-l.bytes)
	folder := l.ref.Owner.String()
	s := l.c.sizes[folder]
	s.at, s.ends = time.Time{}, s.ends+1
	l.c.sizes[folder] = s
}

// add is called with mu held.
func (c *ceiling) add(folder string, bytes int64) {
	s := c.sizes[folder]
	s.bytes += bytes
	c.sizes[folder] = s
	c.sum += bytes
}

// measure measures what an owner has, unless it was not long ago.
func (c *ceiling) measure(ctx context.Context, folder string, now time.Time) error {
	c.mu.Lock()
	was := c.sizes[folder]
	c.mu.Unlock()
	if now.Sub(was.at) < sizeAge {
		return nil
	}
	var bytes, disk int64
	add := func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				disk += info.Size() / linksOf(info)
				if !forNow(name) {
					bytes += info.Size()
				}
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // somebody has removed it since
			return nil
		}
		return err
	}
	// What is out of service takes room until it goes.
	if err := errors.Join(fs.WalkDir(c.layout.root.FS(), folder, add),
		fs.WalkDir(c.layout.root.FS(), path.Join(departed, folder), add)); err != nil {
		return fmt.Errorf("measuring repositories: %w", err)
	}
	c.found(folder, was.ends, bytes, disk, now)
	return nil
}

// found takes in what an owner has, measured when so many pushes had ended: what one has
// brought that ended since may not have been seen.
func (c *ceiling) found(folder string, ends int, bytes, disk int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sizes[folder]
	missed := s.ends != ends
	if missed && !s.at.IsZero() {
		return // it was measured after that
	}
	c.sum += disk - s.disk
	s.bytes += bytes - s.measured // what pushes take that are under way stays
	s.measured, s.disk = bytes, disk
	if !missed {
		s.at = now
	}
	c.sizes[folder] = s
}

// forNow reports whether a file is no part of its repository, or not yet: what is being
// fetched, what git is about to finish. It is on the disk, but nobody's: what maintenance
// writes anew would count for its owner twice, and a push that comes is charged already.
func forNow(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
		return strings.HasPrefix(part, barerepo.QuarantinePrefix) || strings.HasPrefix(part, "tmp_")
	})
}

// linksOf is how many names a file has. A pack that repositories share is on the disk once,
// and anybody's repository may be one of them.
func linksOf(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return max(1, int64(st.Nlink))
	}
	return 1
}

// part finds out what pull requests have of what an owner has, where that may matter: where
// they have together more than half of what each of them may. Anybody can make that take
// long, or more than git may have: what can't be found out is as it was, and is tried again
// after a while. It is for others as well, so that whoever asks may leave before the end.
func (c *ceiling) part(ctx context.Context, ref graspsync.RepoRef, displaced func(owner graspsync.PubKey) int64, now time.Time) {
	folder := ref.Owner.String()
	if !c.weighed(ctx, folder) {
		return
	}
	c.mu.Lock()
	s := c.sizes[folder]
	if c.owner == 0 || s.bytes <= c.owner/2 || c.weighing[folder] != nil || now.Sub(s.tried) < sizeAge && (s.failed || s.parted == s.measured) {
		c.mu.Unlock()
		return
	}
	s.parted, s.tried, s.failed = s.measured, now, false
	c.sizes[folder] = s
	done := make(chan struct{})
	c.weighing[folder] = done
	c.mu.Unlock()
	gone := displaced(ref.Owner)
	if !c.tasks.beside(func(ctx context.Context) {
		defer close(done)
		theirs, err := c.weighAll(ctx, folder)
		if err != nil && ctx.Err() == nil {
			c.failures.warn(ref, fmt.Errorf("measuring pull requests: %w", err))
		}
		c.parted(folder, theirs+gone, err)
	}) {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.weighing, folder) // all is to end
		close(done)
		return
	}
	c.weighed(ctx, folder)
}

// weighed waits until nobody weighs the pull requests of an owner, and reports whether that is so.
func (c *ceiling) weighed(ctx context.Context, folder string) bool {
	c.mu.Lock()
	done := c.weighing[folder]
	c.mu.Unlock()
	if done == nil {
		return true
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// parted takes in what pull requests have of what an owner has, or that it could not be found out.
func (c *ceiling) parted(folder string, theirs int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.weighing, folder)
	s := c.sizes[folder]
	if s.failed = err != nil; !s.failed {
		s.theirs, s.known = min(theirs, s.measured), true
	}
	c.sizes[folder] = s
}

// weighAll weighs the pull requests of all repositories of an owner.
func (c *ceiling) weighAll(ctx context.Context, folder string) (theirs int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, partMost)
	defer cancel()
	entries, err := fs.ReadDir(c.layout.root.FS(), folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	for _, e := range entries {
		at := path.Join(folder, e.Name())
		if _, err := c.layout.root.Stat(path.Join(at, "HEAD")); err != nil {
			continue // it is none, or has gone
		}
		n, err := c.weigh(ctx, filepath.Join(c.layout.dir, filepath.FromSlash(at)))
		if err != nil {
			return 0, err
		}
		theirs += n
	}
	return theirs, nil
}

// partMost bounds the time in which that is found out.
const partMost = 20 * time.Second

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

// walk measures what all have. What can't be measured keeps nothing else from it: it is when
// it is pushed to, and all is measured anew after sizeAge.
func (c *ceiling) walk(ctx context.Context) {
	defer func() { <-c.walking }()
	known, err := c.owners()
	for folder := range known {
		if ctx.Err() != nil {
			return
		}
		err = errors.Join(err, c.measure(ctx, folder, time.Now()))
	}
	if err != nil {
		c.failures.log.Warn("repositories could not be measured", "error", graspsync.Printable(err.Error()))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.walked = time.Now(); err != nil {
		c.walked = c.walked.Add(sizeAge - sizesAge)
		return
	}
	for folder, s := range c.sizes {
		if _, ok := known[folder]; !ok && s.bytes == s.measured {
			c.sum -= s.disk
			delete(c.sizes, folder)
		}
	}
}

// owners returns the folders of those who have something, also out of service.
func (c *ceiling) owners() (map[string]struct{}, error) {
	here, err := fs.ReadDir(c.layout.root.FS(), ".")
	out, outErr := fs.ReadDir(c.layout.root.FS(), departed)
	folders := make(map[string]struct{})
	for _, f := range append(here, out...) {
		if key, err := hex.DecodeString(f.Name()); err == nil && len(key) == len(graspsync.PubKey{}) {
			folders[f.Name()] = struct{}{}
		}
	}
	return folders, errors.Join(err, outErr)
}
