package sync_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// The owner of a hosted repository can name maintainers with new keys. States by more of these than
// are remembered, all rejected, delayed the reading of an honest relay: events behind them were
// nine minutes late after ten minutes, with growing delay.
func TestStatesOfNamedMaintainersDoNotStopTheReading(t *testing.T) {
	racetest.Amounts(t)
	identity, err := nip34.ParseIdentity(us)
	require.NoError(t, err)
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{Policy: fullOf{relaysync.NewGRASPPolicy(identity), graspsync.Reject}}, "a.example")
		defer r.stop()
		after(5 * time.Minute)
		mallory := relaytest.NewCheapKey("mallory")
		tags, maintainers := mallory.Hosted(at(0), "evil", us, "a.example").Tags, nostr.Tag{"maintainers"}
		var keys []*relaytest.Key
		for i := range 200 {
			keys = append(keys, relaytest.NewCheapKey(fmt.Sprint("maintainer", i)))
			maintainers = append(maintainers, keys[i].Hex())
		}
		r.save(mallory.Event(at(0), graspsync.KindAnnouncement, "", append(tags, maintainers)...))
		slowest, honest := time.Duration(0), map[*nostr.Event]time.Time{}
		look := func() {
			for ev, at := range honest {
				if r.has(ev) {
					slowest = max(slowest, time.Since(at))
					delete(honest, ev)
				}
			}
		}
		after(10 * time.Second)
		began := time.Now()
		for n := 0; time.Since(began) < 8*time.Minute; n++ {
			if n%400 == 0 {
				state := owner.State(at(0), "repo", nil, "")
				issue := relaytest.NewCheapKey(fmt.Sprint("newcomer", n)).Issue(at(0), owner.Ref("repo"), fmt.Sprint("honest", n))
				a.Publish(state, issue)
				honest[state], honest[issue] = time.Now(), time.Now()
			}
			k := keys[n%len(keys)]
			a.Publish(k.Event(at(0), graspsync.KindState, fmt.Sprint(spam, n), nostr.Tag{"d", "evil"}))
			time.Sleep(time.Second / 45)
			look()
		}
		look()
		for _, at := range honest {
			slowest = max(slowest, time.Since(at))
		}
		t.Logf("the slowest took %v, %d are missing, dropped %v", slowest, len(honest), r.manager.Status().Events.Dropped)
		assert.Less(t, slowest, 10*time.Second)
	})
}

// The owner of a hosted repository gains allowance for each accepted state, which may be short, and
// delayed the reading of an honest relay by two long superseded states for each.
func TestLongStatesBetweenShortOnesDoNotStopTheReading(t *testing.T) {
	racetest.Amounts(t)
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		after(5 * time.Minute)
		mallory := relaytest.NewCheapKey("mallory")
		r.save(mallory.Hosted(at(0), "evil", us, "a.example"), mallory.Hosted(at(0), "other", us, "a.example"))
		r.save(mallory.Event(at(-14*time.Minute), graspsync.KindState, "", nostr.Tag{"d", "evil"})) // the relay has none of these
		slowest, honest := time.Duration(0), map[*nostr.Event]time.Time{}
		look := func() {
			for ev, at := range honest {
				if r.has(ev) {
					slowest = max(slowest, time.Since(at))
					delete(honest, ev)
				}
			}
		}
		after(10 * time.Second)
		long := strings.Repeat("x", 60_000)
		for n := range 10 * 60 {
			if n%10 == 0 {
				state := owner.State(at(0), "repo", nil, "")
				issue := relaytest.NewCheapKey(fmt.Sprint("newcomer", n)).Issue(at(0), owner.Ref("repo"), fmt.Sprint("honest", n))
				a.Publish(state, issue)
				honest[state], honest[issue] = time.Now(), time.Now()
			}
			a.Publish(mallory.Event(at(0), graspsync.KindState, fmt.Sprint(n), nostr.Tag{"d", "other"}))
			for i := range 2 {
				ago := time.Hour - time.Duration(n+i)*time.Second // newer than the last one
				a.Publish(mallory.Event(at(ago), graspsync.KindState, fmt.Sprint(long, n, i), nostr.Tag{"d", "evil"}))
			}
			time.Sleep(time.Second)
			look()
		}
		for _, at := range honest {
			slowest = max(slowest, time.Since(at))
		}
		t.Logf("the slowest took %v, %d are missing, dropped %v", slowest, len(honest), r.manager.Status().Events.Dropped)
		assert.Less(t, slowest, 30*time.Second)
	})
}
