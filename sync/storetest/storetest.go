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
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			if err := c.run(newSubject(t.Context(), open(t))); err != nil {
				t.Error(err)
			}
		})
	}
}

// RunAs is Run for the Store of a service with an identity. It also tests requests to vanish that
// name the identity; Run tests only those that name all relays.
func RunAs(t *testing.T, identity nip34.Identity, open func(t *testing.T) relaysync.Store) {
	t.Helper()
	Run(t, open)
	t.Run("vanish_here", func(t *testing.T) {
		if err := checkVanishHere(newSubject(t.Context(), open(t)), identity); err != nil {
			t.Error(err)
		}
	})
}

type check struct {
	name string
	run  func(s *subject) error
}

func checks() []check {
	return []check{
		{"refused", checkRefused},
		{"batch", checkBatch},
		{"versions", checkVersions},
		{"ties", checkTies},
		{"identifiers", checkIdentifiers},
		{"deletion_by_id", checkDeletionByID},
		{"deletion_by_address", checkDeletionByAddress},
		{"deletion_of_deletion", checkDeletionOfDeletion},
		{"deleted_version", checkDeletedVersion},
		{"deleted_version_is_known", checkDeletedVersionIsKnown},
		{"vanish", checkVanish},
		{"vanish_order", checkVanishOrder},
		{"order", checkOrder},
		{"has", checkHas},
		{"complete", checkComplete},
		{"full_second", checkFullSecond},
		{"many_values", checkManyValues},
		{"similar_values", checkSimilarValues},
		{"boundaries", checkBoundaries},
		{"content", checkContent},
		{"cancelled", checkCancelled},
		{"early_break", checkEarlyBreak},
		{"meanwhile", checkMeanwhile},
		{"concurrent", checkConcurrent},
		{"remove", checkRemove},
		{"remove_deletion", checkRemoveDeletion},
	}
}
