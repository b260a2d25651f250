package khatruadapter

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/khatru"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
)

// Behind a gate a client reads stored events at its own pace, receives live events, and publishes.
// khatru alone writes as fast as it can.
func TestBehindAGate(t *testing.T) {
	relay, db := khatru.NewRelay(), newSlice(t)
	door := gate.New(relay, gate.Config{})
	t.Cleanup(door.Close)
	var waits atomic.Int64
	s, _, _ := embed(t, relay, db, Config{})
	s.Pace(func(ctx context.Context, r *http.Request, subscription string) {
		waits.Add(1)
		door.Wait(ctx, r, subscription)
	})
	const events, bytes = 300, 50_000 // 15 MB, above the 8 MiB limit of an answer
	for i := range events {
		e := event(alice, 1, start+nostr.Timestamp(i))
		e.Content = strings.Repeat("x", bytes)
		e.SetID()
		require.NoError(t, db.SaveEvent(e))
	}
	c := dial(t, serve(t, door))
	require.Contains(t, c.say(`["REQ","live",{"kinds":[1621],"limit":0}]`), "EOSE")
	require.Contains(t, c.say(`["REQ","all",{"kinds":[1]}]`), `["EVENT","all"`)
	time.Sleep(100 * time.Millisecond) // it does not read
	require.Less(t, waits.Load(), int64(events/2), "khatru waits for it")
	read := 1
	for !strings.Contains(c.read(), "EOSE") {
		read++
	}
	require.Equal(t, int64(read), waits.Load())
	require.Greater(t, read, 100)
	require.Contains(t, c.publish(signed(t, nostr.Generate(), 2)), `true`)
}

// khatru answers an unreadable event with a NOTICE. The gate does not pass on such events.
func TestCaseC3_BehindAGate(t *testing.T) {
	relay, db := khatru.NewRelay(), newSlice(t)
	relay.Negentropy = true
	door := gate.New(relay, gate.Config{})
	t.Cleanup(door.Close)
	embed(t, relay, db, Config{})
	c := dial(t, serve(t, door))
	e := signed(t, nostr.Generate(), 1)
	text := e.String()
	bad := strings.Replace(text, `"created_at":`, `"created_at":"x","was":`, 1)
	require.Contains(t, c.say(`["EVENT",%s]`, bad), fmt.Sprintf(`["OK",%q,false,"invalid: created_at`, e.ID.Hex()))
	require.Contains(t, c.say(`["EVENT",{"seen_on":[],%s]`, text[1:]), fmt.Sprintf(`["OK",%q,true`, e.ID.Hex()))
	require.Contains(t, c.say(`["REQ","x",{"kinds":"1"}]`), `["CLOSED","x","invalid: kinds`)
	require.Contains(t, c.say(`["COUNT","x",{"kinds":[1],"limit":-1}]`), `["CLOSED","x","invalid: limit`)
	require.Contains(t, c.say(`["EVENT",%s]`, text[:len(text)-3]), fmt.Sprintf(`["OK",%q,false,"invalid: not JSON`, e.ID.Hex()))
	require.Contains(t, c.say(`["NEG-OPEN","n",{},"62"]`), `["NEG-MSG","n","61"]`)
}
