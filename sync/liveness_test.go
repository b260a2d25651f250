package sync

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A relay that was being read is known to have been connected until shortly before its loss.
// Otherwise only the time of its last message is known.
func TestSignsWhileReadingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s liveness
		s.heard()
		heard := time.Now()
		s.reading()
		time.Sleep(10 * time.Minute)
		s.lost()
		assert.Equal(t, heard.Add(10*time.Minute-aliveSlack), s.lastAlive())
		s = liveness{}
		s.heard()
		heard = time.Now()
		time.Sleep(10 * time.Minute)
		s.reading()
		s.lost()
		assert.Equal(t, heard, s.lastAlive())
	})
}
