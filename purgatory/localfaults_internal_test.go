package purgatory

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// An event that cannot be stored while others can does not keep its repository's events from
// expiring. Before, they never expired.
func TestWhatAloneCannotBeStored(t *testing.T) {
	now, released := time.Now(), uint64(0)
	u := newLocalFaults(func() uint64 { return released }, time.Minute)
	ref, other := graspsync.RepoRef{Identifier: "x"}, graspsync.RepoRef{Identifier: "y"}
	entry := func(class refplan.Class, ref graspsync.RepoRef) refplan.Entry {
		return refplan.Entry{Class: class, Repos: []graspsync.RepoRef{ref}}
	}
	fails := fmt.Errorf("%w: disk full", errUnsaved)
	try := func() {
		now = now.Add(retryMost)
		u.lapse(now)
		u.released(now, ref, fails)
		u.surveyed(now, "z", fails)
	}
	for range 10 * troubleAlone { // the store fails
		try()
		require.True(t, u.keep(entry(refplan.State, ref)))
		require.True(t, u.keep(entry(refplan.State, graspsync.RepoRef{Identifier: "z"})))
	}
	require.False(t, u.keep(entry(refplan.State, other)))
	for range troubleAlone - 1 { // only this event fails
		released++
		try()
	}
	require.True(t, u.keep(entry(refplan.State, ref)))
	released++
	try()
	require.False(t, u.keep(entry(refplan.State, ref)))
	require.False(t, u.keep(entry(refplan.State, graspsync.RepoRef{Identifier: "z"})))

	u.released(now, ref, nil)
	require.Empty(t, u.looks)
	try()
	require.True(t, u.keep(entry(refplan.State, ref)), "it begins anew")
	u.lapse(now.Add(troubleFor + 1))
	require.Empty(t, u.looks, "nobody tries it any more")
	require.Empty(t, u.surveys)
}

// Events are held while git or the disk fails, but not for a failure of one repository alone or an
// exceeded time budget.
func TestWhatFailsForOneRepositoryAlone(t *testing.T) {
	now := time.Now()
	u := newLocalFaults(func() uint64 { return 0 }, time.Hour)
	ref, other := graspsync.RepoRef{Identifier: "x"}, graspsync.RepoRef{Identifier: "y"}
	waits := refplan.Entry{Class: refplan.State, Repos: []graspsync.RepoRef{ref}}
	fails := errors.New("git")
	for range 10 * troubleAlone { // all calls of git fail
		u.released(now, ref, fails)
		u.released(now, other, fails)
	}
	require.True(t, u.keep(waits))
	u.released(now, ref, errLong)
	require.False(t, u.keep(waits))

	for range troubleAlone {
		u.released(now, ref, fails)
		require.True(t, u.keep(waits))
		u.released(now, other, nil)
	}
	u.released(now, ref, fails)
	require.False(t, u.keep(waits))

	u.fetched(now, ref, fails)
	require.True(t, u.keep(waits), "what came can't be taken in")
	u.released(now, ref, nil)
	require.True(t, u.keep(waits), "to look at what is there works")
	u.lapse(now.Add(time.Hour))
	require.True(t, u.keep(waits), "the next hunt is to come")
	u.fetched(now, ref, nil)
	require.False(t, u.keep(waits))
}
