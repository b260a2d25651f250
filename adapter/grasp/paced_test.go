package grasp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// What is stored waits for whoever asks for it and does not read; they are not hung up for it.
func TestStoredAnswersWait(t *testing.T) {
	r := &rig{t: t, addr: "127.0.0.1:0", dir: t.TempDir(), kept: state.NewMemory(), db: &slicestore.SliceStore{}}
	require.NoError(t, r.db.Init())
	r.configure = func(_ *khatru.Relay, cfg *grasp.Config) { cfg.Gate.MaxQueues = 32 << 20 } // an eighth for each
	for i := range 200 {
		ev := relaytest.NewKey("somebody").Event(nostr.Timestamp(1_700_000_000+i), 1, strings.Repeat("x", 200_000))
		require.NoError(t, r.db.SaveEvent(t.Context(), ev))
	}
	r.start()
	defer r.stop()
	c, _, err := websocket.Dial(t.Context(), fmt.Sprintf("ws://%s/", r.addr), nil)
	require.NoError(t, err)
	defer func() { _ = c.CloseNow() }()
	require.NoError(t, c.Write(t.Context(), websocket.MessageText, []byte(`["REQ","x",{"kinds":[1]}]`)))
	held := func() bool {
		err := testutil.CollectAndCompare(r.server.Gate().Collector("x"), strings.NewReader(`
# HELP x_gate_hung_up_total Total websockets closed by the server by reason.
# TYPE x_gate_hung_up_total counter
x_gate_hung_up_total{why="quiet"} 0
x_gate_hung_up_total{why="room"} 0
x_gate_hung_up_total{why="slow"} 0
# HELP x_gate_taken Number of used slots by shared resource.
# TYPE x_gate_taken gauge
x_gate_taken{of="body_bytes"} 0
x_gate_taken{of="held"} 1
x_gate_taken{of="listening"} 1
x_gate_taken{of="reconciliations"} 0
x_gate_taken{of="work"} 0
`), "x_gate_hung_up_total", "x_gate_taken")
		return err == nil
	}
	require.Eventually(t, held, time.Minute, 20*time.Millisecond)
}
