package nip34

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

func pullRequest() *nostr.Event {
	owner := strings.Repeat("b", 64)
	return &nostr.Event{
		ID: strings.Repeat("1", 64), PubKey: strings.Repeat("a", 64), Kind: graspsync.KindPullRequest, CreatedAt: 9,
		Tags: nostr.Tags{
			{"a", "30617:" + owner + ":x"}, {"a", "30617:" + owner + ":y:z"}, {"a", "30617:" + owner + ":x"}, {"a", "30618:" + owner + ":x"},
			{"c", strings.Repeat("2", 40)}, {"c", strings.Repeat("3", 40)},
			{"clone", "https://git.example/x.git", "ssh://git.example/x.git", "https://other.example/x.git"},
		},
	}
}

func TestParsePullRequest(t *testing.T) {
	for _, kind := range []int{graspsync.KindPullRequest, graspsync.KindPullRequestUpdate} {
		ev := pullRequest()
		ev.Kind = kind
		p, err := ParsePullRequest(eventtest.Of(ev))
		require.NoError(t, err)
		require.Equal(t, ev.ID, p.ID.String())
		require.Equal(t, ev.PubKey, p.Author.String())
		require.Equal(t, nostr.Timestamp(9), p.CreatedAt)
		require.Len(t, p.Repos, 2, "each once")
		require.Equal(t, "x", p.Repos[0].Identifier)
		require.Equal(t, "y:z", p.Repos[1].Identifier)
		require.Equal(t, strings.Repeat("2", 40), p.Tip.String(), "the first is the tip")
		require.Len(t, p.Clones, 2)
		require.Equal(t, "https://other.example/x.git", p.Clones[1].String())
	}
	for name, change := range map[string]func(*nostr.Event){
		"another kind":      func(ev *nostr.Event) { ev.Kind = 1617 },
		"no repository":     func(ev *nostr.Event) { ev.Tags = ev.Tags[3:] },
		"no tip":            func(ev *nostr.Event) { ev.Tags = ev.Tags[:4] },
		"a ref for its tip": func(ev *nostr.Event) { ev.Tags[4][1] = "refs/heads/main" },
		"an option":         func(ev *nostr.Event) { ev.Tags[4][1] = "--upload-pack=x" },
		"a short tip":       func(ev *nostr.Event) { ev.Tags[4][1] = strings.Repeat("2", 39) },
	} {
		ev := pullRequest()
		change(ev)
		_, err := ParsePullRequest(eventtest.Of(ev))
		require.ErrorIs(t, err, ErrInvalid, name)
	}
}

// Each event is refused, or has an object id that is safe to pass to git.
func FuzzParsePullRequest(f *testing.F) {
	tags, err := json.Marshal(pullRequest().Tags)
	require.NoError(f, err)
	f.Add(tags)
	f.Add([]byte(`[["a"],["c",""],["clone"]]`))
	f.Fuzz(func(t *testing.T, tags []byte) {
		ev := pullRequest()
		ev.Tags = nil
		if json.Unmarshal(tags, &ev.Tags) != nil {
			return
		}
		p, err := ParsePullRequest(eventtest.Of(ev))
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.NotEmpty(t, p.Repos)
		require.False(t, p.Tip.IsZero())
		require.LessOrEqual(t, len(p.Repos), MaxRepos)
		require.LessOrEqual(t, len(p.Clones), MaxListed)
	})
}
