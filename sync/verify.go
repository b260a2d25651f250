package sync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/batchverify"
)

// ErrSignature is wrapped by the error of a [Verifier] for an event with a wrong signature.
var ErrSignature = batchverify.ErrSignature

// A Verifier checks signatures (BIP-340) in batches. Verify returns one result for each event, in
// the same order: nil, or an error that wraps [ErrSignature]. The ids of the events have been
// verified. Verify is called concurrently with 1 to a few hundred events, and must not retain or
// change them.
type Verifier interface {
	Verify(events []*nostr.Event) []error
}

var _ Verifier = (*batchverify.Verifier)(nil)

const (
	// verifyBatch is the maximum number of events in one call of the Verifier. Larger batches are
	// hardly cheaper per event.
	verifyBatch = 512

	// verifyLinger is the maximum time that historic events wait for a full batch, because a single
	// check costs several times as much per signature.
	verifyLinger = 20 * time.Millisecond
)

// gather collects a batch, in one worker at a time. It does not wait for more events if the batch
// contains a live event or a request has ended. It returns nil if ctx ends.
func (g *ingest) gather(ctx context.Context) (jobs []*job) {
	select {
	case g.gathering <- struct{}{}:
		defer func() { <-g.gathering }()
	case <-ctx.Done():
		return nil
	}
	if len(g.toVerify) == 0 { // the request that ended has no queued event
		select {
		case <-g.hurried:
		default:
		}
	}
	var linger <-chan time.Time
	var hurried <-chan struct{} // nil without events
	for len(jobs) < verifyBatch {
		select {
		case j := <-g.toVerify:
			if jobs = append(jobs, j); j.incoming.Source.Kind == graspsync.Live {
				return more(g.toVerify, jobs, verifyBatch)
			}
			if linger == nil {
				linger, hurried = time.After(verifyLinger), g.hurried
			}
			continue
		case <-ctx.Done():
			return jobs
		case <-linger:
			return jobs
		case <-hurried:
			return more(g.toVerify, jobs, verifyBatch)
		}
	}
	return jobs
}

// hurry makes queued events be verified immediately, because a request has ended.
func (g *ingest) hurry() {
	select {
	case g.hurried <- struct{}{}:
	default:
	}
}

// verifyAll is one worker. It verifies events until ctx ends.
func (g *ingest) verifyAll(ctx context.Context) {
	for {
		jobs := g.gather(ctx)
		if jobs == nil {
			return
		}
		for _, j := range jobs { // other events of the same hosts may wait for room
			j.turn.Release()
		}
		jobs = g.unstored(ctx, jobs)
		events := make([]*nostr.Event, len(jobs))
		for i, j := range jobs {
			events[i] = j.incoming.Event.Event
		}
		if len(jobs) == 0 {
			continue
		}
		verdicts, err := g.verify(events)
		if err != nil {
			g.cfg.Logger.Warn("verifier failed", keyErr, err)
		}
		for i, j := range jobs {
			switch {
			case err != nil:
				g.unverified(j)
			case errors.Is(verdicts[i], ErrSignature):
				j.from.badSignature(j.key)
				if e, known := g.rejected.Look(j.key.id); known && e.Wanted { // other relays may have a valid copy
					g.refetch(graspsync.RelayURL{}, []graspsync.EventID{j.key.id})
				}
				g.inflight.settled(j, true)
			case verdicts[i] != nil:
				g.cfg.Logger.Warn("verifier failed", keyErr, verdicts[i])
				g.unverified(j)
			default:
				select {
				case g.toSave <- j:
				case <-ctx.Done():
					g.inflight.settled(j, false)
				}
			}
		}
	}
}

// verify calls the Verifier. An error means that no event was checked.
func (g *ingest) verify(events []*nostr.Event) (verdicts []error, err error) {
	defer g.telemetry.recovered(&err, "verifier")
	verdicts = g.cfg.Verifier.Verify(events)
	if len(verdicts) != len(events) {
		return nil, fmt.Errorf("%d verdicts on %d events", len(verdicts), len(events))
	}
	g.telemetry.verified.Add(uint64(len(events)))
	return verdicts, nil
}

// unverified ends a job that could not be verified.
func (g *ingest) unverified(j *job) {
	g.telemetry.failed.Add(1)
	g.inflight.settled(j, false)
	if j.incoming.Source.Kind == graspsync.Live {
		g.refetch(j.incoming.Source.Relay, []graspsync.EventID{j.key.id})
	}
}

// unstored settles the jobs of stored events and returns the others, or all if the Store fails.
func (g *ingest) unstored(ctx context.Context, jobs []*job) []*job {
	ids := make([]graspsync.EventID, len(jobs))
	for i, j := range jobs {
		ids[i] = j.key.id
	}
	has, err := g.store.has(ctx, ids)
	if err != nil {
		return jobs
	}
	kept := jobs[:0]
	for i, j := range jobs {
		if has[i] {
			g.known.Add(j.key.id)
			g.telemetry.duplicates.Add(1)
			g.inflight.settled(j, true)
			continue
		}
		kept = append(kept, j)
	}
	return kept
}
