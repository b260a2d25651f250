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
// After n consecutive failures the wait is 5 s * 2^(n-1), at most 1 h, extended randomly by up to
// 10 %. After 24 h of failures a relay is dead, and gets one attempt every 24 h.
//
// A connection counts as a success after a minute, and is redialed within a second when it drops
// later. A connection that drops earlier counts as a failure.
//
// All relay URLs of a host share one backoff until the host has held a connection for a minute, so a
// thousand URLs of a host cause the attempts of one.
//
// [RelayHealthTracker.Export] and [RelayHealthTracker.Import] save and restore a [Record], which is
// JSON. Save it after Attempt and before the dial. A crash during the dial then counts as a failure.
// Records of hosts are saved in the same way, see [Host].
package health
