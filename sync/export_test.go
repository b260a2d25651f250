package sync

import (
	"context"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// Submit processes an event like one from a relay.
func (m *SyncManager) Submit(ctx context.Context, ev *nostr.Event, src graspsync.Source) error {
	t := newRelayBatch(plan.Batch{}, time.Now())
	defer m.ingest.verifySoon() // no further event comes
	j := &job{incoming: graspsync.Incoming{Event: eventtest.Of(ev), Source: src}, size: 500, batches: []*relayBatch{t}}
	return m.ingest.submit(ctx, j, false)
}

// RunPipeline runs the pipeline without relays.
func (m *SyncManager) RunPipeline(ctx context.Context) {
	var submissions sync.WaitGroup
	submissions.Go(func() { m.applyAll(ctx) })
	m.ingest.run(ctx)
	submissions.Wait()
}

// OnRefetch sets the function that is called with ids to request.
func (m *SyncManager) OnRefetch(f func(graspsync.RelayURL, []graspsync.EventID)) {
	m.ingest.request = f
}

// Verified returns the number of checked signatures.
func (m *SyncManager) Verified() uint64 { return m.telemetry.verified.Load() }

// Dropped returns the number of items dropped for a reason.
func (m *SyncManager) Dropped(reason string) uint64 {
	var s EventStatus
	m.telemetry.reasons(&s)
	return s.Dropped[reason]
}

// BreakIndex makes the index panic about each event stored at a repository, like a bug.
func (m *SyncManager) BreakIndex(ref graspsync.RepoRef) {
	repos := reflect.ValueOf(m.index).Elem().FieldByName("tables").Elem().FieldByName("repos")
	repos = reflect.NewAt(repos.Type(), unsafe.Pointer(repos.UnsafeAddr())).Elem()
	repos.SetMapIndex(reflect.ValueOf(ref), reflect.Zero(repos.Type().Elem()))
}

// VerifyBatch is the maximum number of signatures per call of the Verifier.
const VerifyBatch = verifyBatch

// Fixed contains the constants that only tests change.
type Fixed = constants

// Fixed returns the constants of c, to be changed.
func (c *Config) Fixed() *Fixed { return &c.constants }

// With returns a copy with these constants.
func (c Config) With(f Fixed) Config {
	c.constants = f
	return c
}
