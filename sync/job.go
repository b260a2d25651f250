package sync

import (
	"sync/atomic"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// copyKey is the same for two deliveries of which one needs to be looked at. The
// id stands for everything but the signature, once it was recomputed.
type copyKey struct {
	id  graspsync.EventID
	sig string
}

// job is an event in the pipeline.
type job struct {
	key      copyKey
	incoming graspsync.Incoming
	gap      bool
	size     int64
	number   uint64       // in the order in which they came
	waits    []*batchWait // guarded by inflight.mu: of everyone who delivered a copy
	from     *relayConn   // who delivered the first; nil if revived
	stats    *relayStats  // of the relay that did
	bytes    *limit.Slot  // of the bytes on their way; nil if revived
	turn     *limit.Slot  // for the check of its signature
	foreign  bool         // its signature was not checked, because its announcement is for another service
	revived  bool         // it has waited in the pool and was settled then
	again    bool         // it stays pending until something else is said of it
	over     bool         // it is settled
	retry
}

// note is what is remembered of a job's event, at least.
func (j *job) note() pending.Note {
	return pending.Note{Incoming: j.incoming, ID: j.key.id, Size: j.size, Payer: payer{j.stats, j.retry}}
}

// What an event takes up besides its text, in bytes, on a machine of 64 bits.
const (
	besides   = 512 // what is kept with it
	tagHead   = 24  // a slice
	valueHead = 16  // a string
)

// memorySize is about how many bytes an event takes up in memory whose text has so many. What points to
// the text counts: an empty value has three bytes there.
func memorySize(ev graspsync.Event, text int) int64 {
	n := text + besides
	for _, tag := range ev.Tags {
		n += tagHead + len(tag)*valueHead
	}
	return int64(n)
}

// host returns the host of the relay that delivered an event.
func (j *job) host() limit.Stranger {
	if j.stats == nil {
		return limit.Stranger{}
	}
	return j.stats.host
}

// release makes room for other events.
func (j *job) release() {
	for _, s := range []*limit.Slot{j.bytes, j.turn} {
		if s != nil {
			s.Release()
		}
	}
}

// batchWait counts the events of one batch that are on their way into the Store. The
// batch has ended when its request has, and every one of them is settled: counted,
// not waited for.
type batchWait struct {
	open   atomic.Int64 // events, and one for the request itself
	failed atomic.Bool  // some event could not be saved; the batch must be repeated
	ended  func()       // set before the request lets go
}

// newBatchWait returns a token that is held by the request.
func newBatchWait() *batchWait {
	t := &batchWait{}
	t.open.Store(1)
	return t
}

func (t *batchWait) hold() { t.open.Add(1) }

// settle lets one hold go. ok is false if an event was lost to a failure of ours.
func (t *batchWait) settle(ok bool) {
	if !ok {
		t.failed.Store(true)
	}
	t.release()
}

// finish lets the request's own hold go. ended is called once everything is
// settled, by whoever settles last; it must not block.
func (t *batchWait) finish(ended func()) {
	t.ended = ended
	t.release()
}

func (t *batchWait) release() {
	if t.open.Add(-1) == 0 {
		t.ended()
	}
}
