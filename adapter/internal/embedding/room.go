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

// ErrRoom is wrapped where an event is not stored since too little of the disk is free.
var ErrRoom = errors.New("no room on the disk")

const (
	// roomPeriod is how long it counts what the disk had free.
	roomPeriod = time.Second
	// roomSaid is the time between two lines in the log about it.
	roomSaid = time.Minute
	// deletionShare is the part of what is to be left, one of so many, that deletions leave. They
	// make room, but one may be a thousand times as long as what it removes.
	deletionShare = 4
)

// Room knows whether the disk has room for more events. Databases die where it has not:
// badger writes to memory that is mapped to its files, and is killed. It is safe for concurrent use.
type Room struct {
	// set by NewRoom, read-only
	free  func() (uint64, error) // nil: there always is
	least uint64
	log   *slog.Logger

	mu sync.Mutex
	// guarded by mu
	asked  time.Time
	left   uint64
	err    error
	kept   uint64 // events that found no room, since the last line in the log
	saidAt time.Time
	said   bool // that there is none, and not yet that there is again
}

// NewRoom asks what is free, in bytes, and wants so much of it left. With no free there always
// is room.
func NewRoom(free func() (uint64, error), least uint64, log *slog.Logger) *Room {
	return &Room{free: free, least: least, log: log, left: math.MaxUint64}
}

// Of returns why there is no room for an event, wrapping ErrRoom; nil if there is. What comes while the disk is
// looked at goes by what was known before.
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
		return fmt.Errorf("%w: it could not be looked at: %w", ErrRoom, r.err)
	case r.left < least:
		r.say(now)
		return fmt.Errorf("%w: %d bytes are free", ErrRoom, r.left)
	}
	return nil
}

// look asks what is free, at most once in roomPeriod.
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
		r.log.Info("there is room on the disk again", "free", left, "events", r.kept)
		r.kept = 0
	}
}

// say counts an event that found no room, and logs that once in a while. It is called with mu.
func (r *Room) say(now time.Time) {
	r.kept++
	if r.said && now.Sub(r.saidAt) < roomSaid {
		return
	}
	// One that comes by sync is counted for each attempt.
	more := []any{"free", r.left, "least", r.least, "events", r.kept}
	if r.err != nil {
		more = append(more, "err", r.err)
	}
	r.log.Warn("no room on the disk: events are not stored", more...)
	r.kept, r.saidAt, r.said = 0, now, true
}
