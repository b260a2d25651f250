package fetchtest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Setup contains the GitFetcher that [RunGitFetcher] tests, with servers and objects.
type Setup struct {
	Fetcher purgatory.GitFetcher
	// Git is a Fetcher of package gitfetch or a Fake.
	Git gitops.Operations
	// Dir and Other are empty repositories.
	Dir, Other string
	// Full serves First, and Second, which needs First. Half serves only First. None serves
	// neither. Junk answers with unwanted objects. A zero Junk skips its test.
	Full, Half, None, Junk graspsync.CloneURL
	First, Second          nip34.ObjectID
	// Absent is an object that no server has.
	Absent nip34.ObjectID
}

// RunGitFetcher tests the properties of a GitFetcher on which package purgatory relies, with a new
// Setup for each test. Package gitfetch and the Fake of this package pass it:
//
//	func TestSuite(t *testing.T) {
//		fetchtest.RunGitFetcher(t, func(t *testing.T) fetchtest.Setup { ... })
//	}
func RunGitFetcher(t *testing.T, open func(t *testing.T) Setup) {
	for name, test := range map[string]func(t *testing.T, s Setup){
		"Empty":      testEmpty,
		"Quarantine": testQuarantine,
		"Needed":     testNeeded,
		"NotServed":  testNotServed,
		"Junk":       testJunk,
		"Discard":    testDiscard,
		"UpdateRefs": testUpdateRefs,
		"Cleanup":    testCleanup,
		"Share":      testShare,
		"Probe":      testProbe,
		"Maintain":   testMaintain,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func mustRef(t *testing.T, name string) nip34.RefName {
	r, err := nip34.ParseRefName(name)
	require.NoError(t, err)
	return r
}

// fetching is a quarantine with the fetches of a Setup.
type fetching struct {
	gitops.Quarantine
	*testing.T
	s Setup
}

// try fetches objects and returns the number of received bytes.
func (f fetching) try(ctx context.Context, from graspsync.CloneURL, ids ...nip34.ObjectID) (int64, error) {
	var received atomic.Int64
	err := f.s.Fetcher.Fetch(ctx, purgatory.FetchRequest{From: from, Want: ids, Dir: f.s.Dir, Quarantine: f.Folder(), Received: &received})
	return received.Load(), err
}

func (f fetching) fetch(from graspsync.CloneURL, ids ...nip34.ObjectID) {
	n, err := f.try(f.Context(), from, ids...)
	require.NoError(f, err)
	require.Positive(f, n)
}

// lacks checks that of ids exactly these are missing in quarantine and repository together.
func (f fetching) lacks(missing []nip34.ObjectID, ids ...nip34.ObjectID) {
	got, err := f.Missing(f.Context(), ids)
	require.NoError(f, err)
	require.ElementsMatch(f, missing, got)
}

func (s Setup) quarantine(t *testing.T) fetching {
	q, err := s.Git.Quarantine(t.Context(), s.Dir)
	require.NoError(t, err)
	return fetching{q, t, s}
}

// bring fetches objects from the full server into the repository.
func (s Setup) bring(t *testing.T, ids ...nip34.ObjectID) {
	q := s.quarantine(t)
	q.fetch(s.Full, ids...)
	require.NoError(t, q.Promote(t.Context()))
	require.NoError(t, q.Discard(), "after Promote as well")
}

func (s Setup) missing(t *testing.T, dir string, ids ...nip34.ObjectID) []nip34.ObjectID {
	missing, err := s.Git.Missing(t.Context(), dir, ids)
	require.NoError(t, err)
	return missing
}

func testEmpty(t *testing.T, s Setup) {
	refs := s.refs(t)
	require.Empty(t, refs.At)
	require.Equal(t, s.First.Format(), refs.Format)
	require.ElementsMatch(t, []nip34.ObjectID{s.First, s.Absent}, s.missing(t, s.Dir, s.First, s.Absent))
	require.Empty(t, s.missing(t, s.Dir))
}

// A quarantine combines objects of two servers, which are not in the repository before the
// promotion. A missing object does not prevent the fetch of other objects.
func testQuarantine(t *testing.T, s Setup) {
	q := s.quarantine(t)
	q.fetch(s.Half, s.Absent, s.First)
	q.lacks([]nip34.ObjectID{s.Absent, s.Second}, s.First, s.Second, s.Absent)
	q.fetch(s.Full, s.Second)
	q.lacks([]nip34.ObjectID{s.Absent}, s.First, s.Second, s.Absent)
	require.Len(t, s.missing(t, s.Dir, s.First, s.Second), 2)
	require.NoError(t, q.Promote(t.Context()))
	require.Empty(t, s.missing(t, s.Dir, s.First, s.Second))
}

// The objects that a wanted object needs come with it.
func testNeeded(t *testing.T, s Setup) {
	s.bring(t, s.Second)
	require.Empty(t, s.missing(t, s.Dir, s.First, s.Second))
}

func testNotServed(t *testing.T, s Setup) {
	q := s.quarantine(t)
	_, err := q.try(t.Context(), s.None, s.First)
	require.ErrorIs(t, err, purgatory.ErrNotServed)
	q.fetch(s.Full, s.First) // the quarantine is usable as before
	require.NoError(t, q.Discard())
}

// Unwanted objects are dropped, and earlier objects stay.
func testJunk(t *testing.T, s Setup) {
	if s.Junk == (graspsync.CloneURL{}) {
		return
	}
	q := s.quarantine(t)
	q.fetch(s.Full, s.First)
	n, err := q.try(t.Context(), s.Junk, s.Second)
	require.ErrorIs(t, err, purgatory.ErrNotServed)
	require.Positive(t, n, "it counts all the same")
	q.lacks([]nip34.ObjectID{s.Second}, s.First, s.Second)
	require.NoError(t, q.Promote(t.Context()))
	require.Empty(t, s.missing(t, s.Dir, s.First))
}

// A fetch ends with its context. A quarantine can be discarded more than once.
func testDiscard(t *testing.T, s Setup) {
	q := s.quarantine(t)
	q.fetch(s.Full, s.First)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := q.try(canceled, s.Full, s.Second)
	require.Error(t, err)
	require.NoError(t, q.Discard())
	require.NoError(t, q.Discard())
	require.Len(t, s.missing(t, s.Dir, s.First, s.Second), 2)
}

func (s Setup) refs(t *testing.T) refplan.Refs {
	refs, err := s.Git.Refs(t.Context(), s.Dir)
	require.NoError(t, err)
	return refs
}

func (s Setup) move(t *testing.T, head nip34.RefName, changes ...refplan.RefChange) {
	require.NoError(t, s.Git.UpdateRefs(t.Context(), s.Dir, changes, head))
}

func (s Setup) cleanup(t *testing.T) { require.NoError(t, s.Git.Cleanup(t.Context(), s.Dir)) }

func testUpdateRefs(t *testing.T, s Setup) {
	s.bring(t, s.Second)
	main, dev := mustRef(t, "refs/heads/main"), mustRef(t, "refs/heads/dev")
	s.move(t, dev, refplan.RefChange{Name: main, New: s.First}, refplan.RefChange{Name: dev, New: s.First})
	s.move(t, main, refplan.RefChange{Name: main, Old: s.First, New: s.Second}, refplan.RefChange{Name: dev, Old: s.First})
	s.move(t, nip34.RefName{})
	want := refplan.Refs{At: map[nip34.RefName]nip34.ObjectID{main: s.Second}, Head: main, Format: s.First.Format()}
	require.Equal(t, want, s.refs(t))
	// A concurrently moved ref fails all changes.
	err := s.Git.UpdateRefs(t.Context(), s.Dir, []refplan.RefChange{
		{Name: dev, New: s.First}, {Name: main, Old: s.First, New: s.First},
	}, dev)
	require.ErrorIs(t, err, gitops.ErrChanged)
	require.Equal(t, want, s.refs(t))
}

// Cleanup may be called at any time and keeps objects of refs.
func testCleanup(t *testing.T, s Setup) {
	s.cleanup(t)
	s.bring(t, s.Second)
	main := mustRef(t, "refs/heads/main")
	s.move(t, main, refplan.RefChange{Name: main, New: s.Second})
	s.cleanup(t)
	require.Empty(t, s.missing(t, s.Dir, s.First, s.Second))
}

func testProbe(t *testing.T, s Setup) {
	ids := []nip34.ObjectID{s.First, s.Second, s.Absent}
	kinds, err := s.Git.Stat(t.Context(), s.Dir, ids)
	require.NoError(t, err)
	require.NotContains(t, kinds, s.Absent)
	s.bring(t, s.Second)
	kinds, err = s.Git.Stat(t.Context(), s.Dir, ids)
	require.NoError(t, err)
	require.Equal(t, map[nip34.ObjectID]refplan.Kind{s.First: refplan.Commit, s.Second: refplan.Commit}, kinds)
}

func testShare(t *testing.T, s Setup) {
	s.bring(t, s.Second)
	require.NoError(t, s.Git.CopyObjects(t.Context(), s.Dir, s.Other, []nip34.ObjectID{s.Second}))
	require.Empty(t, s.missing(t, s.Other, s.First, s.Second))
	require.NoError(t, s.Git.CopyObjects(t.Context(), s.Dir, s.Other, []nip34.ObjectID{s.Absent}), "what is not complete is left out")
	require.Len(t, s.missing(t, s.Other, s.Absent), 1)
}

// Objects of refs and kept objects stay. Other objects are removed after the grace period, or
// immediately.
func testMaintain(t *testing.T, s Setup) {
	s.bring(t, s.Second)
	s.cleanup(t)
	var choose []nip34.ObjectID
	maintain := func(now bool, keep ...nip34.ObjectID) {
		locked, chosen := 0, 0
		_, err := s.Git.Maintain(t.Context(), gitops.Maintenance{
			Lock: func(context.Context) (string, func(), error) {
				locked++
				require.Equal(t, 1, locked)
				return s.Dir, func() { locked-- }, nil
			},
			Keep: func(context.Context) ([]nip34.ObjectID, error) { return keep, nil },
			Choose: func(_ context.Context, dir string) ([]nip34.ObjectID, error) {
				require.Zero(t, locked, "without the lock")
				require.Equal(t, s.Dir, dir)
				chosen++
				return choose, nil
			},
			Grace: time.Hour, Remember: time.Hour, Now: now,
		})
		require.NoError(t, err)
		require.Zero(t, locked)
		require.LessOrEqual(t, chosen, 1)
	}
	maintain(false)
	require.Empty(t, s.missing(t, s.Dir, s.First, s.Second), "within its grace")
	s.cleanup(t)
	maintain(true, s.Second, s.Absent)
	require.Empty(t, s.missing(t, s.Dir, s.First, s.Second), "it was to be kept")
	s.cleanup(t)
	choose = []nip34.ObjectID{s.Absent, s.Second}
	maintain(true)
	require.Empty(t, s.missing(t, s.Dir, s.First, s.Second), "it was chosen")
	choose = nil
	s.cleanup(t)
	main := mustRef(t, "refs/heads/main")
	s.move(t, main, refplan.RefChange{Name: main, New: s.First})
	maintain(true)
	require.Equal(t, []nip34.ObjectID{s.Second}, s.missing(t, s.Dir, s.First, s.Second))
	boom := errors.New("boom")
	_, err := s.Git.Maintain(t.Context(), gitops.Maintenance{
		Lock: func(context.Context) (string, func(), error) { return "", nil, boom },
	})
	require.ErrorIs(t, err, boom)
}
