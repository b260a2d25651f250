package sync

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A relay that was read from is known to have stood until shortly before it was lost. While it was not
// read from, only its last message is known.
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
