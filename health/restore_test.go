package health

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

// The form on disk. Fields may be added but not changed, because records of older versions must
// stay readable.
const fullJSON = `{"failures":1,"failing_since":"2030-01-01T00:01:00Z","last_failure":"2030-01-01T00:02:00Z",
	"last_success":"2030-01-01T00:03:00Z","recovered_at":"2030-01-01T00:04:00Z","last_attempt":"2030-01-01T00:05:00Z",
	"next_attempt":"2030-01-01T00:06:00Z","stopped_at":"2030-01-01T00:17:00Z","restarts":18,"restarts_since":"2030-01-01T00:19:00Z","connected_at":"2030-01-01T00:08:00Z",
	"held":true,"dialing":true,"proven":true,"last_error":"refused","attempts":9,"connections":10,"failed_attempts":11,
	"disconnects":12,"reconnects":13,"was_lost":true,"up_ns":14,"down_ns":15,"counted_to":"2030-01-01T00:16:00Z"}`

// FuzzImport checks that for any saved record, the relay is tried again within the rules, and the
// record can be saved again.
func FuzzImport(f *testing.F) {
	f.Add([]byte(fullJSON), 0.5)
	f.Add([]byte(`{}`), 0.0)
	f.Add([]byte(`{"failures":9223372036854775807,"next_attempt":"9999-12-31T23:59:59Z","up_ns":9223372036854775807}`), 0.9)
	f.Add([]byte(`{"dialing":true,"failing_since":"0001-01-01T00:00:01Z","last_failure":"9999-12-31T23:59:59Z"}`), 0.1)
	f.Add([]byte(`{"connected_at":"1970-01-01T00:00:00Z","held":true,"attempts":18446744073709551615}`), 0.1)
	c := Config{}.withDefaults()
	f.Fuzz(func(t *testing.T, data []byte, jitter float64) {
		var r Record
		if json.Unmarshal(data, &r) != nil {
			return
		}
		if jitter = min(max(jitter, 0), 1-1e-9); math.IsNaN(jitter) {
			return
		}
		now := start
		stopped := !r.StoppedAt.IsZero()
		r = c.restore(r, now, jitter)
		require.False(t, r.nextAttempt().After(now.Add(c.longestWait(r))))
		require.False(t, r.inUse())
		require.LessOrEqual(t, len(r.LastError), graspsync.MaxText)
		s := c.status(r, now)
		require.True(t, s.UptimeShare() >= 0 && s.UptimeShare() <= 1)
		_, err := json.Marshal(r.forSaving())
		require.NoError(t, err)
		again := c.restore(r.forSaving(), now, jitter)
		if stopped { // a clean stop, except the second time
			require.False(t, again.nextAttempt().Before(r.nextAttempt()))
		} else {
			require.Equal(t, r.forSaving(), again.forSaving(), "restoring twice changes nothing")
		}

		// The record remains usable.
		now = backoff.Later(now, r.nextAttempt())
		r = c.step(r, event{kind: attempt}, now, jitter)
		r = c.step(r, event{kind: failed}, now, jitter)
		require.True(t, r.nextAttempt().After(now))
		require.False(t, r.nextAttempt().After(now.Add(c.longestWait(r))))
		r = c.step(r, event{kind: attempt}, now, jitter)
		r = c.step(r, event{kind: connected}, now, jitter)
		require.Zero(t, c.status(r, now.Add(time.Minute)).Failures)
	})
}
