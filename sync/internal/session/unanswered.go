package session

import "time"

// Some relays lose a worker or database behind one connection, which a new connection may mend.

const (
	// consecutive requests without an answer, each sent after the previous failure
	maxSilent = 3
	// silentFor is the minimum silence if a request was answered before, because some relays drop
	// requests that are too frequent.
	silentFor = time.Hour
)

// unanswered counts consecutive requests without an answer while the relay sends nothing, without
// NEG-OPENs.
type unanswered struct {
	count      int
	since      time.Time
	failedAt   uint64 // requests up to this number were open at the last failure
	heardAfter uint64 // requests up to this number may be answered by the last message
	alive      bool   // a request was answered
}

func (f *unanswered) heard(last uint64) { f.count, f.heardAfter = 0, last }

func (f *unanswered) failed(now time.Time, x *request, last uint64) {
	if x.number <= max(f.failedAt, f.heardAfter) {
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
