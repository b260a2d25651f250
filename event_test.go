package graspsync_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

func TestParseEvent(t *testing.T) {
	id, author := graspsync.EventID{1}, graspsync.PubKey{2}
	raw := &nostr.Event{ID: id.String(), PubKey: author.String(), CreatedAt: 5, Kind: 1, Tags: nostr.Tags{{"d", "x"}}, Content: "c", Sig: "s"}
	ev, err := graspsync.ParseEvent(raw)
	require.NoError(t, err)
	assert.Equal(t, graspsync.Event{Event: raw, ID: id, PubKey: author}, ev)
	assert.Equal(t, graspsync.EventKey{CreatedAt: 5, ID: id}, ev.Key())
	assert.False(t, ev.IsZero())
	assert.Equal(t, raw.String(), fmt.Sprint(ev), "it is spelled as it came")
	assert.True(t, graspsync.Event{Event: raw}.IsZero(), "nobody parsed it")

	for name, bad := range map[string]*nostr.Event{
		"none": nil, "no id": {PubKey: author.String()}, "an id of zeros": {ID: graspsync.EventID{}.String(), PubKey: author.String()}, "no author": {ID: id.String()},
		"a key in capitals": {ID: id.String(), PubKey: "AB" + author.String()[2:]},
	} {
		ev, err := graspsync.ParseEvent(bad)
		require.ErrorIs(t, err, graspsync.ErrEvent, name)
		assert.True(t, ev.IsZero(), name)
	}
}

func TestEventInJSON(t *testing.T) {
	raw := &nostr.Event{ID: graspsync.EventID{1}.String(), PubKey: graspsync.PubKey{2}.String(), Kind: 1, Tags: nostr.Tags{}, Content: "\n"}
	ev, err := graspsync.ParseEvent(raw)
	require.NoError(t, err)
	text, err := json.Marshal(struct{ Event, None graspsync.Event }{Event: ev})
	require.NoError(t, err)
	assert.JSONEq(t, `{"Event":`+raw.String()+`,"None":null}`, string(text))
	var read struct{ Event, None graspsync.Event }
	require.NoError(t, json.Unmarshal(text, &read))
	assert.Equal(t, ev, read.Event)
	assert.True(t, read.None.IsZero())
	assert.Empty(t, read.None.String())
	require.ErrorIs(t, json.Unmarshal([]byte(`{"Event":{"id":"x"}}`), &read), graspsync.ErrEvent)
}
