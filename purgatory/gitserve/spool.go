package gitserve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// spool answers a client at the client's speed, and takes what it is to hear at ours: no
// child process, no place and no lock waits for a client, unless so much is left to hear
// that it can't be kept. What is kept is in a file that is written round and round.
type spool struct {
	http.ResponseWriter
	visit *visit
	file  ring
	room  func(more int64) error // of the disk
	done  chan struct{}          // closed when nothing is written to the client any more

	mu sync.Mutex
	// guarded by mu
	news  *sync.Cond // of all below
	most  int64      // bytes that are kept
	taken int64      // bytes written to us
	sent  int64      // bytes of these that the client has
	asked int64      // how far there is room on the disk, or was
	ended bool
	// draining says that nothing is kept until the client has heard everything.
	draining bool
	err      error // why nobody hears it any more
}

// ring is where a spool keeps what its client has not: a file, or memory.
type ring interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// memory is a ring for where the disk has no room at all.
type memory []byte

// ReadAt implements [io.ReaderAt] for what is in it.
func (m memory) ReadAt(p []byte, at int64) (int, error) { return copy(p, m[at:]), nil }

// WriteAt implements [io.WriterAt] for what fits.
func (m memory) WriteAt(p []byte, at int64) (int, error) { return copy(m[at:], p), nil }

// Close implements [io.Closer].
func (m memory) Close() error { return nil }

// memoryAhead is how much of an answer is kept in memory, in bytes: git waits for the client then,
// which is better than that nobody can clone.
const memoryAhead = 64 << 10

// maxAhead bounds how far an answer is ahead of its client, in bytes: of a larger one git
// waits when so much is kept.
const maxAhead = 64 << 20

// leastAhead is what is kept in any case: also where no more than is to stay free is, clones
// go on.
const leastAhead = 1 << 20

var (
	errGone = errors.New("the client is gone")
	errMute = errors.New("git says nothing, or is not heard to its end")
)

// Write implements [io.Writer]. It waits while as much is kept as may be.
func (s *spool) Write(p []byte) (done int, err error) {
	for done < len(p) {
		n, at, err := s.space(len(p) - done)
		if err == nil {
			if n, err = s.file.WriteAt(p[done:done+n], at); errors.Is(err, syscall.ENOSPC) && s.remember() {
				continue
			} else if err != nil {
				err = fmt.Errorf("keeping an answer: %w", err)
				s.leave(err)
			}
		}
		if err != nil {
			return done, err
		}
		s.mu.Lock()
		s.taken += int64(n)
		s.news.Broadcast()
		s.mu.Unlock()
		done += n
	}
	return done, nil
}

// remember has what comes kept in memory from now on, when the client has heard what is in the file.
// It reports whether that can be.
func (s *spool) remember() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, is := s.file.(memory); is {
		return false
	}
	s.draining = true
	s.visit.stall(true)
	for s.err == nil && s.taken > s.sent {
		s.news.Wait()
	}
	s.visit.stall(false)
	s.draining = false
	if s.err == nil { // nobody reads the file: there is nothing more in it
		_ = s.file.Close()
		s.file, s.most, s.asked = make(memory, memoryAhead), memoryAhead, math.MaxInt64
	}
	return true
}

// space waits until something can be kept, and says where, and how much in one piece.
func (s *spool) space(want int) (n int, at int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == s.asked && s.taken < s.most {
		if s.asked += roomEvery; s.room(roomEvery) != nil {
			s.most = s.taken // nothing was written over yet
		}
	}
	if s.err == nil && s.taken-s.sent >= s.most {
		s.visit.stall(true)
		for s.err == nil && s.taken-s.sent >= s.most {
			s.news.Wait()
		}
		s.visit.stall(false)
	}
	at = s.taken % s.most
	free := min(s.most-(s.taken-s.sent), s.most-at)
	if s.taken < s.asked {
		free = min(free, s.asked-s.taken)
	}
	return int(min(int64(want), free)), at, s.err
}

// next waits for something to be there that the client has not, and says where, and how
// much in one piece; 0 if there will be nothing.
func (s *spool) next(most int) (n int, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && s.taken == s.sent && !s.ended {
		s.news.Wait()
	}
	if s.err != nil {
		return 0, 0
	}
	at = s.sent % s.most
	return int(min(int64(most), s.taken-s.sent, s.most-at)), at
}

func (s *spool) run(ctx context.Context) {
	defer close(s.done)
	defer context.AfterFunc(ctx, func() { s.leave(fmt.Errorf("%w: %w", errGone, context.Cause(ctx))) })()
	out := flusher{s.ResponseWriter, http.NewResponseController(s.ResponseWriter)}
	p := make([]byte, 32<<10)
	for n, at := s.next(len(p)); n > 0; n, at = s.next(len(p)) {
		_, err := s.file.ReadAt(p[:n], at)
		if err == nil {
			_, err = out.Write(p[:n])
		}
		if err != nil {
			s.leave(fmt.Errorf("%w: %w", errGone, err))
			return
		}
		s.mu.Lock()
		s.sent += int64(n)
		s.news.Broadcast()
		s.mu.Unlock()
	}
}

// mostPeriods is how many times longer than it may say nothing git may take to say it all
// to a client that takes it slowly: a repository can't be removed meanwhile.
const mostPeriods = 8

// whileMoving returns a context that ends when git has said nothing for so long, and did
// not wait for the client, or has gone on for mostPeriods of that.
func (s *spool) whileMoving(ctx context.Context, most time.Duration) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(most)
		defer tick.Stop()
		last := int64(-1)
		for period := 1; ; period++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			s.mu.Lock()
			now, full := s.taken, s.taken-s.sent >= s.most || s.draining
			s.mu.Unlock()
			if now == last && !full || period == mostPeriods {
				cancel(errMute)
				return
			}
			last = now
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// leave gives up on the client.
func (s *spool) leave(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = why
	}
	s.news.Broadcast()
}

// left is how much the client has still to hear, in bytes.
func (s *spool) left() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0
	}
	return s.taken - s.sent
}

// close returns when the client has heard everything, or will not.
func (s *spool) close() {
	s.mu.Lock()
	s.ended = true
	s.news.Broadcast()
	s.mu.Unlock()
	<-s.done
	_ = s.file.Close() // it has no name: nothing is left of it
}
