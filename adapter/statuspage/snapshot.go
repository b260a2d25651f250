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

// snapshotPeriod is how old what is shown may be: however many look, the parts are asked no more often.
const snapshotPeriod = time.Second

// snapshot is what all who look within a second see.
type snapshot struct {
	// set when it is made, read-only
	at       time.Time
	sync     relaysync.Status
	git      *purgatory.Status // nil: none
	progress progress

	mu sync.Mutex
	// guarded by mu
	renders map[string]*render
}

// render is what one view shows of a snapshot.
type render struct {
	once sync.Once
	what fragment
}

// maxRenders bounds what is kept of a snapshot; what is beyond is rendered for each who asks.
const maxRenders = 128

// snapshot returns the last one if it is not older than a second.
func (p *Page) snapshot(now time.Time) *snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil && now.Sub(p.last.at) < snapshotPeriod && !now.Before(p.last.at) {
		return p.last
	}
	s := &snapshot{at: now, sync: p.cfg.Sync.Status(), renders: make(map[string]*render)}
	if p.cfg.Purgatory != nil {
		git := p.cfg.Purgatory.Status()
		s.git = &git
	}
	p.history.note(sampleOf(now, s.sync, s.git))
	s.progress = p.history.progress()
	p.last = s
	return s
}

// rendered makes what is shown under a key once.
func (s *snapshot) rendered(key string, f func() fragment) fragment {
	s.mu.Lock()
	r := s.renders[key]
	if r == nil {
		if len(s.renders) >= maxRenders {
			s.mu.Unlock()
			return f()
		}
		r = &render{}
		s.renders[key] = r
	}
	s.mu.Unlock()
	r.once.Do(func() { r.what = f() })
	return r.what
}

// shared has what is asked of parts that take their time over an answer: the same question is asked
// once at a time, and its answer holds for a while.
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
	// maxAnswers bounds the answers that are kept.
	maxAnswers = 64
	// askTimeout is how long an answer may take.
	askTimeout = 5 * time.Second
)

func newShared() *shared { return &shared{answers: make(map[string]answer)} }

// ask returns an answer that is at most hold old. What is asked goes on, for askTimeout, if the one who
// waits gives up: others may wait too.
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
	if len(s.answers) < maxAnswers { // else it is asked again
		s.answers[key] = a
	}
}
