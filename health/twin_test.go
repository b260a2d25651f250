package health

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
)

const (
	twinBase, twinMax, twinHostile    = 4, 100, 200
	twinHeld, twinDegraded, twinLimit = 6, 30, 7
	twinDeadAfter, twinDead           = 900, 600
	twinPause                         = 30 // after a crash

	// restart means that the process ends and another starts. It is not an event of the rules.
	restart = hostile + 1
)

func twinConfig() Config {
	return Config{
		BaseBackoff: twinBase * time.Second,
		fixed: constants{
			MaxBackoff:     twinMax * time.Second,
			RateLimit:      twinLimit * time.Second,
			HostileBackoff: twinHostile * time.Second,
			HeldFor:        twinHeld * time.Second,
			DegradedFor:    twinDegraded * time.Second,
			DeadAfter:      twinDeadAfter * time.Second,
			DeadInterval:   twinDead * time.Second,
			RedialWithin:   4 * time.Second,
			Jitter:         1,
		},
		RestartPause: twinPause * time.Second,
	}.withDefaults()
}

// twin is a naive implementation of the rules: a machine that is called once per second and counts
// in seconds. It uses no times. All durations of its test are short and whole seconds, with random
// parts.
type twin struct {
	failures                  int
	dialing, up, held, good   bool
	upFor                     int         // seconds of the current connection
	cleared                   twinCleared // failures reset by the connection
	wait                      int         // seconds until an attempt is allowed
	overdue                   int         // seconds since an attempt was allowed
	failingFor                int         // seconds since the first failure, without idle seconds
	isDead                    bool
	degradedLeft, limitedLeft int

	attempts, connections, failed, disconnects, reconnects int
	wasLost, everTried                                     bool

	tried               int  // seconds since the start of the last attempt
	inOrder             bool // clean stop while the relay was connected
	restarts, restarted int  // consecutive clean stops; seconds since the first

	upSeconds, downSeconds int
}

// twinCleared contains the failures that a connection reset.
type twinCleared struct {
	failures, failingFor int
	isDead               bool
}

func (w *twin) tick() {
	if w.up {
		w.upSeconds++
		if w.upFor++; w.upFor == twinHeld {
			w.held, w.good = true, true
			w.cleared = twinCleared{w.failures, w.failingFor, w.isDead}
			w.failures, w.failingFor, w.isDead = 0, 0, false
			w.wait, w.overdue = 0, 0
		}
	} else if w.everTried {
		w.downSeconds++
	}
	if w.failures > 0 {
		w.failingFor++
	}
	if w.cleared.failures > 0 && w.upFor != twinHeld {
		w.cleared.failingFor++
	}
	if w.wait > 0 {
		w.wait--
	} else {
		w.overdue++
	}
	w.degradedLeft = max(0, w.degradedLeft-1)
	w.limitedLeft = max(0, w.limitedLeft-1)
	w.tried++
	w.restarted++
}

// longer raises the wait. quarter is the random value in quarters. The jitter of 1 extends a wait
// by up to 3/4.
func (w *twin) longer(seconds, quarter int) {
	if seconds += seconds * quarter / 4; seconds > w.wait {
		w.wait = seconds
	}
	w.overdue = 0
}

func (w *twin) backoff(n int) int {
	for d := twinBase; ; d *= 2 {
		if d >= twinMax {
			return twinMax
		}
		if n--; n == 0 {
			return d
		}
	}
}

func (w *twin) begin() {
	if w.failures > 0 && !w.isDead && w.overdue > twinMax {
		w.failingFor -= w.overdue
	}
	w.attempts++
	w.everTried, w.dialing = true, true
	w.tried, w.inOrder = 0, false
}

func (w *twin) fail(quarter int) {
	if w.dialing {
		w.failed++
	}
	w.dialing = false
	w.failures++
	if w.failures == 1 {
		w.failingFor = 0
	}
	seconds := w.backoff(w.failures)
	if w.failingFor >= twinDeadAfter {
		w.isDead, seconds = true, twinDead
	}
	w.longer(seconds, quarter)
}

func (w *twin) disconnect() {
	if w.up {
		w.disconnects++
		w.wasLost = true
	}
	w.up, w.upFor = false, 0
}

