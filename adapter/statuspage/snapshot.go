package statuspage

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

// snapshotPeriod is the maximum age of a snapshot, so the cost does not depend on the number of
// viewers.
const snapshotPeriod = time.Second

// snapshot is the state of the parts, shared by the viewers of one second.
type snapshot struct {
	at   time.Time
	sync relaysync.Status
	git  *purgatory.Status // nil: none
}

// snapshot returns the last snapshot, or a new one after snapshotPeriod.
func (p *Page) snapshot(now time.Time) *snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil && now.Sub(p.last.at) < snapshotPeriod && !now.Before(p.last.at) {
		return p.last
	}
	s := &snapshot{at: now, sync: p.cfg.Sync.Status()}
	if p.cfg.Purgatory != nil {
		git := p.cfg.Purgatory.Status()
		s.git = &git
	}
	p.last = s
	return s
}

// shared caches answers of slow parts. Equal questions are asked once at a time, and an answer is
// valid for a while.
type shared struct {
	flights singleflight.Group

	mu sync.Mutex
	// guarded by mu
	answers map[string]answer
}

type answer struct {
	until time.Time
	value any
	err   error
}

const (
	// maxAnswers is the maximum number of cached answers.
	maxAnswers = 64
	// askTimeout is the maximum time of an answer.
	askTimeout = 5 * time.Second
)

func newShared() *shared { return &shared{answers: make(map[string]answer)} }

// ask returns an answer that is at most hold old. A call continues when its caller gives up,
// because others may wait for it.
func ask[T any](ctx context.Context, s *shared, key string, hold time.Duration, f func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	a, ok := s.answers[key]
	s.mu.Unlock()
	if !ok || !time.Now().Before(a.until) {
		came := s.flights.DoChan(key, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
			defer cancel()
			v, err := f(ctx)
			s.keep(key, answer{time.Now().Add(hold), v, err})
			return v, err
		})
		select {
		case r := <-came:
			a = answer{value: r.Val, err: r.Err}
		case <-ctx.Done():
			a = answer{err: context.Cause(ctx)}
		}
	}
	v, _ := a.value.(T)
	return v, a.err
}

func (s *shared) keep(key string, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.answers, func(_ string, a answer) bool { return !now.Before(a.until) })
	if len(s.answers) < maxAnswers { // otherwise not cached
		s.answers[key] = a
	}
}
