package sync

import (
	"fmt"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// However much was said of a repository, the newest of it is found, and each event once.
func TestVerdictsOfARepository(t *testing.T) {
	v := newVerdicts()
	note := func(i int, kind int, identifier string) {
		ev := graspsync.Event{
			Event: &nostr.Event{Kind: kind, Tags: nostr.Tags{{"d", identifier}}},
			ID:    graspsync.EventID{byte(i), byte(i >> 8), 1},
		}
		v.note(graspsync.Incoming{Event: ev}, IsRejected, fmt.Sprint("reason ", i%40), "")
	}
	for i := range 8_000 {
		note(i%4_000, graspsync.KindAnnouncement, "repo")
		note(5_000, graspsync.KindAnnouncement, "other")
		note(5_001, graspsync.KindPullRequest, "repo")
	}
	got := v.of(graspsync.RepoRef{Identifier: "repo"}, 20)
	require.Len(t, got, 20)
	for i, n := range got {
		require.Equal(t, graspsync.EventID{byte((3_999 - i) & 0xff), byte((3_999 - i) >> 8), 1}, n.id)
	}
}
