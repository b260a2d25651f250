package purgatoryadapter

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Pull requests and updates of one author for one repository are counted, and nothing else.
func TestPullRequestsAreCounted(t *testing.T) {
	store := memstore.New()
	owner, author, other := relaytest.NewKey("owner"), relaytest.NewKey("author"), relaytest.NewKey("other")
	here, there := owner.Ref("r"), owner.Ref("s")
	pull := func(k *relaytest.Key, kind int, ref filters.RepoRef, text string) relaysync.Incoming {
		return relaysync.Incoming{Event: k.Event(100, kind, text, nostr.Tag{"a", ref.String()}, nostr.Tag{"c", "1234567890123456789012345678901234567890"})}
	}
	_, err := store.Save(t.Context(), []relaysync.Incoming{
		pull(author, filters.KindPullRequest, here, "1"), pull(author, filters.KindPullRequest, here, "2"),
		pull(author, filters.KindPullRequestUpdate, here, "3"), pull(author, filters.KindPullRequest, there, "4"),
		pull(other, filters.KindPullRequest, here, "5"),
	})
	require.NoError(t, err)
	counter, ok := Host{Store: store}.Relay().(purgatory.PullCounter)
	require.True(t, ok)
	for most, want := range map[int]int{100: 3, 2: 2} {
		n, err := counter.PullRequests(t.Context(), author.PubKey(), here, most)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
}
