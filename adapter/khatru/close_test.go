package khatruadapter

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
)

// During shutdown clients still read from a closed database: badger panicked, and the last answers
// were empty.
func TestServerEndsWhileItIsRead(t *testing.T) {
	for range 5 {
		db := &badger.BadgerBackend{Path: t.TempDir()}
		require.NoError(t, db.Init())
		relay := khatru.NewRelay()
		s, _, _ := embed(t, relay, db, Config{})
		server := httptest.NewServer(relay)
		defer server.Close()
		c := dial(t, server.URL)
		key := nostr.GeneratePrivateKey()
		data, err := json.Marshal(signed(t, key, 1))
		require.NoError(t, err)
		require.Contains(t, c.say(`["EVENT",%s]`, data), `true,""`)
		var clients sync.WaitGroup
		var others []*client
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan string, 8)
		for range cap(ended) {
			other := dial(t, server.URL)
			others = append(others, other)
			clients.Go(func() {
				events := 0
				for ctx.Err() == nil {
					if other.conn.Write(ctx, websocket.MessageText, []byte(`["REQ","x",{"kinds":[1]}]`)) != nil {
						return
					}
					for answered := false; !answered; {
						_, data, err := other.conn.Read(ctx)
						if err != nil {
							return
						}
						switch label := string(data[:7]); {
						case label == `["EVENT`:
							events++
						case label == `["EOSE"` && events > 0:
							answered, events = true, 0
						default:
							ended <- string(data)
							return
						}
					}
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, s.Close())
		db.Close()
		data, err = json.Marshal(signed(t, key, 1))
		require.NoError(t, err)
		require.Contains(t, c.say(`["EVENT",%s]`, data), `false,"error: the server is shutting down`)
		for _, other := range others {
			require.NoError(t, other.conn.CloseNow())
		}
		clients.Wait()
		close(ended)
		for last := range ended { // queries that passed the hook earlier have no answer
			require.JSONEq(t, `["CLOSED","x","error: the server is shutting down, try again later"]`, last)
		}
		require.NoError(t, s.Close())
	}
}
