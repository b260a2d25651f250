package sync

import (
	"context"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/sync/wire"
)

// Submit has an event go the way of one that a relay sent.
func (m *SyncManager) Submit(ctx context.Context, ev *nostr.Event, src graspsync.Source) error {
	t := newBatchWait()
	t.ended = func() {}
	defer m.ingest.hurry() // it is all that comes
	return m.ingest.submit(ctx, delivery{event: eventtest.Of(ev), src: src, size: 500, wait: t, ids: new(wire.IDChecker)})
}

// RunPipeline is Run without relays.
func (m *SyncManager) RunPipeline(ctx context.Context) {
	var submissions sync.WaitGroup
	submissions.Go(func() { m.submissions.run(ctx) })
	m.ingest.run(ctx)
	submissions.Wait()
}

// OnRefetch sets who is told what is to be asked for by its id.
func (m *SyncManager) OnRefetch(f func(graspsync.RelayURL, []graspsync.EventID)) {
	m.ingest.request = f
}

// Verified is how many signatures were checked.
func (m *SyncManager) Verified() uint64 { return m.telemetry.verified.Load() }

// Dropped is how many of something a bound dropped.
func (m *SyncManager) Dropped(reason string) uint64 {
	var s EventStatus
	m.telemetry.reasons(&s)
	return s.Dropped[reason]
}

// BreakIndex has the index panic over whatever is stored at a repository, as a bug might.
func (m *SyncManager) BreakIndex(ref graspsync.RepoRef) {
	m.index.mu.Lock()
	defer m.index.mu.Unlock()
	m.index.tables.repos[ref] = nil
}

// VerifyBatch is how many signatures are checked at once.
const VerifyBatch = verifyBatch

// Fixed is what only tests set otherwise.
type Fixed = constants

// Fixed returns it, to be changed.
func (c *Config) Fixed() *Fixed { return &c.fixed }

// With returns a copy that has it.
func (c Config) With(f Fixed) Config {
	c.fixed = f
	return c
}
