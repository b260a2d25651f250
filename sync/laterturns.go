package sync

import (
	"sync/atomic"
	"time"
)

const (
	// laterEvery is between two turns in which events are judged again for which there was
	// no room, laterTurn how many have one, and laterAgain between two of the same event, where
	// nothing of what the Policy holds has found its end meanwhile. So
	// few cost next to nothing, and where there are many, a part of them finds out whether
	// there is any sense in trying the others.
	laterEvery = 5 * time.Second
	laterTurn  = saveBatch
	laterAgain = time.Minute
	// laterHurry is the same once there was room for one, until all were judged again, and
	// laterCalm how long it takes at least until that is done once more.
	laterHurry = time.Second
	laterCalm  = time.Minute
	// laterShare is how many times longer than a turn took what comes now has the writer for
	// itself.
	laterShare = 4

	// laterAskEvery is how often relays are asked for such events by their ids where
	// nothing else is left of them, and laterAskMost for how many each.
	laterAskEvery = time.Minute
	laterAskMost  = 100
)

// laterTurns says when what there was no room for has its turn again. It belongs to the
// writer, but for known, more and room.
type laterTurns struct {
	room      atomic.Pointer[time.Time] // since when there is some: the Policy held something that is stored or removed; nil: never
	known     atomic.Bool               // relays are: what is asked for by its id is asked of whoever had it
	more      atomic.Bool               // there is something of which the writer was not told
	any       bool                      // there is something
	askAt     time.Time
	hurrying  bool
	hurriedAt time.Time // since when, or when last
	timer     *time.Timer
}

// come takes note that there is something that there was no room for.
func (l *laterTurns) come() {
	if !l.any {
		l.any = true
		l.arm(laterEvery)
	}
}

// found takes note that for some of what was judged again at a time there was room.
func (l *laterTurns) found(at time.Time) {
	if at.Sub(l.hurriedAt) >= laterCalm {
		l.hurrying, l.hurriedAt = true, at
	}
}

// since returns until when those were judged last whose turn it may be at a time. All waited for
// the minute once while a hub was synced for the first time, though its owner's places were free again.
func (l *laterTurns) since(now time.Time) time.Time {
	if l.hurrying {
		return l.hurriedAt.Add(-1)
	}
	at := now.Add(-laterAgain)
	if room := l.room.Load(); room != nil && room.After(at) {
		at = *room
	}
	return at
}

// freed takes note that there may be room.
func (l *laterTurns) freed() {
	now := time.Now()
	l.room.Store(&now)
}

// asks reports whether relays are to be asked now.
func (l *laterTurns) asks(now time.Time) bool {
	if !l.known.Load() || now.Before(l.askAt) {
		return false
	}
	l.askAt = now.Add(laterAskEvery)
	return true
}

func (l *laterTurns) arm(wait time.Duration) {
	if l.timer == nil {
		l.timer = time.NewTimer(wait)
		return
	}
	l.timer.Reset(wait)
}

// due returns the channel that says that it is time, nil if there is nothing.
func (l *laterTurns) due() <-chan time.Time {
	if !l.any {
		return nil
	}
	return l.timer.C
}
