package sync

import (
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
	number   uint64      // in the order in which they came
	tokens   []*token    // guarded by flights.mu: of everyone who delivered a copy
	from     origin      // who delivered the first; nil if revived
	stats    *relayStats // of the relay that did
	bytes    *limit.Slot // of the bytes on their way; nil if revived
	turn     *limit.Slot // for the check of its signature
	foreign  bool        // its signature was not checked, because its announcement is for another service
	revived  bool        // it has waited in the pool and was settled then
	again    bool        // it stays pending until something else is said of it
	over     bool        // it is settled
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

// held is about how many bytes an event takes up in memory whose text has so many. What points to
// the text counts: an empty value has three bytes there.
func held(ev graspsync.Event, text int) int64 {
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

// origin is who delivered an event, as far as its way into the Store knows of that. All of it
// may be used by any goroutine.
type origin interface {
	// forged and badSignature say that an event is none of its author's.
	forged(reason string)
	badSignature(k copyKey)
	// spend takes repeated bytes out of the allowance of the relay's host.
	spend(n int64)
	// worthless reports whether its allowance was used up: it is being ended for that.
	worthless() bool
	// gap says that a new event should have come on a live subscription.
	gap(in graspsync.Incoming)
	// account returns what is counted of the relay.
	account() *relayStats
}

// refetch has events asked for by their ids.
type refetch struct {
	// ask has ids asked for of the relay that had them (zero: any); nil if they must wait for
	// the next pass. It never blocks.
	ask func(relay graspsync.RelayURL, ids []graspsync.EventID)
}

// again has events asked for.
func (r *refetch) again(relay graspsync.RelayURL, ids []graspsync.EventID) {
	if r.ask != nil && len(ids) > 0 {
		r.ask(relay, ids)
	}
}
