package absent

import (
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

func testKey(n int) (k graspsync.PubKey) {
	for i := range 4 {
		k[31-i] = byte((n + 1) >> (8 * i))
	}
	return k
}

func testID(n int) graspsync.EventID { return graspsync.EventID(testKey(n)) }

func testRepo(owner int, identifier string) graspsync.RepoRef {
	return graspsync.RepoRef{Owner: testKey(owner), Identifier: identifier}
}

func testEvent(n, kind, author int, at nostr.Timestamp, tags ...nostr.Tag) *nostr.Event {
	return &nostr.Event{ID: testID(n).String(), Kind: kind, PubKey: testKey(author).String(), CreatedAt: at, Tags: tags}
}

func testURL(t *testing.T, s string) graspsync.RelayURL {
	t.Helper()
	u, err := graspsync.ParseRelayURL(s)
	require.NoError(t, err)
	return u
}
