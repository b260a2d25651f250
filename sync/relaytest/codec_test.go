package relaytest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

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
			require.Len(t, encode(f), f.size())
		}
	})
}
