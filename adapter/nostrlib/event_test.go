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
	"github.com/graspsync/graspsync/sync/wire"
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

// Both libraries parse an event alike, and each accepts the encoding of the other.
func TestEventsOfBoth(t *testing.T) {
	for _, line := range real(t) {
		var theirs nostr.Event
		require.NoError(t, json.Unmarshal(line, &theirs))
		var read gonostr.Event
		require.NoError(t, json.Unmarshal(line, &read))
		ours, err := graspsync.ParseEvent(&read)
		require.NoError(t, err)

		converted, err := nostrlib.FromEvent(theirs)
		require.NoError(t, err)
		require.Equal(t, ours, converted)
		require.True(t, new(wire.IDChecker).Check(converted))
		ok, err := converted.CheckSignature()
		require.NoError(t, err)
		require.True(t, ok)

		back, err := nostrlib.ToEvent(ours)
		require.NoError(t, err)
		require.Equal(t, theirs, back)
		require.True(t, back.CheckID())
		require.True(t, back.VerifySignature())
	}
}

// nostrlib escapes only common control characters, so it computes another id than NIP-01 for events
// with other ones.
func TestIDsDifferWithControlCharacters(t *testing.T) {
	key := nostr.Generate()
	for content, same := range map[string]bool{
		"\t\r\n\"\\": true, "\x7f\u2028<&>é😀": true, "\b": false, "\f": false, "\x00": false, "\x1b[31m": false,
	} {
		e := nostr.Event{Kind: 1, CreatedAt: 1_700_000_000, Content: content}
		require.NoError(t, e.Sign(key))
		ours, err := nostrlib.FromEvent(e)
		require.NoError(t, err)
		require.Equal(t, same, new(wire.IDChecker).Check(ours), "%q", content)
	}
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

// The cost of a conversion compared with parsing the event again.
func BenchmarkEvent(b *testing.B) {
	lines := real(b)
	theirs := make([]nostr.Event, len(lines))
	ours := make([]graspsync.Event, len(lines))
	for i, line := range lines {
		require.NoError(b, json.Unmarshal(line, &theirs[i]))
		var err error
		ours[i], err = nostrlib.FromEvent(theirs[i])
		require.NoError(b, err)
	}
	per := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(lines)), "ns/event")
	}
	b.Run("from", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, e := range theirs {
				if _, err := nostrlib.FromEvent(e); err != nil {
					b.Fatal(err)
				}
			}
		}
		per(b)
	})
	b.Run("to", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, e := range ours {
				if _, err := nostrlib.ToEvent(e); err != nil {
					b.Fatal(err)
				}
			}
		}
		per(b)
	})
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, line := range lines {
				var e gonostr.Event
				if err := json.Unmarshal(line, &e); err != nil {
					b.Fatal(err)
				}
				if _, err := graspsync.ParseEvent(&e); err != nil {
					b.Fatal(err)
				}
			}
		}
		per(b)
	})
}
