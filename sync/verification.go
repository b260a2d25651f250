package sync

import (
	"context"
	"errors"
	"fmt"

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
}

// run is one worker: what is not stored yet has its signature checked.
func (v *verification) run(ctx context.Context) {
	for {
		jobs := gather(ctx, v.toVerify, verifyBatch)
		if jobs == nil {
			return
		}
		jobs = v.unstored(ctx, jobs)
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
	j.refund(1)
	v.report.failed.Add(1)
	v.flights.settled(j, false)
	if j.incoming.Source.Kind == graspsync.Live {
		v.refetch.again(j.incoming.Source.Relay, []graspsync.EventID{j.key.id})
	}
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
			j.refund(1)
			v.flights.settled(j, true)
			continue
		}
		kept = append(kept, j)
	}
	return kept
}
