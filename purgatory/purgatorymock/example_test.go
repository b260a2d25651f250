package purgatorymock_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/mock/gomock"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/purgatory/purgatorymock"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// In a test file its name is TestAnnounced.
func testAnnounced(t *testing.T) {
	repos := purgatorymock.NewQuietRepositories(t)
	alice := relaytest.NewKey("alice")
	ev, err := graspsync.ParseEvent(alice.Hosted(1_700_000_000, "repo", "grasp.example"))
	require.NoError(t, err)
	repos.EXPECT().Create(gomock.Any(), alice.Ref("repo"), nip34.SHA1).Return(nil)

	p, err := purgatory.Open(t.Context(), purgatorymock.NewQuietRelay(t), repos, fetchtest.New(), purgatorymock.NewQuietGitFetcher(t), state.NewMemory(), purgatory.Config{})
	require.NoError(t, err)
	answer, err := p.Submit(t.Context(), ev, graspsync.Source{Kind: graspsync.Direct})
	require.NoError(t, err)
	require.Equal(t, purgatory.Held, answer.Decision)
}

// An announced repository is created once and can be pushed to immediately. The quiet mocks answer
// all other calls.
func Example() {
	_ = testing.InternalTest{Name: "TestAnnounced", F: testAnnounced}
}
