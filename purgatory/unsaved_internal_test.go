package purgatory

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// An event that can't be stored while others are kept all of its repository from expiring, for good.
func TestWhatAloneCannotBeStored(t *testing.T) {
	now, released := time.Now(), uint64(0)
	u := newUnsaved(func() uint64 { return released })
	ref, other := graspsync.RepoRef{Identifier: "x"}, graspsync.RepoRef{Identifier: "y"}
	entry := func(class ledger.Class, ref graspsync.RepoRef) ledger.Entry {
		return ledger.Entry{Class: class, Repos: []graspsync.RepoRef{ref}}
	}
	fails := fmt.Errorf("%w: disk full", errUnsaved)
	try := func() {
		now = now.Add(retryMost)
		u.lapse(now)
		u.looked(now, ref, fails)
		u.surveyed(now, "z", fails)
	}
	for range 10 * unsavedAlone { // the store fails
		try()
		require.True(t, u.of(entry(ledger.State, ref)))
		require.True(t, u.of(entry(ledger.State, graspsync.RepoRef{Identifier: "z"})))
	}
	require.False(t, u.of(entry(ledger.State, other)))
	require.False(t, u.of(entry(ledger.Placeholder, ref)), "that waits for its event")
	for range unsavedAlone - 1 { // this fails
		released++
		try()
	}
	require.True(t, u.of(entry(ledger.State, ref)))
	released++
	try()
	require.False(t, u.of(entry(ledger.State, ref)))
	require.False(t, u.of(entry(ledger.State, graspsync.RepoRef{Identifier: "z"})))

	u.looked(now, ref, nil)
	u.looked(now, ref, errors.New("git"))
	require.Empty(t, u.repos)
	try()
	require.True(t, u.of(entry(ledger.State, ref)), "it begins anew")
	u.lapse(now.Add(unsavedFor + 1))
	require.Empty(t, u.repos, "nobody tries it any more")
	require.Empty(t, u.identifiers)
}
