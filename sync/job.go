package sync

import (
	"sync/atomic"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// copyKey identifies a copy of an event. The id covers everything but the signature.
type copyKey struct {
	id  graspsync.EventID
	sig string
}

type job struct {
	key      copyKey
	incoming graspsync.Incoming
	gap      bool
	size     int64
	number   uint64       // in the order of arrival
	waits    []*batchWait // guarded by inflight.mu: of all connections that delivered a copy
	from     *relayConn   // the first of these; nil if revived
	stats    *relayStats  // of its relay
	bytes    *limit.Slot  // room in the pipeline; nil if revived
	turn     *limit.Slot  // room for a signature check
	foreign  bool         // an announcement for another service, whose signature was not checked
	revived  bool         // it was pending and is settled
	again    bool         // it stays pending until it has another result
	over     bool         // it is settled
	retry
}

func (j *job) note() pending.Note {
	return pending.Note{Incoming: j.incoming, ID: j.key.id, Size: j.size, Payer: payer{j.stats, j.retry}}
}

// Memory of an event in addition to its text, in bytes, on 64-bit machines.
const (
	besides   = 512 // fixed fields and tables
	tagHead   = 24  // a slice
	valueHead = 16  // a string
)

// memorySize estimates the memory of an event from the length of its text. Slice and string headers
// count, because an empty value has three bytes of text.
func memorySize(ev graspsync.Event, text int) int64 {
	n := text + besides
	for _, tag := range ev.Tags {
		n += tagHead + len(tag)*valueHead
	}
	return int64(n)
}

func (j *job) host() limit.Stranger {
	if j.stats == nil {
		return limit.Stranger{}
	}
	return j.stats.host
}

func (j *job) release() {
	for _, s := range []*limit.Slot{j.bytes, j.turn} {
		if s != nil {
			s.Release()
		}
	}
}

// batchWait counts the unsettled events of a batch. The batch ends when its request has ended and
// all its events are settled. No goroutine blocks for that.
type batchWait struct {
	open   atomic.Int64 // events, plus one for the request
	failed atomic.Bool  // an event could not be saved, so the batch must be repeated
	ended  func()       // set by finish
}

// newBatchWait returns a batchWait with count 1, for the request.
func newBatchWait() *batchWait {
	t := &batchWait{}
	t.open.Store(1)
	return t
}

func (t *batchWait) hold() { t.open.Add(1) }

// settle counts an event down. ok is false if an own failure lost the event.
func (t *batchWait) settle(ok bool) {
	if !ok {
		t.failed.Store(true)
	}
	t.release()
}

// finish counts the request down. The goroutine that settles last calls ended, which must not
// block.
func (t *batchWait) finish(ended func()) {
	t.ended = ended
	t.release()
}

func (t *batchWait) release() {
	if t.open.Add(-1) == 0 {
		t.ended()
	}
}