func (w *twin) over(quarter int) {
	held, busy := w.up && w.held, w.up || w.dialing
	w.disconnect()
	w.held = false
	if held {
		w.wait, w.overdue = quarter, 0 // of 4 s
	} else if busy {
		w.fail(quarter)
	}
}

// ago is longer for a wait that began past seconds ago.
func (w *twin) ago(past, seconds, quarter int) {
	seconds += seconds*quarter/4 - past
	if seconds > w.wait-w.overdue {
		w.wait, w.overdue = max(0, seconds), max(0, -seconds)
	}
}

// restart ends the process and starts the next one after gap seconds, which are neither up nor
// down. An attempt or connection that had not held counts as the cause of a crash.
func (w *twin) restart(gap, quarter int) {
	up, down := w.upSeconds, w.downSeconds
	past := w.tried + gap
	if w.up {
		past = w.upFor + gap
	}
	died := w.dialing || w.up && !w.held
	w.up, w.held, w.upFor = false, false, 0
	for range gap {
		w.tick()
	}
	w.upSeconds, w.downSeconds = up, down
	if died {
		if w.dialing {
			w.failed++
		}
		if w.failures++; w.failures == 1 {
			w.failingFor = past
		}
		seconds := w.backoff(w.failures)
		if w.failingFor-past >= twinDeadAfter {
			w.isDead, seconds = true, twinDead
		}
		w.ago(past, seconds, quarter)
	}
	w.dialing = false
	if w.inOrder {
		if w.restarts == 0 || w.restarted >= 600 {
			w.restarts, w.restarted = 0, 0
		}
		w.restarts++
	}
	if w.inOrder && w.restarts <= 3 && w.failures == 0 {
		w.wait, w.overdue = 0, 0
	} else if w.everTried {
		w.ago(w.tried, twinPause, quarter)
	}
	w.inOrder = false
}

// event applies an event. wait is the pause that a failing relay requests.
func (w *twin) event(k kind, quarter, wait int) {
	switch k {
	case attempt:
		w.over(quarter)
		w.begin()
		if w.isDead {
			w.longer(twinDead, quarter)
		} else {
			w.longer(w.backoff(w.failures+1), quarter)
		}
	case connected:
		if w.up {
			w.over(quarter)
		}
		if !w.dialing {
			w.begin()
		}
		w.dialing, w.up, w.held, w.upFor = false, true, false, 0
		w.connections++
		if w.wasLost {
			w.reconnects++
		}
		w.wasLost = false
		if w.failures > 0 {
			w.degradedLeft = twinDegraded
		}
	case failed:
		if !w.up && !w.dialing {
			w.begin()
		}
		w.over(quarter)
		if wait > 0 {
			w.longer(min(wait, twinMax), quarter)
		}
	case lost:
		w.over(quarter)
	case hung:
		if !w.up {
			break
		}
		if w.held && w.upFor < 3600 {
			w.failures, w.failingFor, w.isDead = w.cleared.failures, w.cleared.failingFor, w.cleared.isDead
		}
		w.disconnect()
		w.held = false
		w.fail(quarter)
	case closed, stopped:
		w.inOrder = w.inOrder || k == stopped && w.up
		w.dialing, w.up, w.held, w.upFor = false, false, false, 0
	case rateLimited:
		w.limitedLeft = twinLimit
	case hostile:
		w.disconnect()
		w.held = false
		w.fail(quarter)
		w.longer(twinHostile, quarter)
	}
}

func (w *twin) state() State {
	switch {
	case w.limitedLeft > 0 && (w.up || w.failures == 0):
		return RateLimited
	case w.up && (w.failures > 0 || w.degradedLeft > 0):
		return Degraded
	case w.up:
		return Healthy
	case w.failures == 0:
		return Disconnected
	case w.isDead:
		return Dead
	}
	return Degraded
}

// summary is the compared state.
type summary struct {
	State                                                  State
	Connected, Good, Dialing                               bool
	Failures, Wait, Limited                                int
	Attempts, Connections, Failed, Disconnects, Reconnects int
	Up, Down                                               int
}

