package session

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Some relays lose a worker or database behind one connection, which a new connection may mend.
// Others never answer one form of request. So a failure counts only if its form was answered on
// this connection, or if no request for history was.

const (
	// consecutive requests without an answer, each sent after the previous failure
	maxSilent = 3
	// silentFor is the minimum silence if a request was answered before, because some relays drop
	// requests that are too frequent.
	silentFor  = time.Hour
	mostShapes = 64
)

// unanswered counts consecutive requests without an answer while the relay sends nothing, without
// NEG-OPENs.
type unanswered struct {
	count      int
	since      time.Time
	failedAt   uint64 // requests up to this number were open at the last failure
	heardAfter uint64 // requests up to this number may be answered by the last message

	alive    bool
	answered []string // shapes
}

func (f *unanswered) heard(last uint64) { f.count, f.heardAfter = 0, last }

func (f *unanswered) answers(x *request) {
	f.alive = true
	if x.kind == reqLive || x.events > 0 || len(f.answered) >= mostShapes {
		return
	}
	if is := shape(x); !slices.Contains(f.answered, is) {
		f.answered = append(f.answered, is)
	}
}

func (f *unanswered) failed(now time.Time, x *request, last uint64) {
	if x.number <= max(f.failedAt, f.heardAfter) || len(f.answered) > 0 && !slices.Contains(f.answered, shape(x)) {
		return
	}
	if f.count == 0 {
		f.since = now
	}
	f.count++
	f.failedAt = last
}

func (f *unanswered) hung(now time.Time) bool {
	return f.count >= maxSilent && (!f.alive || now.Sub(f.since) >= silentFor)
}

func shape(x *request) (s string) {
	for _, f := range x.filters {
		s += fmt.Sprint(len(f.IDs) > 0, len(f.Kinds) > 0, len(f.Authors) > 0, slices.Sorted(maps.Keys(f.Tags)))
	}
	return s
}
