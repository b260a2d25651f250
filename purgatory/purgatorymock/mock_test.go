package purgatorymock_test

import (
	"errors"
	"testing"

	nostr "github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
	"go.uber.org/mock/gomock"

	graspsync "github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/purgatory/purgatorymock"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// The mocks implement the interfaces. An announcement that is already served causes one query and
// nothing else.
func TestMocks(t *testing.T) {
	ctrl := gomock.NewController(t)
	relay := purgatorymock.NewMockRelay(ctrl)
	failure := errors.New("no")
	relay.EXPECT().Lists(gomock.Any()).Return(true)
	relay.EXPECT().Events(gomock.Any(), nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}, Tags: nostr.TagMap{"d": {"r"}}}).Return(
		func(yield func(graspsync.Event, error) bool) { yield(graspsync.Event{}, failure) })
	p, err := purgatory.Open(t.Context(), relay, purgatorymock.NewMockRepositories(ctrl), fetchtest.New(), purgatorymock.NewMockGitFetcher(ctrl),
		state.NewMemory(), purgatory.Config{})
	require.NoError(t, err)
	_, err = p.Submit(t.Context(), eventtest.Of(relaytest.NewCheapKey("a").Announcement(1, "r", nil, nil)), graspsync.Source{Kind: graspsync.CatchUp})
	require.ErrorIs(t, err, failure)
}

func TestExample(t *testing.T) { testAnnounced(t) }
