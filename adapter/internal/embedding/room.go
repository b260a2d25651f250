package embedding

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/loglimit"
)

// ErrRoom is wrapped if an event is not stored because the disk is full.
var ErrRoom = errors.New("no room on the disk")

const (
	roomPeriod = time.Second
	// deletionShare divides the minimum for deletions, because they free space.
	deletionShare = 4
)

// Room checks whether the disk has room, because badger is killed when it writes to memory-mapped files
// on a full disk. It is safe for concurrent use.
type Room struct {
	// set by NewRoom, read-only
	free  func() (uint64, error) // nil: no check
	least uint64
	log   *slog.Logger

	lines loglimit.Limiter[struct{}]

	mu sync.Mutex
	// guarded by mu
	asked time.Time
	left  uint64
	err   error
}

// NewRoom returns a Room that requires least bytes.
func NewRoom(free func() (uint64, error), least uint64, log *slog.Logger) *Room {
	return &Room{free: free, least: least, log: log, left: math.MaxUint64}
}

// Of returns nil if there is room for an event, else an error that wraps [ErrRoom].
func (r *Room) Of(e *nostr.Event) error {
	if r.free == nil || nostr.IsEphemeralKind(e.Kind) {
		return nil
	}
	least := r.least
	if e.Kind == graspsync.KindDeletion || e.Kind == graspsync.KindVanish {
		least /= deletionShare
	}
	left, err := r.measure()
	if err == nil && left >= least {
		return nil
	}
	if r.lines.Allow(struct{}{}, time.Now()) {
		r.log.Warn("disk is nearly full, storing no events", "free", left, "least", r.least, "err", err)
	}
	if err != nil {
		return fmt.Errorf("%w: measuring free space: %w", ErrRoom, err)
	}
	return fmt.Errorf("%w: %d bytes are free", ErrRoom, left)
}

func (r *Room) measure() (left uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.asked.IsZero() || now.Sub(r.asked) >= roomPeriod {
		r.asked = now
		r.mu.Unlock() // a disk can hang
		perr := Protect(func() { left, err = r.free() })
		r.mu.Lock()
		r.left, r.err = left, cmp.Or(perr, err)
	}
	return r.left, r.err
}
