package storetest

import (
	"testing"

	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Run tests a Store. It calls open once for each check. open returns an empty Store and registers
// its close function with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) relaysync.Store) {
	t.Helper()
	run(t, open, checks())
}

// RunAs is Run for the Store of a service with an identity. It also tests requests to vanish that
// name the identity; Run tests only those that name all relays.
func RunAs(t *testing.T, identity nip34.Identity, open func(t *testing.T) relaysync.Store) {
	t.Helper()
	run(t, open, append(checks(), check{"vanish_here", func(s *subject) error { return checkVanishHere(s, identity) }}))
}

func run(t *testing.T, open func(t *testing.T) relaysync.Store, checks []check) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if err := c.run(newSubject(t.Context(), open(t))); err != nil {
				t.Error(err)
			}
		})
	}
}

type check struct {
	name string
	run  func(s *subject) error
}

func checks() []check {
	return []check{
		{"batch", checkBatch},
		{"versions", histories(6, versions)},
		{"identifiers", histories(2, identifiers)},
		{"deletions", histories(30, deletions)},
		{"deleted_versions", histories(50, deletedVersions)},
		{"vanish", histories(40, vanishing)},
		{"content", checkContent},
		{"cancelled", checkCancelled},
		{"early_break", checkEarlyBreak},
		{"meanwhile", checkMeanwhile},
		{"concurrent", checkConcurrent},
		{"remove", checkRemove},
		{"remove_deletion", checkRemoveDeletion},
		{"filters", checkFilters},
	}
}
