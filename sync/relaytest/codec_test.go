package relaytest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/sync/wire"
)

func codecRequests() []wire.Request {
	key := NewKey("codec")
	since, until := nostr.Timestamp(10), nostr.Timestamp(20)
	odd := nostr.Filter{
		IDs: []string{key.Hex()}, Kinds: []int{1, 30617}, Authors: []string{key.Hex()},
		Tags: nostr.TagMap{"a": {"x:y", "ü\"\\\n", "<&>"}}, Since: &since, Until: &until, Limit: 7,
	}
	return []wire.Request{
		{Type: wire.TypeReq, Sub: "a", Filters: []nostr.Filter{odd, {LimitZero: true}, {}}},
		{Type: wire.TypeReq, Sub: "ä\"<\\", Filters: []nostr.Filter{odd}},
		{Type: wire.TypeClose, Sub: "a"},
		{Type: wire.TypePublish, Event: key.Event(5, 1, "hello\n\"<ö>", nostr.Tag{"t", "x"}, nostr.Tag{})},
		{Type: wire.TypeAnswer, Event: key.Event(5, nostr.KindClientAuthentication, "")},
		{Type: wire.TypeNegOpen, Sub: "n", Filters: []nostr.Filter{{Kinds: []int{1}}}, Payload: []byte{0x61, 1, 2}},
		{Type: wire.TypeNegSend, Sub: "n", Payload: []byte{0x61}},
		{Type: wire.TypeNegClose, Sub: "n"},
	}
}

// The relay reads the output of the client's encoder, and counts the same size as without a socket.
func TestRequestsAgainstTheClientsEncoder(t *testing.T) {
	for _, req := range codecRequests() {
		text, err := wire.Append(nil, req)
		require.NoError(t, err)
		assert.Equal(t, len(text), requestSize(req), "%s", text)
		got, err := decode(text)
		require.NoError(t, err, "%s", text)
		assert.Equal(t, req.Type, got.Type)
		assert.Equal(t, req.Sub, got.Sub)
		assert.Equal(t, req.Event, got.Event)
		assert.Equal(t, req.Payload, got.Payload)
		require.Len(t, got.Filters, len(req.Filters))
		for i := range req.Filters {
			assert.True(t, nostr.FilterEqual(req.Filters[i], got.Filters[i]), "%v %v", req.Filters[i], got.Filters[i])
		}
	}
}

// The client's parser reads the output of the relay.
func TestMessagesAgainstTheClientsParser(t *testing.T) {
	ev := NewKey("codec").Event(5, 1, "hello\n\"<ö>\x01", nostr.Tag{"t", "x"}, nostr.Tag{"a", ""})
	id, err := graspsync.ParseEventID(ev.ID)
	require.NoError(t, err)
	for _, m := range []wire.Message{
		{Type: wire.TypeEvent, Sub: "ä\"", Event: eventtest.Of(ev)},
		{Type: wire.TypeEOSE, Sub: "x"},
		{Type: wire.TypeEOSE, Sub: "x", Hint: wire.HintFinish},
		{Type: wire.TypeEOSE, Sub: "x", Hint: wire.HintMore},
		{Type: wire.TypeClosed, Sub: "x", Text: "error: <\"ö\">"},
		{Type: wire.TypeNotice, Text: "hello\n"},
		{Type: wire.TypeOK, ID: id, Accepted: true},
		{Type: wire.TypeOK, ID: id, Text: "no"},
		{Type: wire.TypeAuth, Text: "c"},
		{Type: wire.TypeNegMsg, Sub: "n", Payload: []byte{0x61, 255}},
		{Type: wire.TypeNegErr, Sub: "n", Text: "closed: x"},
		{Type: wire.TypeNegErr, Sub: "n", Text: "blocked: x", Max: 12},
	} {
		for _, negError := range []bool{false, true} {
			f := frame{msg: m, negError: negError}
			text := encode(f)
			got, err := wire.Parse(text)
			require.NoError(t, err, "%s", text)
			m.Size = len(text)
			assert.Equal(t, m, got)
			assert.Equal(t, m.Size, f.size())
		}
	}
	assert.Contains(t, string(encode(frame{msg: wire.Message{Type: wire.TypeNegErr}, negError: true})), `["NEG-ERROR",`)
	assert.True(t, json.Valid(encode(frame{})), "a message that is none is still JSON")
}

// FuzzSendText sends any text to a relay.
func FuzzSendText(f *testing.F) {
	for _, req := range codecRequests() {
		if text, err := wire.Append(nil, req); err == nil {
			f.Add(text)
		}
	}
	f.Add([]byte(`["EVENT","`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := New("wss://a.example", Behavior{})
		r.Publish(NewCheapKey("fuzz").Event(1, 1, "x", nostr.Tag{"d"}))
		c, err := r.Dial(t.Context())
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		require.NoError(t, c.SendText(t.Context(), text))
		for {
			f, _, ok := c.take(time.Now())
			if !ok {
				break
			}
			require.True(t, json.Valid(encode(f)))
		}
	})
}
