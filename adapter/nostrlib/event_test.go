package nostrlib_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"fiatjaf.com/nostr"
	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/nostrlib"
)

// real returns events of real relays: two announcements and their states.
func real(t testing.TB) (lines [][]byte) {
	t.Helper()
	data, err := os.ReadFile("testdata/events.jsonl")
	require.NoError(t, err)
	lines = slices.DeleteFunc(bytes.Split(data, []byte("\n")), func(b []byte) bool { return len(b) == 0 })
	require.NotEmpty(t, lines)
	return lines
}

func TestNoEvents(t *testing.T) {
	_, err := nostrlib.FromEvent(nostr.Event{Kind: 1})
	require.ErrorIs(t, err, graspsync.ErrEvent)
	good := graspsync.Event{
		Event: &gonostr.Event{Kind: 1, Sig: strings.Repeat("AB", 64)}, ID: graspsync.EventID{1}, PubKey: graspsync.PubKey{2},
	}
	e, err := nostrlib.ToEvent(good)
	require.NoError(t, err)
	require.Equal(t, byte(0xab), e.Sig[63])
	require.Nil(t, e.Tags)
	for name, bad := range map[string]graspsync.Event{
		"none":          {},
		"unparsed":      {Event: good.Event},
		"large kind":    {Event: &gonostr.Event{Kind: 65536, Sig: good.Sig}, ID: good.ID},
		"negative kind": {Event: &gonostr.Event{Kind: -1, Sig: good.Sig}, ID: good.ID},
		"short":         {Event: &gonostr.Event{Sig: good.Sig[1:]}, ID: good.ID},
		"no hex":        {Event: &gonostr.Event{Sig: "g" + good.Sig[1:]}, ID: good.ID},
	} {
		_, err := nostrlib.ToEvent(bad)
		require.ErrorIs(t, err, graspsync.ErrEvent, name)
	}
}

// FuzzEvent converts an event of nostrlib in both directions.
func FuzzEvent(f *testing.F) {
	for _, line := range real(f) {
		f.Add(line)
	}
	f.Add([]byte(`{"id":"` + strings.Repeat("a1", 32) + `","kind":70000,"created_at":-1,"tags":[[],["d"],["e",""]],"content":"\u0000"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var theirs nostr.Event
		if json.Unmarshal(data, &theirs) != nil {
			return
		}
		ours, err := nostrlib.FromEvent(theirs)
		if err != nil {
			require.Equal(t, nostr.ZeroID, theirs.ID)
			return
		}
		parsed, err := graspsync.ParseEvent(ours.Event)
		require.NoError(t, err)
		require.Equal(t, parsed, ours)
		back, err := nostrlib.ToEvent(ours)
		require.NoError(t, err)
		require.Equal(t, theirs, back)
	})
}
