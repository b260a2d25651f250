package explain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

// An answer began with an id instead of an answer.
func TestVerdict(t *testing.T) {
	of := func(subject nip34.SubjectKind, is string) explain.Explanation {
		return explain.Explanation{Subject: subject, Is: is, Repository: &relaysync.RepoFollowState{}}
	}
	verdict := func(x explain.Explanation, want ...string) {
		t.Helper()
		state, words := x.Verdict()
		require.Equal(t, want, []string{state, words})
	}
	verdict(of(nip34.SubjectEvent, "stored"), "live", "Stored and served")
	verdict(of(nip34.SubjectEvent, "waits"), "syncing", "Waits for its git data")
	verdict(of(nip34.SubjectEvent, "replaced"), "disconnected", "Replaced")
	verdict(of(nip34.SubjectEvent, ""), "disconnected", "")
	verdict(of(nip34.SubjectRepo, "blocked"), "dead", "Blocked by the operator")
	verdict(of(nip34.SubjectRepo, "not read"), "connecting", "Unknown: the store was not read yet")
	verdict(of(nip34.SubjectRelay, "not followed"), "disconnected", "Not followed")
	relay := of(nip34.SubjectRelay, "followed")
	relay.Relay = &relaysync.RelayFollowState{Status: &relaysync.RelayStatus{Phase: "live with gaps"}}
	verdict(relay, "live with gaps", "Followed, live with gaps")

	hosted := of(nip34.SubjectRepo, "followed")
	verdict(hosted, "live", "Hosted")
	hosted.Data = &purgatory.DataState{Waiting: make([]purgatory.EventState, 1)}
	verdict(hosted, "syncing", "Hosted; git data is missing")
	hosted.Data = &purgatory.DataState{More: 1}
	verdict(hosted, "syncing", "Hosted; git data is missing")
}
