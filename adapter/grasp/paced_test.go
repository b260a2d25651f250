package grasp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A stored answer that exceeds the gate's queue waits for a slow client, which is not disconnected
// and gets all events.
func TestStoredAnswersWait(t *testing.T) {
	r := &rig{t: t, addr: "127.0.0.1:0", dir: t.TempDir(), kept: state.NewMemory(), db: &slicestore.SliceStore{}}
	require.NoError(t, r.db.Init())
	r.configure = func(_ *khatru.Relay, cfg *grasp.Config) { cfg.Gate.MaxQueues = 32 << 20 } // an eighth for each client
	for i := range 50 {
		ev := relaytest.NewKey("somebody").Event(nostr.Timestamp(1_700_000_000+i), 1, strings.Repeat("x", 200_000))
		require.NoError(t, r.db.SaveEvent(t.Context(), ev))
	}
	r.start()
	defer r.stop()
	c, _, err := websocket.Dial(t.Context(), fmt.Sprintf("ws://%s/", r.addr), nil)
	require.NoError(t, err)
	defer func() { _ = c.CloseNow() }()
	require.NoError(t, c.Write(t.Context(), websocket.MessageText, []byte(`["REQ","x",{"kinds":[1]}]`)))
	time.Sleep(time.Second)
	c.SetReadLimit(1 << 20)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := 0
	for ; ; got++ {
		_, msg, err := c.Read(ctx)
		require.NoError(t, err)
		if string(msg) == `["EOSE","x"]` {
			break
		}
	}
	require.Equal(t, 41, got, "an answer has 8 MiB")
}
