package sync

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

// Audit checks that all counts equal the counted state. No work may be in progress.
func (m *SyncManager) Audit(t *testing.T) {
	t.Helper()
	m.ingest.audit(t)
	for u, c := range m.loop.conns {
		require.Equal(t, u, c.url)
		require.Same(t, m.loop.stats[u], c.stats)
		for id, f := range c.batches {
			require.Equal(t, id, f.batch.ID)
			require.Positive(t, f.open.Load(), "a batch that has ended is let go of")
			require.Nil(t, f.ended, "a batch that has ended is let go of")
		}
		require.LessOrEqual(t, c.read.Load(), c.taken.Load()+2, "little is read ahead")
	}
	for u := range m.loop.stats {
		s := m.health.Status(u)
		c := m.loop.conns[u]
		require.Equal(t, c != nil && c.connected, s.Connected, "%s: what is said of its health", u)
		r, _ := m.health.Export(u)
		require.Equal(t, c != nil && !c.connected, r.Dialing, "%s: whether it is dialed", u)
	}
}

func (g *ingest) audit(t *testing.T) {
	t.Helper()
	g.inflight.mu.Lock()
	defer g.inflight.mu.Unlock()
	coming := make(map[graspsync.EventID]int)
	for k, j := range g.inflight.inFlight {
		require.Equal(t, k, j.key)
		coming[k.id]++
		for _, token := range j.batches {
			require.Positive(t, token.open.Load(), "it is counted on")
		}
	}
	require.Equal(t, coming, g.inflight.coming)
	unsettled, inFlight := g.inflight.unsettled.Load(), int64(len(g.inflight.inFlight))
	require.Contains(t, []int64{inFlight, inFlight + 1}, unsettled) // the writer may be between two of its steps
	if unsettled > inFlight {
		return
	}
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
	for u := range m.loop.stats {
		s := m.health.Status(u)
		r, _ := m.health.Export(u)
		require.False(t, s.Connected || r.Dialing, "%s: its health goes by that it has ended", u)
	}
	for _, c := range m.loop.conns {
		require.Error(t, c.ctx.Err(), "its context is ended")
		for _, f := range c.batches {
			require.GreaterOrEqual(t, f.open.Load(), int64(0), "each batch ends once")
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

// AuditPipeline and PipelineLeftOver are the same of a manager that has no relays.
// ClaimRoom is the room that is left for ids that relays claim.
func (m *SyncManager) ClaimRoom() int64 { return m.ingest.inflight.claims.room.Load() }

func (m *SyncManager) AuditPipeline(t *testing.T)    { t.Helper(); m.ingest.audit(t) }
func (m *SyncManager) PipelineLeftOver(t *testing.T) { t.Helper(); m.ingest.leftOver(t) }
