package sync

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// The machine was suspended when a relay was lost. By the monotonic clock, which stood still, the
// relay had just been read. The length of the loss is unknown.
func TestSignsOfASuspendedMachine(t *testing.T) {
	heard := time.Now().Add(-10 * time.Minute)
	for slept, alive := range map[time.Duration]time.Time{0: heard.Add(5*time.Minute - aliveSlack), 8 * time.Hour: heard} {
		lost := heard.Add(5*time.Minute + slept)
		(*struct {
			_   uint64
			ext int64
		})(unsafe.Pointer(&lost)).ext -= int64(slept) //nolint:gosec // there is no other way to have such a time
		c := relayConn{heardAt: heard, readingAt: heard.Add(time.Second), lostAt: lost}
		assert.Equal(t, alive, c.aliveAt(nil), slept)
	}
}
