package wire_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// FuzzParse: whatever the bytes are, they give a message that keeps its promises
// or one of two errors; and an event that is accepted is the one that
// encoding/json sees.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`["EVENT","`, `"EVENT""1:"`, `,"x"`, sample(), string(frameOf(fields())), `["EOSE","1",["finish","more"]]`, `["EOSE","1"]`,
		`["CLOSED","1","blocked: \ud83d\ude00 \ud83d"]`, `["NOTICE",{"a":[1.5e-3]}]`, `["OK","` + hex64 + `",true,"x"]`, `["AUTH","x"]`,
		`["NEG-MSG","n","6100"]`, `["NEG-ERR","n","blocked: x",5]`, `["NEG-ERROR","n","CLOSED"]`, `["COUNT","1",{}]`,
		`["EVENT","1",{"id":"","id":""}]`, `["EVENT","1",{"tags":[["a",[]],[]]}]`, "[\"NOTICE\",\"\xff\x00\"]",
		strings.Replace(string(frameOf(fields())), hex64, strings.Repeat("0", 64), 1),
	} {
		f.Add([]byte(seed))
	}
	if real, err := os.ReadFile("testdata/real-events.jsonl"); err == nil {
		for line := range strings.Lines(string(real)) {
			f.Add([]byte(`["EVENT","1",` + line + `]`))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := string(data)
		m, err := wire.Parse(data)
		require.Equal(t, before, string(data), "the input was changed")
		if err != nil {
			require.True(t, errors.Is(err, wire.ErrMalformed) != errors.Is(err, wire.ErrUnknown))
			require.Zero(t, m)
			require.Less(t, len(err.Error()), 500)
			requireNotAnEvent(t, data)
			return
		}
		require.Equal(t, len(data), m.Size)
		require.LessOrEqual(t, len(m.Sub), wire.MaxSub)
		require.LessOrEqual(t, len(m.Text), graspsync.MaxText)
		require.True(t, utf8.ValidString(m.Sub) && utf8.ValidString(m.Text))
		require.GreaterOrEqual(t, m.Max, 0)
		require.LessOrEqual(t, 2*len(m.Payload), len(data))
		wire.Classify(m.Text)
		wire.ClassifyNegErr(m.Text, m.Max)
		if m.Type == wire.TypeEvent {
			requireTheEvent(t, data, m)
		}
		if !m.Event.IsZero() {
			again, err := wire.Append(nil, wire.Request{Type: wire.TypePublish, Event: m.Event.Event})
			require.NoError(t, err)
			m2, err := wire.Parse([]byte(`["EVENT","",` + strings.TrimPrefix(string(again), `["EVENT",`)))
			require.NoError(t, err)
			require.Equal(t, m.Event, m2.Event)
		}
	})
}

// requireTheEvent compares an accepted event with what encoding/json sees. It sees
// nothing where a part that we skip is not UTF-8 or has control bytes.
func requireTheEvent(t *testing.T, data []byte, m wire.Message) {
	var elements []json.RawMessage
	if json.Unmarshal(data, &elements) != nil {
		return
	}
	naive, ok := naiveEvent(elements[2])
	require.True(t, ok)
	require.Equal(t, naive, *m.Event.Event)
	var sub string
	require.NoError(t, json.Unmarshal(elements[1], &sub))
	require.Equal(t, sub, m.Sub)
}

// requireNotAnEvent fails if data is an event as most programs would write it: no
// such event may be lost.
func requireNotAnEvent(t *testing.T, data []byte) {
	var elements []json.RawMessage
	if !utf8.Valid(data) || json.Unmarshal(data, &elements) != nil || len(elements) != 3 || string(elements[0]) != `"EVENT"` {
		return
	}
	var sub string
	if json.Unmarshal(elements[1], &sub) != nil || len(sub) > wire.MaxSub || strings.ContainsRune(sub, utf8.RuneError) {
		return
	}
	ev, ok := naiveEvent(elements[2])
	if !ok || ev.CreatedAt < 0 || ev.CreatedAt > 1<<53 || ev.Kind < 0 || ev.Kind > 65535 || len(ev.Tags) > 10_000 {
		return
	}
	for _, field := range []string{ev.ID, ev.PubKey, ev.Sig} {
		if strings.Trim(field, "0123456789abcdef") != "" {
			return
		}
	}
	if len(ev.ID) != 64 || len(ev.PubKey) != 64 || len(ev.Sig) != 128 || strings.Trim(ev.ID, "0") == "" {
		return
	}
	// What is left to explain a refusal: a number that is not written as one, a key
	// twice, null, or a lone surrogate. An event without these, written by
	// encoding/json, has the length of a canonical one.
	canonical, err := wire.Append(nil, wire.Request{Type: wire.TypePublish, Event: &ev})
	require.NoError(t, err)
	assert.NotEqual(t, string(canonical), `["EVENT",`+string(elements[2])+`]`)
}

// FuzzParseInfo: a document never fails, and never gives what is out of range.
func FuzzParseInfo(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"name":"a","supported_nips":[1,"11",77.0],"limitation":{"max_message_length":"131072","auth_required":true}}`,
		`{"limitation":{"max_limit":[500],"max_filters":1e99}}`, `{"name":"a`, "\xef\xbb\xbf{}", `{"a":{"b":[{"c":[]}]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		info := wire.ParseInfo(data)
		for _, n := range append([]int{info.MaxMessageLength, info.MaxSubscriptions, info.MaxFilters, info.MaxLimit, info.MaxSubIDLength}, info.NIPs...) {
			require.True(t, n >= 0 && n < 1<<31)
		}
		require.LessOrEqual(t, len(info.NIPs), 256)
		require.LessOrEqual(t, len(info.Name), graspsync.MaxText)
		require.True(t, utf8.ValidString(info.Name) && utf8.ValidString(info.Software))
	})
}
