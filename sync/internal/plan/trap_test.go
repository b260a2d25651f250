package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync"
)

// T2: a relay was disconnected as empty while its first batch was in flight.
func TestTrapT2_NotCutWhileInFlight(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}))
	connect(t, p, start, u)
	// the repository has nothing to ask for yet, but lists the relay
	effects := p.Step(start, Changes{Repos: []RepoChange{{Ref: repoRef("one"), Relays: []graspsync.RelayURL{u}, Level: LevelStateOnly}}})
	assert.Empty(t, only[Hangup](effects))
	assert.Empty(t, only[Forget](effects))
}

// Retries are endless with a maximum wait. P19: each wait is extended by a random part of up to a
// tenth.
func TestPromiseP19_RetryAfter(t *testing.T) {
	p := newPlan(defaults())
	for failures, want := range map[int]time.Duration{1: 30 * time.Second, 4: 4 * time.Minute, 8: time.Hour, 1_000_000: time.Hour} {
		drawn := make(map[time.Duration]bool)
		for range 100 {
			d := p.retryAfter(failures)
			assert.GreaterOrEqual(t, d, want)
			assert.LessOrEqual(t, d, want+want/10)
			drawn[d] = true
		}
		assert.Greater(t, len(drawn), 50)
	}
}
