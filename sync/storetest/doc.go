// Package storetest is the suite that any [relaysync.Store] must pass. A test of
// one's own Store is:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) relaysync.Store {
//			return mystore.Open(t.TempDir())
//		})
//	}
//
// One that keeps events on the disk is opened again by [RunDurable].
//
// The suite saves some 6,000 events for each of its larger checks and compares
// what the Store answers with a naive model. The ids of its events are right, the
// signatures are not: a Store is only given events that were verified before.
package storetest
