package sync

import (
	"time"

	"github.com/graspsync/graspsync"
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
	cost     int64       // what it took of the allowance of that relay
	ours     bool        // it seems to be ours
	lane     lane        // of which part of that allowance
	recorded bool        // came live: what becomes of it tells what to expect of its author
	category category    // and of others of its category
	revived  bool        // it has waited in the pool and was settled then
	again    bool        // there was no room for it: it is kept until something else is said of it
	useful   bool        // it was saved, or is held

	// Of one that could not be judged or saved.
	attempts int       // while others could be saved
	tries    int       // all of them
	works    uint64    // retries.works at the last one
	due      time.Time // of the next one
	since    time.Time // of the first
	slow     bool      // the Store came to no end with it alone
	apart    bool      // its bytes are taken from the share of what fails
	waits    bool      // it is to be tried again
	over     bool      // it is settled
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

// refund gives back what an event has cost whose coming was of use, or so many times
// that, and what it will not be charged for again.
func (j *job) refund(times int64) {
	if j.cost > 0 {
		j.stats.work.give(times*j.cost, j.lane)
		j.cost = 0
	}
}

// became notes what became of an event of ours that came live.
func (j *job) became(useful bool) {
	j.useful = useful
	if !j.recorded {
		return
	}
	j.recorded = false
	j.stats.work.judged(j.incoming.Event.PubKey, j.category, useful, j.size)
}

// lent is what an event that waits gives back if it is saved after all.
func (j *job) lent() int64 {
	if j.ours { // that is for those that come now
		return 0
	}
	return j.cost
}

// origin is who delivered an event, as far as its way into the Store knows of that. All of it
// may be used by any goroutine.
type origin interface {
	// forged and badSignature say that an event is none of its author's.
	forged(reason string)
	badSignature(k copyKey)
	// spend takes bytes that were of no use out of the relay's allowance.
	spend(n int64)
	// worthless reports whether its allowance was used up: it is being ended for that.
	worthless() bool
	// gap says that a new event should have come on a live subscription.
	gap(in graspsync.Incoming)
	// account returns who pays for what is delivered, and how far it is read.
	account() (*relayStats, *signs)
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
