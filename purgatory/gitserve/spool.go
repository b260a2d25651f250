package gitserve

import (
	"context"
	"net/http"
	"sync"
)

// spool answers a client at the client's speed, and takes what it is to hear at ours.
// Git must neither wait for a client while it has the lock, nor be killed in the middle
// of a transaction because a client has gone.
type spool struct {
	http.ResponseWriter
	done chan struct{}

	mu sync.Mutex
	// guarded by mu
	kept    []byte
	unheard int // bytes that are kept, or being written
	ended   bool
	gone    bool // nobody hears it any more
	news    *sync.Cond
}

// maxSpool bounds what is kept for a client that does not read, in bytes. The report of
// a push is smaller; whoever has more to come is cut off.
const maxSpool = 16 << 20

// smallReport is what is kept, in bytes, for a client whose push keeps no place any more:
// there are many more readers than places.
const smallReport = 256 << 10

// newSpool returns a spool that writes to w until ctx ends. It must be closed.
func newSpool(ctx context.Context, w http.ResponseWriter) *spool {
	s := &spool{ResponseWriter: w, done: make(chan struct{})}
	s.news = sync.NewCond(&s.mu)
	go s.run(ctx)
	return s
}

// Write implements [io.Writer]. It never waits, and never fails.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = s.gone || s.unheard+len(p) > maxSpool
	if !s.gone {
		s.kept = append(s.kept, p...)
		s.unheard += len(p)
		s.news.Signal()
	}
	return len(p), nil
}

// next waits for something to be written; nil if there will be nothing.
func (s *spool) next() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.kept) == 0 && !s.ended {
		s.news.Wait()
	}
	out := s.kept
	s.kept = nil
	return out
}

func (s *spool) run(ctx context.Context) {
	defer close(s.done)
	out := flusher{s.ResponseWriter, http.NewResponseController(s.ResponseWriter)}
	for p := s.next(); len(p) > 0; p = s.next() {
		for len(p) > 0 && ctx.Err() == nil { // in pieces: each has its time
			n := min(len(p), 32<<10)
			if _, err := out.Write(p[:n]); err != nil {
				s.leave()
				break
			}
			s.heard(n)
			p = p[n:]
		}
	}
}

func (s *spool) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone, s.kept, s.unheard = true, nil, 0
}

func (s *spool) heard(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unheard -= n
}

// left is how much the client has still to hear, in bytes.
func (s *spool) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unheard
}

// close returns when the client has heard everything, or will not.
func (s *spool) close() {
	s.mu.Lock()
	s.ended = true
	s.news.Signal()
	s.mu.Unlock()
	<-s.done
}
