package sync_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Useless live events used up the refill of the allowance, so that no page of history was ever
// read: a few large announcements per minute hid the history of an honest relay.
func TestHistoryDoesNotStarveBehindLiveEvents(t *testing.T) {
	racetest.Amounts(t)
	stranger := relaytest.NewCheapKey("stranger")
	foreign := func(ago time.Duration, d string, pad int) *nostr.Event {
		return stranger.Event(at(ago), graspsync.KindAnnouncement, "", nostr.Tag{"d", d},
			nostr.Tag{"clone", "https://elsewhere.example/r.git"}, nostr.Tag{"description", strings.Repeat("x", pad)})
	}
	for name, c := range map[string]struct {
		pad   int
		every time.Duration
		cfg   relaysync.Config
	}{
		"small":       {every: time.Second / 12},
		"large":       {pad: 400 << 10, every: 9 * time.Second},
		"large pages": {every: time.Second / 12, cfg: relaysync.Config{}.With(relaysync.Fixed{PageLimit: 3_000})},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{Negentropy: relaytest.NegNotice})
				bob := relaytest.NewCheapKey("bob")
				old := bob.Hosted(at(48*time.Hour), "two", us, "a.example")
				a.Publish(old)
				for i := range 5_000 {
					a.Publish(foreign(time.Hour+time.Duration(i)*time.Second, fmt.Sprint("r", i), 0))
				}
				r, _ := hosted(t, net, c.cfg, "a.example")
				defer r.stop()
				began, n := time.Now(), 0
				for !r.has(old) && time.Since(began) < 3*time.Hour {
					after(c.every)
					n++
					a.Publish(foreign(0, fmt.Sprint("live", n%20), c.pad+n%10))
				}
				assert.Less(t, time.Since(began), 30*time.Minute)
			})
		})
	}
}
