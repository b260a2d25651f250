package session

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Some relays lose a worker or database behind one connection. They answer pings and refuse or
// ignore all requests. A new connection may work. Other relays never answer one form of request,
// and a new connection would only interrupt live events. So a failure counts only if its form was
// answered on this connection, or if no request for history was answered.

const (
	// consecutive failed requests, each sent after the previous failure
	maxFailures = 3
	// silentFor is the minimum silence if requests for history were answered before, because some
	// relays drop requests that are too frequent.
	silentFor = time.Hour
	// failuresFor is the minimum time of failures if the relay still sends messages.
	failuresFor = 3 * time.Hour
	mostShapes  = 64
)

// unanswered counts consecutive requests without a useful answer, without NEG-OPENs.
type unanswered struct {
	rounds     int
	silent     int
	since      time.Time
	silence    time.Time
	failedAt   uint64 // requests up to this number were open at the last failure
	heardAfter uint64 // requests up to this number may be answered by the last message

	alive    bool
	answered map[string]struct{}
}

func (f *unanswered) heard(last uint64) { f.silent, f.heardAfter = 0, last }

func (f *unanswered) answers(x *request) {
	f.rounds, f.alive = 0, true
	if x.kind == reqLive || len(f.answered) >= mostShapes {
		return
	}
	if f.answered == nil {
		f.answered = make(map[string]struct{})
	}
	f.answered[shape(x)] = struct{}{}
}

func (f *unanswered) failed(now time.Time, x *request, last uint64) {
	if x.number <= f.failedAt {
		return
	}
	if len(f.answered) > 0 {
		if _, before := f.answered[shape(x)]; !before {
			return
		}
	}
	if f.rounds == 0 {
		f.since = now
	}
	f.rounds++
	if x.number > f.heardAfter {
		if f.silent == 0 {
			f.silence = now
		}
		f.silent++
	}
	f.failedAt = last
}

func (f *unanswered) hung(now time.Time) bool {
	return f.silent >= maxFailures && (!f.alive || len(f.answered) > 0 && now.Sub(f.silence) >= silentFor)
}

func (f *unanswered) over(now time.Time) bool {
	return f.rounds >= maxFailures && now.Sub(f.since) >= failuresFor
}

func shape(x *request) (s string) {
	for _, f := range x.filters {
		s += fmt.Sprint(len(f.IDs) > 0, len(f.Kinds) > 0, len(f.Authors) > 0, slices.Sorted(maps.Keys(f.Tags)))
	}
	return s
}
