package sync

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// answering has a loop answer questions until the test ends, as Run does.
func answering(t *testing.T, l *loopRig) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-l.m.inbox.wake:
				for _, msg := range l.m.inbox.take() {
					msg.(asked).answer(l.loop)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// What the Store can't tell of a repository is an error, and nothing follows it.
func TestRepoStatusWhateverFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for failAt := range 5 {
			for _, panics := range []bool{false, true} {
				l, _ := statusBench(t, "fetched", "connected")
				step := l.plan.Step(time.Now(), plan.Changes{Repos: []plan.RepoChange{{Ref: testRepo(2, "y"), Level: plan.LevelStateOnly}}})
				require.NotNil(t, l.plan, step)
				stop := answering(t, l)
				store := &stampStore{stamps: stampsFrom(0, 4), failAt: failAt, panics: panics}
				l.m.store = store
				s, err := l.m.RepoStatus(t.Context(), testRepo(1, "x"))
				want := "counting the events of " + testRepo(1, "x").String() + ": "
				switch {
				case failAt == 0:
					require.NoError(t, err)
					require.Equal(t, 4, s.Ours)
					require.Equal(t, "full", s.Level)
					require.Len(t, s.Relays, 2)
				case panics:
					require.EqualError(t, err, want+"store panicked: no disk")
					require.Equal(t, uint64(1), l.m.report.panics["store"])
				default:
					require.EqualError(t, err, want+errDisk.Error())
				}
				require.Equal(t, failAt > 0, s.Relays == nil && s.Level == "", "with an error there is no status")

				var levels []string
				failures := 0
				for s, err := range l.m.Repositories(t.Context()) {
					if err != nil {
						failures++
						require.Zero(t, s)
					} else {
						levels = append(levels, s.Level)
					}
				}
				if failAt > 0 {
					require.Equal(t, 1, failures, "nothing follows an error")
					require.Empty(t, levels)
				} else {
					require.Zero(t, failures)
					require.ElementsMatch(t, []string{"full", "state only"}, levels)
					n := 0
					for range l.m.Repositories(t.Context()) {
						n++
						break
					}
					require.Equal(t, 1, n)
				}
				stop()
			}
		}
	})
}

// givingUp is a Store during whose first answer a repository is given up.
type givingUp struct {
	stampStore
	give func()
}

// Stamps implements [Store].
func (g *givingUp) Stamps(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Stamp, error] {
	if g.give != nil {
		g.give()
		g.give = nil
	}
	return g.stampStore.Stamps(ctx, f)
}

// A repository that is given up while others are told of is left out.
func TestRepositoryGivenUpMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := statusBench(t, "fetched")
		change := func(level plan.Level, names ...string) {
			for _, name := range names {
				l.plan.Step(time.Now(), plan.Changes{Repos: []plan.RepoChange{{Ref: testRepo(1, name), Level: level}}})
			}
		}
		change(plan.LevelFull, "y", "z")
		stop := answering(t, l)
		defer stop()
		l.m.store = &givingUp{give: func() {
			require.NoError(t, l.m.ask(t.Context(), func(l *loop) {
				l.plan.Step(time.Now(), plan.Changes{Repos: []plan.RepoChange{{Ref: testRepo(1, "y")}}})
			}))
		}}
		var told []graspsync.RepoRef
		for s, err := range l.m.Repositories(t.Context()) {
			require.NoError(t, err)
			told = append(told, s.Ref)
		}
		require.Equal(t, []graspsync.RepoRef{testRepo(1, "x"), testRepo(1, "z")}, told)
		_, err := l.m.RepoStatus(t.Context(), testRepo(1, "y"))
		require.EqualError(t, err, "repository not followed: "+testRepo(1, "y").String())
	})
}

// Events are counted once, whatever filters match them, and up to what a set may have.
func TestCountOfARepository(t *testing.T) {
	m := newSaidBench(t, &saidPolicy{})
	for most, want := range map[int]int{2: 2, 3: 3, 4: 4, 5: 4} {
		m.cfg.fixed.MaxSet = most
		m.store = &stampStore{stamps: append(stampsFrom(0, 3), stampsFrom(1, 3)...)}
		n, err := m.count(t.Context(), []nostr.Filter{{}, {}})
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
}

// What a relay has of a repository is a share of what we have; of a relay that was not
// compared nothing is said, and of a repository of which we have nothing it lacks nothing.
func TestCoverageIsAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			ours, lacks int
			compared    bool
			want        float64
		}{{4, 1, true, 0.75}, {4, 1, false, 0}, {4, 0, true, 1}, {4, 4, true, 0}, {4, 5, true, 0}, {0, 0, true, 1}, {0, 3, true, 1}, {1, 1, true, 0}} {
			l, relays := statusBench(t, "fetched")
			stop := answering(t, l)
			l.m.store = &stampStore{stamps: stampsFrom(0, c.ours)}
			cov := &l.stats[relays[0]].coverage
			if c.compared {
				cov.fresh(nil, nil, time.Now())
			}
			cov.looking++
			for range c.lacks {
				cov.counted([][]graspsync.RepoRef{{testRepo(1, "x")}})
			}
			s, err := l.m.RepoStatus(t.Context(), testRepo(1, "x"))
			require.NoError(t, err)
			require.Equal(t, c.ours, s.Ours)
			require.Equal(t, c.lacks, s.Relays[0].Lacks)
			require.InDelta(t, c.want, s.Relays[0].Coverage, 1e-9)
			stop()
		}
	})
}

// Whoever asks waits for an answer, for no longer than it likes and than there is somebody to
// answer.
func TestAskingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSaidBench(t, &saidPolicy{}).SyncManager
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		_, err := m.RepoStatus(ctx, testRepo(1, "x"))
		require.ErrorIs(t, err, gone)
		require.ErrorContains(t, err, "asking about "+testRepo(1, "x").String())
		for _, err := range m.Repositories(ctx) {
			require.ErrorIs(t, err, gone)
			require.ErrorContains(t, err, "asking for the repositories")
		}
		time.AfterFunc(time.Second, func() { close(m.ended) })
		require.Equal(t, ErrNotRunning, m.ask(t.Context(), nil))
		require.Len(t, m.inbox.take(), 3)
		require.Equal(t, ErrNotRunning, m.ask(t.Context(), nil))
		require.Empty(t, m.inbox.take(), "nobody will answer")
	})
}
