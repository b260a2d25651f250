package sync_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// What is set up wrong is said once, with what to do, within a minute or two; where all is right
// nothing is.
func TestAdvice(t *testing.T) {
	alice := relaytest.NewCheapKey("alice")
	const domain, foreign = "announcements do not list this server but one whose name is like it: is the domain right?",
		"announcements come, and none lists this server: repositories come here by listing it"
	const nothing, unreachable = "nothing is followed: no repository here lists a relay, and there is no bootstrap relay", "no relay can be reached"
	const slow, fast = "the clock of this machine seems to be slow: events from several relays are dated ahead",
		"the clock of this machine seems to be fast: all that comes live is dated long ago"
	for _, c := range []struct {
		name string
		want string // "": nothing
		text string // some key has it
		play func(t *testing.T, r *rig, relays []*relaytest.Relay)
		own  bool // a repository of ours is here
		down bool
		none bool // no bootstrap
	}{
		{name: "wrong domain", want: domain, text: "grasp2.example:443", play: func(t *testing.T, r *rig, relays []*relaytest.Relay) {
			t.Helper()
			for i := range 3 {
				relays[0].Publish(relaytest.NewCheapKey(fmt.Sprint("somebody", i)).Hosted(at(0), fmt.Sprint("repo", i), "grasp2.example"))
				relays[0].Publish(alice.Hosted(at(0), fmt.Sprint("other", i), "elsewhere.example"))
			}
		}},
		{name: "foreign", want: foreign, text: "elsewhere.net:443", play: func(t *testing.T, r *rig, relays []*relaytest.Relay) {
			t.Helper()
			relays[0].Publish(alice.Hosted(at(0), "repo", "elsewhere.net"))
		}},
		{name: "a relay of ours is near", want: foreign, text: "git.grasp.example:443", play: func(t *testing.T, r *rig, relays []*relaytest.Relay) {
			t.Helper()
			for i := range 3 {
				relays[0].Publish(relaytest.NewCheapKey(fmt.Sprint("somebody", i)).Hosted(at(0), fmt.Sprint("repo", i), "git.grasp.example"))
			}
		}},
		{name: "one lists what is near", want: foreign, text: "elsewhere.net:443", play: func(t *testing.T, r *rig, relays []*relaytest.Relay) {
			t.Helper()
			for i := range 3 {
				relays[0].Publish(alice.Hosted(at(0), fmt.Sprint("other", i), "elsewhere.net"))
			}
			relays[0].Publish(alice.Hosted(at(0), "near", "localhost:3334"))
			relays[0].Publish(alice.Hosted(at(0), "nearer", "grasp2.example"))
		}},
		{name: "a client's is near", want: domain, text: "localhost:3334", play: func(t *testing.T, r *rig, relays []*relaytest.Relay) {
			t.Helper()
			_, err := r.manager.Judge(t.Context(), eventtest.Of(alice.Hosted(at(0), "repo", "localhost:3334")))
			require.NoError(t, err)
		}},
		{name: "a client's", want: foreign, text: "elsewhere.net:443", play: func(t *testing.T, r *rig, relays []*relaytest.Relay) {
			t.Helper()
			relays[0].Publish(alice.Hosted(at(0), "one", "another.org"))
			_, err := r.manager.Judge(t.Context(), eventtest.Of(alice.Hosted(at(0), "repo", "elsewhere.net")))
			require.NoError(t, err)
		}},
		{name: "nothing", want: nothing, text: "wss://grasp.example", none: true},
		{name: "unreachable", want: unreachable, down: true},
		{name: "all is right", own: true, play: func(t *testing.T, r *rig, relays []*relaytest.Relay) {
			t.Helper()
			relays[0].Publish(alice.Hosted(at(0), "repo", "grasp2.example"))
			relays[0].Publish(alice.Issue(at(0), alice.Ref("ours"), "x"))
		}},
		{name: "slow clock", want: slow, own: true, play: func(t *testing.T, r *rig, relays []*relaytest.Relay) {
			t.Helper()
			for i := range 6 {
				who := relaytest.NewCheapKey(fmt.Sprint("somebody", i))
				relays[i%2].Publish(who.Issue(at(-time.Hour), alice.Ref("ours"), "x"))
			}
		}},
		{name: "one relay dates ahead", own: true, play: func(t *testing.T, r *rig, relays []*relaytest.Relay) {
			t.Helper()
			for i := range 6 {
				relays[0].Publish(relaytest.NewCheapKey(fmt.Sprint("somebody", i)).Issue(at(-time.Hour), alice.Ref("ours"), "x"))
			}
		}},
		{name: "fast clock", want: fast, own: true, play: func(t *testing.T, r *rig, relays []*relaytest.Relay) {
			t.Helper()
			for i := range 12 {
				relays[i%2].Publish(alice.Issue(at(20*time.Minute), alice.Ref("ours"), fmt.Sprint(i)))
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net, logs := relaytest.NewNetwork(), newCapture()
				cfg := relaysync.Config{Logger: logs.logger()}
				r := &rig{t: t, store: memstore.New()}
				var relays []*relaytest.Relay
				for _, url := range []string{"wss://a.example", "wss://b.example", "wss://git.grasp.example"} {
					relays = append(relays, net.Add(url, relaytest.Behavior{Down: c.down}))
					if !c.none {
						cfg.Bootstrap = append(cfg.Bootstrap, relayURL(t, url))
					}
				}
				if c.own {
					r.save(alice.Hosted(at(24*time.Hour), "ours", us, "a.example", "b.example"))
				}
				r = start(t, net, r.store, cfg)
				defer r.stop()
				after(30 * time.Second)
				if c.play != nil {
					c.play(t, r, relays)
				}
				after(5 * time.Minute)
				advised := 0
				for _, msg := range []string{domain, foreign, nothing, unreachable, slow, fast} {
					lines := logs.find(msg)
					advised += len(lines)
					if msg != c.want {
						continue
					}
					require.Len(t, lines, 1)
					require.Equal(t, slog.LevelWarn, lines[0].level)
					require.NotEmpty(t, lines[0].attrs["advice"])
					require.Contains(t, fmt.Sprint(lines[0].attrs), c.text)
				}
				require.Equal(t, c.want != "", advised == 1, "%d", advised)
				require.LessOrEqual(t, advised, 1)
			})
		})
	}
}
