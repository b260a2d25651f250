package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// verification are the workers that check signatures.
type verification struct {
	cfg      *Config // read-only
	store    *containedStore
	absences *absences
	flights  *flights
	refetch  *refetch
	report   *report
	toVerify <-chan *job
	toSave   chan<- *job

	turn   chan struct{} // one slot: held by the worker that gathers
	ending chan struct{} // one slot: something ended for which others wait
}

const (
	// verifyBatch is how many events are given to the Verifier at once: more would make
	// signatures hardly cheaper.
	verifyBatch = 512

	// verifyLinger is how long events of the past wait for others to be checked with: what
	// some hundreds take to come from a fast relay. Alone a signature is ten times as dear.
	verifyLinger = 20 * time.Millisecond
)

// newVerification returns workers of whom one at a time gathers: what comes is for one
// large batch, not for many small ones.
func newVerification(v verification) *verification {
	v.turn, v.ending = make(chan struct{}, 1), make(chan struct{}, 1)
	return &v
}

// gather waits for events. Those of the past wait for others, until there are enough of
// them, one comes live, a request has ended, or for a moment. It returns nil if ctx ends.
func (v *verification) gather(ctx context.Context) (jobs []*job) {
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil
	}
	if len(v.toVerify) == 0 { // what had to hurry then is dealt with
		select {
		case <-v.ending:
		default:
		}
	}
	urgent := func(j *job) bool { return j.incoming.Source.Kind == graspsync.Live }
	select {
	case j := <-v.toVerify:
		jobs = append(make([]*job, 0, verifyBatch), j)
	case <-ctx.Done():
		return nil
	}
	if jobs = more(v.toVerify, jobs, verifyBatch); slices.ContainsFunc(jobs, urgent) {
		return jobs
	}
	linger := time.NewTimer(verifyLinger)
	defer linger.Stop()
	for len(jobs) < verifyBatch {
		select {
		case j := <-v.toVerify:
			if jobs = append(jobs, j); urgent(j) {
				return more(v.toVerify, jobs, verifyBatch)
			}
		case <-v.ending:
			return more(v.toVerify, jobs, verifyBatch)
		case <-linger.C:
			return jobs
		case <-ctx.Done():
			return jobs
		}
	}
	return jobs
}

// hurry has what waits for others checked at once: nothing more comes of a request.
func (v *verification) hurry() {
	select {
	case v.ending <- struct{}{}:
	default:
	}
}

// run is one worker: what is not stored yet has its signature checked.
func (v *verification) run(ctx context.Context) {
	for {
		jobs := v.gather(ctx)
		if jobs == nil {
			return
		}
		for _, j := range jobs { // others of their hosts may wait meanwhile
			j.turn.Release()
		}
		jobs = v.unstored(ctx, v.worthwhile(jobs))
		events := make([]*nostr.Event, len(jobs))
		for i, j := range jobs {
			events[i] = j.incoming.Event.Event
		}
		if len(jobs) == 0 {
			continue
		}
		verdicts, err := v.verify(events)
		if err != nil {
			v.cfg.Logger.Warn("verifier failed", keyErr, err)
		}
		for i, j := range jobs {
			switch {
			case err != nil:
				v.lost(j)
			case errors.Is(verdicts[i], ErrSignature):
				j.from.badSignature(j.key)
				if e, known := v.absences.rejected.Look(j.key.id); known && e.Wanted { // other relays may have the real one
					v.refetch.again(graspsync.RelayURL{}, []graspsync.EventID{j.key.id})
				}
				v.flights.settled(j, true)
			case verdicts[i] != nil:
				v.cfg.Logger.Warn("verifier failed", keyErr, verdicts[i])
				v.lost(j)
			default:
				select {
				case v.toSave <- j:
				case <-ctx.Done():
					v.flights.settled(j, false)
				}
			}
		}
	}
}

// verify asks the Verifier. An error is ours, and says nothing about the events.
func (v *verification) verify(events []*nostr.Event) (verdicts []error, err error) {
	defer v.report.recovered(&err, "verifier")
	verdicts = v.cfg.Verifier.Verify(events)
	if len(verdicts) != len(events) {
		return nil, fmt.Errorf("%d verdicts on %d events", len(verdicts), len(events))
	}
	v.report.verified.Add(uint64(len(events)))
	return verdicts, nil
}

// lost ends a job whose event could not be dealt with. The batch that brought it is
// repeated; a live event is asked for by its id.
func (v *verification) lost(j *job) {
	v.report.failed.Add(1)
	v.flights.settled(j, false)
	if j.incoming.Source.Kind == graspsync.Live {
		v.refetch.again(j.incoming.Source.Relay, []graspsync.EventID{j.key.id})
	}
}

// worthwhile settles the jobs that only a relay counts on which is being cut off for what it
// sent before, and returns the others. It is asked for its batch again when it is back.
func (v *verification) worthwhile(jobs []*job) []*job {
	return slices.DeleteFunc(jobs, func(j *job) bool {
		return j.from != nil && j.from.worthless() && v.flights.letGo(j)
	})
}

// unstored settles the jobs whose events the Store has, and returns the others. If
// the Store can't tell, all are worth a look.
func (v *verification) unstored(ctx context.Context, jobs []*job) []*job {
	ids := make([]graspsync.EventID, len(jobs))
	for i, j := range jobs {
		ids[i] = j.key.id
	}
	has, err := v.store.has(ctx, ids)
	if err != nil {
		return jobs
	}
	kept := jobs[:0]
	for i, j := range jobs {
		if has[i] {
			v.absences.known.Add(j.key.id)
			v.report.duplicates.Add(1)
			v.flights.settled(j, true)
			continue
		}
		kept = append(kept, j)
	}
	return kept
}