func (w *twin) summary() summary {
	s := summary{
		w.state(), w.up, w.good, w.dialing, w.failures, w.wait, w.limitedLeft,
		w.attempts, w.connections, w.failed, w.disconnects, w.reconnects, w.upSeconds, w.downSeconds,
	}
	if w.up {
		s.Wait = 0
	}
	return s
}

func summarise(c Config, r Record, now time.Time) summary {
	s := c.status(r, now)
	seconds := func(t time.Time) int { return max(0, int(t.Sub(now)/time.Second)) }
	return summary{
		s.State, s.Connected, s.KnownGood, r.Dialing, s.Failures, seconds(s.NextAttempt), seconds(s.RateLimitedUntil),
		int(s.Attempts), int(s.Connections), int(s.FailedAttempts), int(s.Disconnects), int(s.Reconnects),
		int(s.Uptime / time.Second), int(s.Downtime / time.Second),
	}
}

// characters are relays with repeating events.
var characters = map[string][]kind{
	"down":     {attempt, failed},
	"flapping": {attempt, connected, lost, attempt, connected, lost, attempt, failed},
	"anything": {attempt, connected, failed, lost, closed, stopped, hung, rateLimited, hostile, restart},
	"good":     {attempt, connected, rateLimited, lost, attempt, connected, closed},
	"updated":  {attempt, connected, stopped, restart, attempt, connected, stopped, restart, rateLimited},
	"crashing": {attempt, connected, restart, attempt, restart, attempt, connected, stopped, restart, restart},
	"limiting": {attempt, failed, attempt, connected, lost, restart},
	"hanging":  {attempt, connected, hung, attempt, failed, attempt, connected, hung},
	"stopped":  {attempt, connected, stopped, attempt, connected, restart}, // begun again by the same process
	"mostly":   {attempt, connected, lost, attempt, connected, lost, attempt, failed, attempt, connected, hostile},
}

// pauses are seconds between events, around all limits of the rules.
var pauses = []int{0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 29, 30, 31, 99, 100, 101, 175, 276, 300, 1000}

// asked are pauses requested by failing relays, in seconds.
var asked = []int{0, 0, 0, 1, 10, twinMax - 1, twinMax, twinMax + 1, 3 * twinMax}

func TestStepAgainstTwin(t *testing.T) {
	racetest.Amounts(t)
	c := twinConfig()
	require.NoError(t, c.validate())
	reached, happened := map[State]int{}, map[kind]int{}
	for name, kinds := range characters {
		for seed := range uint64(40) {
			rng := rand.New(rand.NewPCG(seed, uint64(len(name))))
			var w twin
			var r Record
			second := 0
			trace := ""
			for i := range 120 {
				k := kinds[i%len(kinds)]
				if name == "anything" {
					k = kinds[rng.IntN(len(kinds))]
				}
				pause := pauses[rng.IntN(len(pauses))]
				if k == attempt && rng.IntN(4) > 0 {
					pause = w.summary().Wait // a caller that waits until the attempt is due
				}
				for range pause {
					w.tick()
				}
				second += pause
				now := start.Add(time.Duration(second) * time.Second)
				require.Equal(t, w.summary(), summarise(c, r, now), "%s, seed %d, before event %d:%s", name, seed, i, trace)

				quarter := rng.IntN(4)
				happened[k]++
				if k == restart {
					r = c.settle(r, now).countTo(now).saved()
					gap := pauses[rng.IntN(len(pauses))]
					second += gap
					now = now.Add(time.Duration(gap) * time.Second)
					w.restart(gap, quarter)
					r = c.restore(r, now, float64(quarter)/4)
				} else {
					wait := asked[rng.IntN(len(asked))]
					w.event(k, quarter, wait)
					r = c.step(r, event{kind: k, wait: time.Duration(wait) * time.Second}, now, float64(quarter)/4)
				}
				trace += fmt.Sprintf(" %d:%d", second, k)
				require.Equal(t, w.summary(), summarise(c, r, now), "%s, seed %d, after event %d:%s", name, seed, i, trace)
				reached[w.state()]++
			}
		}
	}
	for s := Healthy; s <= RateLimited; s++ {
		require.Greater(t, reached[s], 100, "state %v was hardly reached: the comparison shows little", s)
	}
	for k := attempt; k <= restart; k++ {
		require.Greater(t, happened[k], 100, "event %d hardly happened", k)
	}
}
