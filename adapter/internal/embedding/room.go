package embedding

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// ErrRoom is wrapped if an event is not stored because the disk is full.
var ErrRoom = errors.New("no room on the disk")

const (
	// roomPeriod is the time for which a measurement of the disk is used.
	roomPeriod = time.Second
	// roomSaid is the minimum time between two log lines about a full disk.
	roomSaid = time.Minute
	// deletionShare divides the minimum free space for deletions. They free space, but one deletion
	// can be a thousand times as long as its target.
	deletionShare = 4
)

// Room checks whether the disk has room for more events. Databases break on a full disk: badger is
// killed when it writes to its memory-mapped files. Room is safe for concurrent use.
type Room struct {
	// set by NewRoom, read-only
	free  func() (uint64, error) // nil: no check
	least uint64
	log   *slog.Logger

	mu sync.Mutex
	// guarded by mu
	asked  time.Time
	left   uint64
	err    error
	kept   uint64 // refused events since the last log line
	saidAt time.Time
	said   bool // a full disk was logged, and its end was not
}

// NewRoom returns a Room that wants at least least bytes free. If free is nil, there is always
// room.
func NewRoom(free func() (uint64, error), least uint64, log *slog.Logger) *Room {
	return &Room{free: free, least: least, log: log, left: math.MaxUint64}
}

// Of returns nil if there is room for an event, else an error that wraps [ErrRoom]. While another
// call measures the disk, it uses the last measurement.
func (r *Room) Of(e *nostr.Event) error {
	if r.free == nil || nostr.IsEphemeralKind(e.Kind) {
		return nil
	}
	least := r.least
	if e.Kind == graspsync.KindDeletion || e.Kind == graspsync.KindVanish {
		least /= deletionShare
	}
	now := time.Now()
	r.look(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.err != nil:
		r.say(now)
		return fmt.Errorf("%w: measuring free space: %w", ErrRoom, r.err)
	case r.left < least:
		r.say(now)
		return fmt.Errorf("%w: %d bytes are free", ErrRoom, r.left)
	}
	return nil
}

// look measures the free space at most once per roomPeriod.
func (r *Room) look(now time.Time) {
	r.mu.Lock()
	due := r.asked.IsZero() || now.Sub(r.asked) >= roomPeriod
	if due {
		r.asked = now
	}
	r.mu.Unlock()
	if !due {
		return
	}
	var left uint64
	var err error
	if perr := Protect(func() { left, err = r.free() }); perr != nil {
		err = perr
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left, r.err = left, err
	if r.said && err == nil && left >= r.least {
		r.said = false
		r.log.Info("disk has enough free space again", "free", left, "events", r.kept)
		r.kept = 0
	}
}

// say counts a refused event and logs the number at most once per roomSaid. The caller holds mu.
func (r *Room) say(now time.Time) {
	r.kept++
	if r.said && now.Sub(r.saidAt) < roomSaid {
		return
	}
	// A synced event counts once for each attempt.
	more := []any{"free", r.left, "least", r.least, "events", r.kept}
	if r.err != nil {
		more = append(more, "err", r.err)
	}
	r.log.Warn("disk is nearly full, storing no events", more...)
	r.kept, r.saidAt, r.said = 0, now, true
}
