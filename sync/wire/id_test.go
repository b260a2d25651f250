package wire

import (
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

// withID returns the event with the id that go-nostr gives it.
func withID(ev nostr.Event) graspsync.Event {
	ev.PubKey = strings.Repeat("ab", 32)
	ev.ID = ev.GetID()
	return eventtest.Of(&ev)
}

func idEvents() []nostr.Event {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return []nostr.Event{
		{},
		{Tags: nostr.Tags{{}, {"a"}, {"b", ""}, {"c", "d", "e"}}},
		{Kind: 65535, CreatedAt: 1 << 53, Content: string(all), Tags: nostr.Tags{{string(all), string(all)}}},
		{CreatedAt: -7, Kind: -1, Content: "\u2028 \u2029 <&> \U0001f600 \x7f"},
		{Content: strings.Repeat(`"\`, maxKept)},
		{Content: "after a large one"},
	}
}

func TestIDChecker(t *testing.T) {
	var c IDChecker
	for i, ev := range idEvents() {
		good := withID(ev)
		require.True(t, c.Check(good), i)
		require.LessOrEqual(t, cap(c.buf), maxKept)
		other := *good.Event
		other.Content += " "
		require.False(t, c.Check(graspsync.Event{Event: &other, ID: good.ID, PubKey: good.PubKey}), i)
	}
}

// FuzzIDChecker compares with go-nostr.
func FuzzIDChecker(f *testing.F) {
	for _, ev := range idEvents() {
		value := ""
		if len(ev.Tags) > 0 {
			value = strings.Join(ev.Tags[len(ev.Tags)-1], "\x00")
		}
		f.Add(ev.Content, value, int64(ev.CreatedAt), ev.Kind)
	}
	f.Fuzz(func(t *testing.T, content, value string, at int64, kind int) {
		ev := withID(nostr.Event{Content: content, Tags: nostr.Tags{{"t", value}, {value}, {}}, CreatedAt: nostr.Timestamp(at), Kind: kind})
		require.True(t, new(IDChecker).Check(ev))
	})
}
