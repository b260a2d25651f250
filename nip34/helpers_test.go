package nip34

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

// key returns the n-th key of the tests; ids are made in the same way.
func key(n int) graspsync.PubKey {
	k, err := graspsync.ParsePubKey(fmt.Sprintf("%064x", n+1))
	if err != nil {
		panic(err)
	}
	return k
}

func eventID(n int) graspsync.EventID { return graspsync.EventID(key(n)) }

func event(kind int, author graspsync.PubKey, tags ...nostr.Tag) *nostr.Event {
	return &nostr.Event{Kind: kind, ID: eventID(7).String(), PubKey: author.String(), CreatedAt: 100, Tags: tags}
}

func announcement(t *testing.T, author graspsync.PubKey, tags ...nostr.Tag) *Announcement {
	t.Helper()
	a, err := ParseAnnouncement(eventtest.Of(event(graspsync.KindAnnouncement, author, tags...)))
	require.NoError(t, err)
	return a
}

func relayURL(t *testing.T, s string) graspsync.RelayURL {
	t.Helper()
	u, err := graspsync.ParseRelayURL(s)
	require.NoError(t, err)
	return u
}

func cloneURL(t *testing.T, s string) graspsync.CloneURL {
	t.Helper()
	u, err := graspsync.ParseCloneURL(s)
	require.NoError(t, err)
	return u
}

// realEvents returns events that were published on real relays.
func realEvents(t testing.TB) []*nostr.Event {
	t.Helper()
	data, err := os.ReadFile("testdata/real-events.jsonl")
	require.NoError(t, err)
	var events []*nostr.Event
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var ev nostr.Event
		require.NoError(t, json.Unmarshal(lines.Bytes(), &ev))
		events = append(events, &ev)
	}
	require.NoError(t, lines.Err())
	return events
}

// fuzzTags reads tags from fuzzed text. A line is a tag with elements separated by tabs, and an empty
// line is a tag without elements.
func fuzzTags(text string) nostr.Tags {
	var tags nostr.Tags
	for line := range strings.SplitSeq(text, "\n") {
		tag := nostr.Tag{}
		if line != "" {
			tag = strings.Split(line, "\t")
		}
		tags = append(tags, tag)
	}
	return tags
}
