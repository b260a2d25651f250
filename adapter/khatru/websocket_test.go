package khatruadapter

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/internal/embedding"
)

// client is a simple websocket client.
type client struct {
	t    testing.TB
	conn *websocket.Conn
}

func dial(t testing.TB, url string) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(url, "http"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &client{t, conn}
}

// say sends a message and returns the next one received.
func (c *client) say(format string, args ...any) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	require.NoError(c.t, c.conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, format, args...)))
	return c.read()
}

func (c *client) read() string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	_, data, err := c.conn.Read(ctx)
	require.NoError(c.t, err)
	return string(data)
}

func signed(t testing.TB, key string, kind int, tags ...nostr.Tag) *nostr.Event {
	t.Helper()
	serial++
	e := &nostr.Event{
		Kind: kind, CreatedAt: start, Tags: append(nostr.Tags{}, tags...), Content: fmt.Sprint("signed ", serial),
	}
	require.NoError(t, e.Sign(key))
	return e
}

// Over a real connection, a d tag without value is refused and does not crash the process, deleted
// events stay away, deletions stay, and synced events reach subscribers.
func TestWebsocket(t *testing.T) {
	relay := khatru.NewRelay()
	s, store, m := embed(t, relay, newSlice(t), Config{})
	server := httptest.NewServer(relay)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()

	key := nostr.GeneratePrivateKey()
	c := dial(t, server.URL)
	publish := func(e *nostr.Event) string {
		data, err := json.Marshal(e)
		require.NoError(t, err)
		return c.say(`["EVENT",%s]`, data)
	}
	assert.Contains(t, publish(signed(t, key, 30617, nostr.Tag{"d"})), msgBareD)
	note := signed(t, key, 1)
	assert.Contains(t, publish(note), `true`)
	deletion := signed(t, key, 5, nostr.Tag{"e", note.ID})
	assert.Contains(t, publish(deletion), `true`)
	assert.Contains(t, publish(note), embedding.MsgDeleted)
	assert.Contains(t, publish(signed(t, key, 5, nostr.Tag{"e", deletion.ID})), `can't be deleted`)
	assert.Equal(t, []string{note.ID, deletion.ID}, m.stored, "by which the manager knows what is gone")

	assert.Contains(t, c.say(`["REQ","live",{"kinds":[1621],"limit":0}]`), "EOSE")
	issue := event(alice, 1621, start)
	importEvents(t, store, issue)
	assert.Contains(t, c.read(), issue.ID)
	assert.ElementsMatch(t, []string{issue.ID, deletion.ID}, content(t, s.Store()))

	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}
