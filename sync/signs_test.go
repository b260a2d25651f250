package sync

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// What a connection has sent and we have not read says nothing about the moment at which
// it was lost.
func TestSignsWhileReadingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s signs
		start := time.Now()
		s.heard(true)
		assert.Zero(t, s.behind(true))
		time.Sleep(time.Minute)
		s.slowed()
		slow := time.Now()
		for range 100 { // one message after the other
			time.Sleep(10 * time.Second)
			s.reading()
			s.heard(false)
		}
		assert.Equal(t, slow, s.behind(true))
		s.reading()
		time.Sleep(abreast)
		assert.Equal(t, slow, s.behind(false), "some of it is not dealt with")
		assert.Zero(t, s.behind(true), "nothing more comes")
		s.skipped()
		skip := time.Now()
		time.Sleep(skipPause)
		s.slowed()
		assert.Equal(t, skip, s.behind(true))
		assert.Equal(t, skip, s.takeSkipped(time.Now()))
		assert.Zero(t, s.takeSkipped(time.Now()))
		s.lost()
		assert.Equal(t, skip.Add(skipPause-aliveSlack), s.lastAlive())
		assert.True(t, start.Before(s.lastAlive()))
	})
}
