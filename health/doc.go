// Package health decides when a relay may be dialed, and reports its state.
//
// Callers report connection events to a [RelayHealthTracker], which returns the time of the next
// attempt:
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
// After n consecutive failures the wait is 5 s * 2^(n-1), at most 1 h, extended randomly by up to
// 10 %. After 24 h of uninterrupted failures a relay is dead. A dead relay gets one attempt every
// 24 h, forever.
//
// A connection counts as a success after a minute. It resets the failures, and a connection that
// drops later is redialed within a second. A connection that drops earlier counts as a failure, so
// a relay that accepts and drops connections stays in the backoff. So does a relay whose
// connections hold without answers, see [RelayHealthTracker.Hung].
//
// All relay URLs of a host share one backoff, over all paths and ports, until the host has held a
// connection for a minute. A user who lists a thousand URLs of a host thus causes the attempts of
// one. Host records are saved like relay records, see [Host] and [RelayHealthTracker.ExportHost].
//
// The rules are a pure function of a [Record], an event, the time and a random value. No timer
// runs.
//
// # Concurrency
//
// A tracker starts no goroutine and needs no Close. All methods are safe for concurrent use and
// take microseconds.
//
// # Restarts
//
// [RelayHealthTracker.Export] and [RelayHealthTracker.Import] save and restore a [Record], which is
// JSON. A caller should save the record after Attempt and before the dial. A crash during the dial
// then counts as a failure, so a process in a crash loop does not flood relays. After a clean stop,
// up to three times in ten minutes, a working relay may be dialed immediately.
package health
