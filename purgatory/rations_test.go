package purgatory_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

func (w *world) pullRefs(ref filters.RepoRef) (n int) {
	for name := range w.git.RefsOf(ref) {
		if strings.HasPrefix(name.String(), "refs/nostr/") {
			n++
		}
	}
	return n
}

// One key had a ref made for each of any number of pull requests whose commit is here: they
// never waited, and so had no quota.
func TestRefsOfOneAuthorsPullRequestsAreBounded(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-100), says(alice, now()-100, "main", 1))
		w.git.Put(repoOf(alice), object(1))
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		many := func(by interface {
			Event(nostrTime, int, string, ...nostrTag) *nostrEvent
		}, n int,
		) (refused int, reason string) {
			for i := range n {
				p := by.Event(now(), filters.KindPullRequest, fmt.Sprint(i), nostrTag{"a", repoOf(alice).String()}, nostrTag{"c", object(1).String()})
				answer, err := w.p.Submit(t.Context(), p, true)
				require.NoError(t, err)
				if answer.Decision == purgatory.Refused {
					refused++
					reason = answer.Reason
				}
				if i%10 == 0 {
					wait(100 * time.Millisecond)
				}
			}
			wait(time.Second)
			return refused, reason
		}
		refused, reason := many(carol, 300)
		require.Equal(t, 100, w.pullRefs(repoOf(alice)))
		require.Greater(t, refused, 150)
		require.Contains(t, reason, "rate-limited: ")
		// Others have theirs, and who has a say any number.
		_, _ = many(dave, 5)
		require.Equal(t, 105, w.pullRefs(repoOf(alice)))
		refused, _ = many(alice, 150)
		require.Zero(t, refused)
		require.Equal(t, 255, w.pullRefs(repoOf(alice)))
		wait(2 * time.Hour)
		require.Zero(t, w.p.Status().PullRequests)
		require.Equal(t, 255, w.pullRefs(repoOf(alice)))
	})
}
