package purgatorymock_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/mock/gomock"

	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/purgatorymock"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// The mocks are usable where the interfaces are: an announcement that is served
// already is asked for, and nothing else.
func TestMocks(t *testing.T) {
	ctrl := gomock.NewController(t)
	relay := purgatorymock.NewMockRelay(ctrl)
	failure := errors.New("no")
	relay.EXPECT().Announcements(gomock.Any(), "r").Return(nil, failure)
	p, err := purgatory.Open(t.Context(), relay, purgatorymock.NewMockRepositories(ctrl), purgatorymock.NewMockGitFetcher(ctrl),
		state.NewMemory(), purgatory.Config{})
	require.NoError(t, err)
	_, err = p.Submit(t.Context(), relaytest.NewCheapKey("a").Announcement(1, "r", nil, nil), false)
	require.ErrorIs(t, err, failure)
	require.NotNil(t, purgatorymock.NewMockQuarantine(ctrl))
}
