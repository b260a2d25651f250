package khatruadapter

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
)

// unreadable is a backend that can fail to read. It returns an error, or ends its answer early like
// badger.
type unreadable struct {
	*slicestore.SliceStore
	fails, ends atomic.Bool
}

func (b *unreadable) QueryEvents(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	switch {
	case b.fails.Load():
		return nil, errors.New("input/output error")
	case b.ends.Load():
		ch := make(chan *nostr.Event)
		close(ch)
		return ch, nil
	}
	return b.SliceStore.QueryEvents(ctx, f)
}

func (b *unreadable) CountEvents(context.Context, nostr.Filter) (n int64, err error) {
	if b.ends.Load() {
		n = 1
	}
	return n, nil
}

// A relay with a failing disk returned empty answers, which other servers believed until the next
// day.
func TestStoreThatCanNotBeReadHasNoAnswers(t *testing.T) {
	db := &unreadable{SliceStore: &slicestore.SliceStore{}}
	require.NoError(t, db.Init())
	relay := khatru.NewRelay()
	relay.Negentropy = true
	expectLog(t, "ERROR reading the store for a client failed")
	embed(t, relay, db, Config{})
	server := httptest.NewServer(relay)
	defer server.Close()
	data, err := json.Marshal(signed(t, nostr.GeneratePrivateKey(), 1))
	require.NoError(t, err)
	require.Contains(t, dial(t, server.URL).say(`["EVENT",%s]`, data), `true,""`)

	req, neg := `["REQ","x",{"kinds":[1]}]`, `["NEG-OPEN","n",{"kinds":[1]},"6100000200"]`
	require.Contains(t, dial(t, server.URL).say("%s", req), `["EVENT","x"`)
	require.Contains(t, dial(t, server.URL).say("%s", neg), `["NEG-MSG","n","61`)
	for name, fault := range map[string]*atomic.Bool{"fails": &db.fails, "ends": &db.ends} {
		fault.Store(true)
		require.JSONEq(t, `["CLOSED","x","error: the store could not be read, try again later"]`, dial(t, server.URL).say("%s", req), name)
		c := dial(t, server.URL)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		require.NoError(t, c.conn.Write(ctx, websocket.MessageText, []byte(neg)))
		_, said, err := c.conn.Read(ctx)
		cancel()
		require.Equal(t, websocket.StatusInternalError, websocket.CloseStatus(err), "%s: %s", name, said)
		fault.Store(false)
		require.Contains(t, dial(t, server.URL).say("%s", req), `["EVENT","x"`)
	}
}
