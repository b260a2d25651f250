package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/wire"
)

func stamp(n int64) *nostr.Timestamp {
	t := nostr.Timestamp(n)
	return &t
}

func TestAppend(t *testing.T) {
	event := &nostr.Event{ID: "i", PubKey: "p", CreatedAt: 5, Kind: 22242, Tags: nostr.Tags{{"a", "b"}, {}}, Content: "\"\n", Sig: "s"}
	const eventJSON = `{"kind":22242,"id":"i","pubkey":"p","created_at":5,"tags":[["a","b"],[]],"content":"\"\n","sig":"s"}`
	tests := []struct {
		request wire.Request
		want    string
	}{
		{wire.Request{Type: wire.TypeReq, Sub: "1", Filters: []nostr.Filter{{}}}, `["REQ","1",{}]`},
		{
			wire.Request{Type: wire.TypeReq, Sub: "1", Filters: []nostr.Filter{{Kinds: []int{30617, 30618}}, {Kinds: []int{5}, LimitZero: true}}},
			`["REQ","1",{"kinds":[30617,30618]},{"kinds":[5],"limit":0}]`,
		},
		{
			wire.Request{Type: wire.TypeReq, Sub: "a\"b", Filters: []nostr.Filter{{
				IDs: []string{"x", "y"}, Authors: []string{"z"}, Since: stamp(0), Until: stamp(7), Limit: 500, Search: "q",
				Tags: nostr.TagMap{"a": {"2", "\\"}},
			}}},
			`["REQ","a\"b",{"ids":["x","y"],"authors":["z"],"since":0,"until":7,"limit":500,"search":"q","#a":["2","\\"]}]`,
		},
		{wire.Request{Type: wire.TypeClose, Sub: "1"}, `["CLOSE","1"]`},
		{wire.Request{Type: wire.TypePublish, Event: event}, `["EVENT",` + eventJSON + `]`},
		{wire.Request{Type: wire.TypeAnswer, Event: event}, `["AUTH",` + eventJSON + `]`},
		{
			wire.Request{Type: wire.TypeNegOpen, Sub: "n", Filters: []nostr.Filter{{Kinds: []int{1}}}, Payload: []byte{0x61, 0xab}},
			`["NEG-OPEN","n",{"kinds":[1]},"61ab"]`,
		},
		{wire.Request{Type: wire.TypeNegSend, Sub: "n", Payload: []byte{0x61}}, `["NEG-MSG","n","61"]`},
		{wire.Request{Type: wire.TypeNegClose, Sub: "n"}, `["NEG-CLOSE","n"]`},
	}
	for _, tt := range tests {
		got, err := wire.Append([]byte("before "), tt.request)
		require.NoError(t, err)
		assert.Equal(t, "before "+tt.want, string(got))
		assert.True(t, json.Valid(got[len("before "):]), tt.want)
	}
}

func TestAppendRefuses(t *testing.T) {
	one := []nostr.Filter{{Kinds: []int{1}}}
	tests := map[string]wire.Request{
		"no type":          {},
		"unknown type":     {Type: 99, Sub: "1"},
		"no sub":           {Type: wire.TypeClose},
		"long sub":         {Type: wire.TypeClose, Sub: strings.Repeat("x", 65)},
		"sub not UTF-8":    {Type: wire.TypeClose, Sub: "\xff"},
		"REQ, no sub":      {Type: wire.TypeReq, Filters: one},
		"REQ, no filter":   {Type: wire.TypeReq, Sub: "1"},
		"NEG, no filter":   {Type: wire.TypeNegOpen, Sub: "1"},
		"NEG, two filters": {Type: wire.TypeNegOpen, Sub: "1", Filters: append(one, one...)},
		"EVENT, no event":  {Type: wire.TypePublish},
		"AUTH, no event":   {Type: wire.TypeAnswer},
		"limit":            {Type: wire.TypeReq, Sub: "1", Filters: []nostr.Filter{{Limit: -1}}},
		// Some relays answer an empty list with everything they have.
		"empty ids":     {Type: wire.TypeReq, Sub: "1", Filters: []nostr.Filter{{IDs: []string{}}}},
		"empty kinds":   {Type: wire.TypeReq, Sub: "1", Filters: []nostr.Filter{{}, {Kinds: []int{}}}},
		"empty authors": {Type: wire.TypeReq, Sub: "1", Filters: []nostr.Filter{{Authors: []string{}}}},
		"empty tag":     {Type: wire.TypeNegOpen, Sub: "1", Filters: []nostr.Filter{{Tags: nostr.TagMap{"a": nil, "b": {"1"}}}}},
	}
	for name, request := range tests {
		got, err := wire.Append([]byte("before"), request)
		assert.ErrorIs(t, err, wire.ErrRequest, name)
		assert.Equal(t, "before", string(got), name)
	}
}
