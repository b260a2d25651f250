package sync

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

// Audit checks that all counts equal the counted state. No work may be in progress.
func (m *SyncManager) Audit(t *testing.T, tally *Tally) {
	t.Helper()
	m.ingest.audit(t)
	tally.audit(t, m)
	for u, c := range m.loop.conns {
		require.Equal(t, u, c.url)
		require.Same(t, m.loop.stats[u], c.stats)
		for id, f := range c.batches {
			require.Equal(t, id, f.batch.ID)
			require.Positive(t, f.wait.open.Load(), "a batch that has ended is let go of")
			require.Nil(t, f.wait.ended, "a batch that has ended is let go of")
		}
		require.LessOrEqual(t, c.ahead.bytes.Load(), int64(frameBytes)+mostMessage)
		if m.ingest.inflight.unsettled.Load() == 0 && c.session != nil && c.ahead.taken.Load() == c.ahead.read.Load() {
			require.Zero(t, c.ahead.bytes.Load())
		}
	}
	for u, s := range m.health.All() {
		c := m.loop.conns[u]
		require.Equal(t, c != nil && c.stands, s.Connected, "%s: what is said of its health", u)
		r, _ := m.health.Export(u)
		require.Equal(t, c != nil && !c.stands, r.Dialing, "%s: whether it is dialed", u)
	}
	labelled := 0
	for _, s := range m.loop.stats {
		if s.labelled {
			labelled++
		}
	}
	require.Equal(t, labelled, m.loop.status.labels)
}

// mostMessage is the maximum message size of relays in tests.
const mostMessage = 1 << 20

func (g *ingest) audit(t *testing.T) {
	t.Helper()
	g.inflight.mu.Lock()
	defer g.inflight.mu.Unlock()
	writing := g.inflight.turn.Load()%2 == 1
	coming := make(map[graspsync.EventID]int)
	for k, j := range g.inflight.inFlight {
		require.Equal(t, k, j.key)
		coming[k.id]++
		for _, token := range j.waits {
			require.Positive(t, token.open.Load(), "it is counted on")
		}
	}
	require.Equal(t, coming, g.inflight.coming)
	if writing { // between two of its steps
		return
	}
	require.Equal(t, int64(len(g.inflight.inFlight)), g.inflight.unsettled.Load())
	require.Equal(t, int64(g.rejected.Held().Waiting), g.waiting.Load())
	inside := int64(0)
	for _, j := range g.inflight.inFlight {
		inside += j.size
	}
	used, _ := g.inflight.room.Stats()
	require.GreaterOrEqual(t, used, inside, "bytes in flight; some wait for their check yet")
}

// LeftOver checks that no resource is held after Run has returned.
func (m *SyncManager) LeftOver(t *testing.T) {
	t.Helper()
	m.ingest.leftOver(t)
	for u, s := range m.health.All() {
		r, _ := m.health.Export(u)
		require.False(t, s.Connected || r.Dialing, "%s: its health goes by that it has ended", u)
	}
	for _, c := range m.loop.conns {
		require.Error(t, c.ctx.Err(), "its context is ended")
		for _, f := range c.batches {
			require.GreaterOrEqual(t, f.wait.open.Load(), int64(0), "each batch ends once")
		}
	}
}

func (g *ingest) leftOver(t *testing.T) {
	t.Helper()
	require.Empty(t, g.inflight.inFlight)
	require.Empty(t, g.inflight.coming)
	require.Zero(t, g.inflight.unsettled.Load())
	for _, s := range []*limit.Slots{g.inflight.room, g.inflight.checks} {
		used, waiting := s.Stats()
		require.Zero(t, used)
		require.Zero(t, waiting)
	}
	require.EqualValues(t, claimRoom, g.inflight.claims.room.Load(), "room for ids that relays claim is given back")
	require.Empty(t, g.toVerify)
	require.Empty(t, g.toSave)
}

// descends reports whether an event is a followed reply in a hosted repository.
func (x *eventIndex) descends(id graspsync.EventID) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.tables.threads.nodes[refKey(id)]
	return n != nil && n.place.depth > 0
}

// AuditPipeline and PipelineLeftOver are the same of a manager that has no relays.
// ClaimRoom is the room that is left for ids that relays claim.
func (m *SyncManager) ClaimRoom() int64 { return m.ingest.inflight.claims.room.Load() }

func (m *SyncManager) AuditPipeline(t *testing.T)    { t.Helper(); m.ingest.audit(t) }
func (m *SyncManager) PipelineLeftOver(t *testing.T) { t.Helper(); m.ingest.leftOver(t) }

// Tally counts the observations.
type Tally struct {
	mu     sync.Mutex
	counts map[string]uint64 // guarded by mu
}

// Observed counts observations in addition to a configured observer.
func Observed(cfg *Config) *Tally {
	if cfg.Observe != nil || cfg.fixed.ObserveQueue != 0 {
		return nil // the test itself uses the observer
	}
	y := &Tally{counts: make(map[string]uint64)}
	cfg.Observe, cfg.fixed.ObserveQueue = y.observe, 1<<15
	return y
}

func (y *Tally) observe(o Observation) {
	key, n := fmt.Sprintf("%T", o), 1
	switch o := o.(type) {
	case EventStored:
		key += " " + o.Source.Kind.String()
	case EventRejected:
		key += " " + o.Reason
	case Dropped:
		key, n = key+" "+o.Reason, o.Count
	case GapFound:
		key += fmt.Sprint(" ", o.Lasting)
	case RelayLearned:
		key += " " + o.Fact
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.counts[key] += uint64(n) //nolint:gosec // counts
}

// audit checks that the counts of the status equal the counts of the observations.
func (y *Tally) audit(t *testing.T, m *SyncManager) {
	t.Helper()
	if y == nil {
		return
	}
	var s EventStatus
	m.telemetry.reasons(&s)
	y.mu.Lock()
	defer y.mu.Unlock()
	if s.Dropped[dropObservations] > 0 {
		return
	}
	want := make(map[string]uint64)
	for k, n := range m.telemetry.bySource() {
		if k != graspsync.Direct.String() {
			want["sync.EventStored "+k] = n
		}
	}
	for reason, n := range s.Dropped {
		want["sync.Dropped "+reason] = n
	}
	for fact, n := range s.Learned {
		want["sync.RelayLearned "+fact] = n
	}
	got := make(map[string]uint64)
	for key, n := range y.counts {
		switch strings.SplitN(key, " ", 2)[0] {
		case "sync.EventStored", "sync.Dropped", "sync.RelayLearned":
			got[key] = n
		case "sync.EventRejected":
			if reason := strings.TrimPrefix(key, "sync.EventRejected "); !strings.HasPrefix(reason, "released and ") && len(s.Rejected) < maxReasons {
				require.LessOrEqual(t, n, s.Rejected[reason], reason) // submitted events are counted but not observed
			}
		}
	}
	maps.DeleteFunc(want, func(_ string, n uint64) bool { return n == 0 })
	require.Equal(t, want, got)
	if y.counts["sync.RelayForgotten"] > 0 {
		return
	}
	clear(want)
	for _, s := range m.loop.stats {
		want["sync.GapFound true"] += s.lasting.Load()
		want["sync.GapFound false"] += s.gaps.Load() - s.lasting.Load()
	}
	for key, n := range want {
		require.Equal(t, n, y.counts[key], key)
	}
}
