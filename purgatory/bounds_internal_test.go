package purgatory

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

// An event without a required tag is refused, and not read from the disk either.
func TestMalformedEventsAreNone(t *testing.T) {
	d, c := nostr.Tag{"d", "r"}, nostr.Tag{"c", strings.Repeat("1", 40)}
	a := nostr.Tag{"a", "30617:" + seedKey + ":r"}
	for kind, tags := range map[int]nostr.Tags{
		graspsync.KindAnnouncement: {d}, graspsync.KindState: {d},
		graspsync.KindPullRequest: {a, c}, graspsync.KindPullRequestUpdate: {a, c},
	} {
		whole, err := entryOf(eventtest.Of(signedBy(kind, "", tags...)), false)
		require.NoError(t, err, kind)
		for i := range tags {
			without := append(append(nostr.Tags{}, tags[:i]...), tags[i+1:]...)
			ev := signedBy(kind, "", without...)
			_, err := entryOf(eventtest.Of(ev), false)
			require.Error(t, err, kind)
			require.NotErrorIs(t, err, errNotOurs, kind)
			id, err := graspsync.ParseEventID(ev.ID)
			require.NoError(t, err)
			text, err := json.Marshal(record{Class: whole.Class, Event: ev, Seen: time.Unix(1, 0), Deadline: time.Unix(2, 0)})
			require.NoError(t, err)
			_, err = decode(id, text)
			require.ErrorIs(t, err, errRecord, kind)
			p := &Purgatory{report: newReport(&Config{Logger: slog.New(slog.DiscardHandler)})} // nothing else is asked
			answer, err := p.Submit(t.Context(), eventtest.Of(ev), graspsync.Source{Kind: graspsync.CatchUp})
			require.NoError(t, err)
			require.Equal(t, Refused, answer.Decision)
			require.Regexp(t, "^invalid: the [dc] tag is missing|^invalid: .*repository", answer.Reason)
		}
	}
	for _, none := range []graspsync.Event{{}, {Event: signedBy(graspsync.KindAnnouncement, "", nostr.Tag{"d", "r"})}} {
		_, err := (&Purgatory{}).Submit(t.Context(), none, graspsync.Source{})
		require.ErrorIs(t, err, graspsync.ErrEvent, "nobody has parsed it")
		(&Purgatory{}).NotifyStored(none)
		(&Purgatory{}).NotifySuperseded(none)
	}
	answer, err := (&Purgatory{}).Submit(t.Context(), eventtest.Of(signedBy(1, "hello")), graspsync.Source{Kind: graspsync.CatchUp})
	require.NoError(t, err)
	require.Equal(t, Answer{Decision: Pass}, answer)
}

// Up to 200 servers have their own metrics. The others share a label. The end of a request counts
// for the same label as its start.
func TestServersWithMetricsOfTheirOwn(t *testing.T) {
	var s report
	var ends []func(error) time.Duration
	for range 2 {
		for n := range maxDomains + 3 {
			ends = append(ends, s.request(fmt.Sprintf("%d.example", n)))
		}
	}
	got := s.domains()
	require.Len(t, got, maxDomains+1)
	for domain, n := range map[string]int{fmt.Sprintf("%d.example", maxDomains-1): 2, otherDomains: 6} {
		require.Equal(t, n, got[domain].inFlight)
		require.EqualValues(t, n, got[domain].requests)
	}
	for _, end := range ends[1:] {
		end(nil)
	}
	ends[0](errors.New("no\x1b[2J git here"))
	for domain, d := range s.domains() {
		require.Zero(t, d.inFlight, domain)
		require.Positive(t, d.requests, domain)
	}
	all := s.domainStatuses()
	require.Len(t, all, maxDomains+1)
	require.Equal(t, otherDomains, all[maxDomains].Domain, "it is nobody's name, and comes last")
	require.Equal(t, "0.example", all[0].Domain)
	require.EqualValues(t, 1, all[0].Failed)
	require.Equal(t, `no\x1b[2J git here`, all[0].LastError)
	require.False(t, all[0].LastFailure.IsZero())
	require.Zero(t, all[1].Failed)
	require.True(t, all[1].LastFailure.IsZero())
}
