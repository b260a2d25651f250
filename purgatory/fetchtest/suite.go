package fetchtest

import (
	"context"
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
		"Quarantine": testQuarantine,
		"Needed":     testNeeded,
		"NotServed":  testNotServed,
		"Junk":       testJunk,
		"Discard":    testDiscard,
		"Operations": testOperations,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
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

// The git operations of a Fake are those of git.
func testOperations(t *testing.T, s Setup) {
	ctx := t.Context()
	main, err := nip34.ParseRefName("refs/heads/main")
	require.NoError(t, err)
	dev, err := nip34.ParseRefName("refs/heads/dev")
	require.NoError(t, err)
	kinds := func(want map[nip34.ObjectID]refplan.Kind) {
		got, err := s.Git.Stat(ctx, s.Dir, []nip34.ObjectID{s.First, s.Second, s.Absent})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	kinds(map[nip34.ObjectID]refplan.Kind{})
	s.bring(t, s.Second)
	kinds(map[nip34.ObjectID]refplan.Kind{s.First: refplan.Commit, s.Second: refplan.Commit})
	// An absent object is not copied.
	require.NoError(t, s.Git.CopyObjects(ctx, s.Dir, s.Other, []nip34.ObjectID{s.Second}))
	require.NoError(t, s.Git.CopyObjects(ctx, s.Dir, s.Other, []nip34.ObjectID{s.Absent}))
	require.Equal(t, []nip34.ObjectID{s.Absent}, s.missing(t, s.Other, s.First, s.Second, s.Absent))

	update := func(head nip34.RefName, changes ...refplan.RefChange) error {
		return s.Git.UpdateRefs(ctx, s.Dir, changes, head)
	}
	require.NoError(t, update(dev, refplan.RefChange{Name: main, New: s.Second}, refplan.RefChange{Name: dev, New: s.First}))
	require.NoError(t, update(main, refplan.RefChange{Name: main, Old: s.Second, New: s.First}, refplan.RefChange{Name: dev, Old: s.First}))
	// A concurrently moved ref fails all changes.
	err = update(dev, refplan.RefChange{Name: dev, New: s.First}, refplan.RefChange{Name: main, Old: s.Second, New: s.Second})
	require.ErrorIs(t, err, gitops.ErrChanged)
	refs, err := s.Git.Refs(ctx, s.Dir)
	require.NoError(t, err)
	require.Equal(t, refplan.Refs{At: map[nip34.RefName]nip34.ObjectID{main: s.First}, Head: main, Format: s.First.Format()}, refs)

	// Objects of refs, kept and chosen objects stay. Other objects are deleted.
	both := []nip34.ObjectID{s.Second, s.Absent}
	for _, stay := range []struct{ keep, choose []nip34.ObjectID }{{keep: both}, {choose: both}, {}} {
		locked := false
		require.NoError(t, s.Git.Cleanup(ctx, s.Dir))
		_, err := s.Git.Maintain(ctx, gitops.Maintenance{
			Lock: func(context.Context) (string, func(), error) {
				locked = true
				return s.Dir, func() { locked = false }, nil
			},
			Keep: func(context.Context) ([]nip34.ObjectID, error) { return stay.keep, nil },
			Choose: func(context.Context, string) ([]nip34.ObjectID, error) {
				require.False(t, locked)
				return stay.choose, nil
			},
			Now: true, Remember: time.Hour,
		})
		require.NoError(t, err)
		require.False(t, locked)
		require.Len(t, s.missing(t, s.Dir, s.First, s.Second), 1-len(append(stay.keep, stay.choose...))/2)
	}
}
