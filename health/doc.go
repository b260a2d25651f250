// Package health decides when a relay may be dialed, and says how it is doing.
//
// [RelayHealthTracker] is told what happens to the connections of relays and
// answers when the next attempt is due:
//
//	tracker, err := health.NewTracker(health.Config{})
//	if !time.Now().Before(tracker.NextAttempt(relay)) {
//		tracker.Attempt(relay)
//		conn, err := dial(relay)
//		if err != nil {
//			tracker.Failed(relay, err)
//		} else {
//			tracker.Connected(relay)
//			tracker.Lost(relay, serve(conn)) // when it ends
//		}
//	}
//
// # Rules
//
// After n failures in a row a relay is left alone for 5 s * 2^(n-1), at most an
// hour, lengthened by up to 10 % at random. After 24 h of nothing but failures it
// is dead and gets one attempt every 24 h, for ever: no relay is given up. A
// connection counts as a success once it held for a minute. Then failures are 0, and
// when it drops it is redialed within a second. A connection that drops before
// that is one more failure, so a relay that accepts and drops at once keeps its
// place in the backoff. So does one whose connections hold and hang: it is told apart by
// [RelayHealthTracker.Hung].
//
// A host that has never held a connection for a minute shares one backoff over all
// of its relay URLs, whatever their paths and ports: strangers who list a thousand of
// them bring it the attempts of one. Such a record is kept like a relay's; see
// [Host] and [RelayHealthTracker.ExportHost].
//
// All of this is one pure function over a [Record], an event, the time and a random
// value. No timer runs: that a connection has held long enough is computed when
// somebody asks.
//
// # Life cycle and concurrency
//
// A tracker starts nothing and needs no closing. All its methods are safe for
// concurrent use, take microseconds and never wait for anything but each other.
//
// # Restarts
//
// [RelayHealthTracker.Export] and [RelayHealthTracker.Import] carry a [Record] over
// a restart; a Record is JSON. Saved after Attempt and before the dial, it makes a
// crash in the middle of the dial count as a failure: a process that crashes in a
// loop does not become an attack on others. After a stop in good order, up to three times
// in ten minutes, a relay that had answered may be dialed at once.
package health
