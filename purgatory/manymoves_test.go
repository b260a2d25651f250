package purgatory_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// costlyMoves moves refs as slowly as git does, and counts large moves.
type costlyMoves struct {
	*slowGit

	many atomic.Int64
}

func (s *costlyMoves) UpdateRefs(ctx context.Context, dir string, changes []purgatory.RefChange, head nip34.RefName) error {
	time.Sleep(time.Duration(len(changes)) * 10 * time.Millisecond)
	if len(changes) > 200 {
		defer s.many.Add(1)
	}
	return s.slowGit.UpdateRefs(ctx, dir, changes, head)
}

// Keys that move very many refs do not use all slots for releases. Before, eight such keys delayed
// each push of others by seconds.
func TestManyMovesHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		git := &costlyMoves{slowGit: newSlowGit()}
		git.cost = func(graspsync.RepoRef, []nip34.ObjectID) time.Duration { return 0 }
		w := newWorld(t, purgatory.Config{})
		w.repos, w.fetcher = git, git
		w.start()
		victim, keys, at := relaytest.NewKey("v1"), relaytest.Keys("storm", 8), now()
		put := func(k *relaytest.Key) {
			w.relay.put(announce(k, at-100), says(k, at-100, "main", 1))
			git.Put(repoOf(k), object(1), object(2))
			git.Push(repoOf(k), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		}
		put(victim)
		for _, k := range keys {
			put(k)
		}
		wait(time.Second)
		storm := make([]*nostrEvent, len(keys))
		for i, k := range keys {
			refs := []any{"main", 1}
			for n := range 300 {
				refs = append(refs, fmt.Sprint("n", n), 2)
			}
			storm[i] = says(k, at, refs...)
			w.held(storm[i])
		}
		wait(100 * time.Millisecond)
		s := says(victim, at+1, "main", 2)
		w.held(s)
		wait(100 * time.Millisecond)
		require.True(t, w.relay.has(s))
		require.Zero(t, git.many.Load(), "it has waited for none of them")
		for git.many.Load() < int64(len(keys)) {
			wait(time.Second)
		}
		wait(time.Second)
		for _, one := range storm {
			require.True(t, w.relay.has(one))
		}
		w.stop()
		require.Empty(t, w.git.Broken())
	})
}
