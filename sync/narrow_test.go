package sync_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// holder is a policy that holds the events of repositories with some names.
type holder struct{ *keeper }

func (h holder) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View) (graspsync.Verdict, error) {
	if strings.HasPrefix(ev.Tags.GetD(), "held") {
		return h.keeper.Judge(ctx, ev, src, view)
	}
	return h.Policy.Judge(ctx, ev, src, view)
}

// narrowWorld is a relay with hosted repositories, of which some are held, and with more
// repositories of strangers.
type narrowWorld struct {
	*rig
	hub             *relaytest.Relay
	owner, stranger *relaytest.Key
	policy          holder
	ours, foreign   []*nostr.Event // states
	asked           int            // requests that were examined
}

func newNarrowWorld(t *testing.T, b relaytest.Behavior) *narrowWorld {
	net := relaytest.NewNetwork()
	w := &narrowWorld{
		hub: net.Add("wss://hub.example", b), owner: relaytest.NewCheapKey("owner"),
		stranger: relaytest.NewCheapKey("stranger"), policy: holder{newKeeper(t)},
	}
	w.rig = &rig{t: t, net: net, store: memstore.New()}
	for i := range 120 {
		w.state(fmt.Sprint("repo", i))
	}
	for i := range 30 {
		w.state(fmt.Sprint("held", i))
	}
	for i := range 200 {
		name := fmt.Sprint("foreign", i)
		ago := time.Hour + time.Duration(i)*time.Second
		w.foreign = append(w.foreign, w.stranger.State(at(ago), name, nil, ""))
		w.hub.Publish(w.stranger.Hosted(at(ago), name, "hub.example"), w.foreign[i])
	}
	return w
}

// state publishes a hosted repository and its state. A maintainer who is not the owner signs the
// states with odd numbers.
func (w *narrowWorld) state(name string) {
	maintainer, signer := relaytest.NewCheapKey("maintainer"), w.owner
	relays := []string{"wss://" + us, "wss://hub.example"}
	clones := []string{w.owner.CloneURL(relays[0], name), w.owner.CloneURL(relays[1], name)}
	if len(w.ours)%2 == 1 && !strings.HasPrefix(name, "held") {
		signer = maintainer
	}
	ago := time.Hour + time.Duration(len(w.ours))*time.Second
	st := signer.State(at(ago), name, nil, "")
	w.hub.Publish(w.owner.Announcement(at(ago), name, relays, clones, maintainer), st)
	if signer == maintainer { // whose own announcement lists another server
		w.hub.Publish(maintainer.Announcement(at(ago), name, relays[1:], []string{maintainer.CloneURL(relays[1], name)}, w.owner))
	}
	w.ours = append(w.ours, st)
}

func (w *narrowWorld) run(cfg relaysync.Config) {
	cfg.Policy, cfg.Holder = w.policy, w.policy
	cfg.Bootstrap = []graspsync.RelayURL{w.hub.URL()}
	w.rig = start(w.t, w.net, w.store, cfg)
}

// here checks that these states are stored, or held by the policy.
func (w *narrowWorld) here(states ...*nostr.Event) {
	w.t.Helper()
	for _, st := range states {
		require.True(w.t, w.policy.all[st.ID] || w.has(st), st.Tags.GetD())
	}
}

// asksForForeign reports whether a request since the last call was for a state of a stranger.
func (w *narrowWorld) asksForForeign() bool {
	requests := w.hub.Requests()
	defer func() { w.asked = len(requests) }()
	for _, req := range requests[w.asked:] {
		for _, f := range req.Filters {
			f = filters.Between(f, nil, nil, 0)
			for _, st := range w.foreign {
				if f.Matches(st) {
					return true
				}
			}
		}
	}
	return false
}

// With HostedStatesOnly the old and new states of hosted and held repositories arrive, and no other
// states are requested. After a restart with another value, state that was never requested does not
// count as fetched.
func TestHostedStatesOnly(t *testing.T) {
	racetest.Amounts(t)
	for name, behavior := range map[string]relaytest.Behavior{
		"NIP-77": {}, "pages": {Negentropy: relaytest.NegNotice, Cap: 50},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newNarrowWorld(t, behavior)
				kept := state.NewMemory()
				restart := func(narrow bool) {
					found := copied(t, kept)
					w.stop()
					kept = found
					st := w.owner.State(at(0), "repo0", nil, "away")
					w.hub.Publish(st)
					time.Sleep(5 * time.Minute)
					w.run(relaysync.Config{State: kept, HostedStatesOnly: narrow})
					after(2 * time.Minute)
					require.True(t, w.relay("wss://hub.example").Synced)
					w.here(st)
				}
				live := func() {
					one, held := w.owner.State(at(0), "repo1", nil, "live"), w.owner.State(at(0), "held1", nil, "live")
					w.hub.Publish(one, held)
					after(10 * time.Second)
					w.here(one, held)
				}
				ours := func(i int, states int) {
					st := w.repo(w.owner.Ref(fmt.Sprint("held", i)))
					require.Equal(t, "state only", st.Level)
					require.Equal(t, states, st.Confirmed)
				}
				w.run(relaysync.Config{State: kept, HostedStatesOnly: true})
				after(10 * time.Minute)
				require.True(t, w.relay("wss://hub.example").Synced)
				w.here(w.ours...)
				live()
				ours(3, 1)
				require.False(t, w.asksForForeign())

				restart(true)
				live()
				require.False(t, w.asksForForeign())

				// A repository becomes hosted; its state must have come with layer 1.
				restart(false)
				require.True(t, w.asksForForeign())
				w.hub.Publish(w.stranger.Hosted(at(0), "foreign7", us, "hub.example"))
				after(time.Minute)
				w.here(w.foreign[7])
				live()
				ours(3, 0)

				// The state of a repository that becomes hosted is requested by identifier.
				w.foreign = w.foreign[8:]
				w.asksForForeign()
				restart(true)
				w.hub.Publish(w.stranger.Hosted(at(0), "foreign20", us, "hub.example"))
				after(time.Minute)
				w.here(w.foreign[12])
				live()
				ours(3, 1)
				w.foreign = w.foreign[13:]
				require.False(t, w.asksForForeign())
				w.stop()
			})
		})
	}
}
