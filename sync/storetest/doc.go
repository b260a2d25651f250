// Package storetest is the test suite for every [relaysync.Store]. Test a Store with:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) relaysync.Store {
//			return mystore.Open(t.TempDir())
//		})
//	}
//
// [RunDurable] reopens a Store that is on disk.
//
// Larger checks save about 6,000 events each and compare the Store with a naive model. The events
// have correct ids and invalid signatures, because a Store only receives verified events.
package storetest
