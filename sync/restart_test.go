package sync_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// copied returns a copy of the state at this time, as a process finds it after the previous process
// was killed.
func copied(t *testing.T, from state.Store) *state.Memory {
	t.Helper()
	to := state.NewMemory()
	for r, err := range from.Each(t.Context(), "") {
		require.NoError(t, err)
		err = to.Put(t.Context(), state.Record{Key: r.Key, Value: r.Value})
		require.NoError(t, err)
	}
	return to
}

// again starts a manager with the store and network of one that has ended.
func (r *rig) again(cfg relaysync.Config) *rig { return start(r.t, r.net, r.store, cfg) }

// A restart dialed every relay immediately, regardless of its backoff.
func TestTrapS5_BackoffSurvivesARestart(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed=", killed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{Down: true})
				kept := state.NewMemory()
				r, _ := hosted(t, net, relaysync.Config{State: kept}, "a.example")
				after(30 * time.Minute)
				next, failures := r.relay("wss://a.example").NextAttempt, r.relay("wss://a.example").Failures
				require.Greater(t, failures, 5)
				dials := len(a.Dials())
				found := kept
				if killed {
					found = copied(t, kept)
				}
				r.stop()
				r = r.again(relaysync.Config{State: found})
				defer r.stop()
				after(time.Until(next) - time.Second)
				require.Len(t, a.Dials(), dials)
				require.Equal(t, failures, r.relay("wss://a.example").Failures)
				after(time.Minute)
				require.Len(t, a.Dials(), dials+1)
			})
		})
	}
}

// A refusal by our own settings was kept over a restart as a failure of the relay: after a change
// of the settings and a restart the relay waited for an hour.
func TestWhatWeForbidIsForgottenByARestart(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed=", killed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net, kept := relaytest.NewNetwork(), state.NewMemory()
				forbidden := relaytest.Behavior{DialError: fmt.Errorf("dialing: %w", relaysync.ErrForbidden)}
				a := net.Add("wss://a.example", forbidden)
				b := net.Add("wss://b.example", relaytest.Behavior{Down: true}) // fails, and is forbidden later
				r, _ := hosted(t, net, relaysync.Config{State: kept}, "a.example", "b.example")
				after(15 * time.Minute)
				failures := r.relay("wss://b.example").Failures
				require.Greater(t, failures, 3)
				b.Update(func(b *relaytest.Behavior) { *b = forbidden })
				after(10 * time.Hour)
				require.Less(t, len(a.Dials()), 30, "it is not dialed all the time")
				require.Contains(t, r.relay("wss://a.example").LastError, "not allowed")
				found := kept
				if killed {
					found = copied(t, kept)
				}
				r.stop()
				a.Update(func(b *relaytest.Behavior) { b.DialError = nil })
				b.Update(func(b *relaytest.Behavior) { *b = relaytest.Behavior{Down: true} })
				dials := len(b.Dials())
				r = r.again(relaysync.Config{State: found})
				defer r.stop()
				after(2 * time.Second)
				require.Equal(t, "live", r.relay("wss://a.example").Phase)
				require.Zero(t, r.relay("wss://a.example").Failures)
				after(3 * time.Second)
				require.Greater(t, len(b.Dials()), dials, "the time is long over for which its own failures had it wait")
				require.Equal(t, failures+len(b.Dials())-dials, r.relay("wss://b.example").Failures, "and they count")
			})
		})
	}
}

// A process that was killed repeatedly shortly after its first dials attacked the dialed hosts.
func TestPromiseP15_CrashLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{NoAnswer: true})
		good := net.Add("wss://b.example", relaytest.Behavior{})
		kept := state.NewMemory()
		r, _ := hosted(t, net, relaysync.Config{State: kept}, "a.example", "b.example")
		begun := time.Now()
		for time.Since(begun) < time.Hour {
			after(10 * time.Second)
			found := copied(t, kept)
			r.stop()
			kept = found
			r = r.again(relaysync.Config{State: kept})
		}
		r.stop()
		require.LessOrEqual(t, len(a.Dials()), 12, "each time it failed")
		require.LessOrEqual(t, len(good.Dials()), 62, "one a minute")
		last := time.Time{}
		for _, d := range good.Dials() {
			require.GreaterOrEqual(t, d.At.Sub(last), time.Minute)
			last = d.At
		}
	})
}

// A server that was restarted within seconds waited a minute before it dialed relays that had just
// worked. Now three such restarts within ten minutes do not wait. More may be a crash loop.
func TestCleanRestartsDialAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		mute := net.Add("wss://a.example", relaytest.Behavior{NoAnswer: true})
		good := net.Add("wss://b.example", relaytest.Behavior{})
		kept := state.NewMemory()
		r, _ := hosted(t, net, relaysync.Config{State: kept}, "a.example", "b.example")
		after(20 * time.Second)
		for i := range 4 {
			r.stop()
			after(time.Second)
			r = r.again(relaysync.Config{State: kept})
			after(12 * time.Second)
			require.Len(t, good.Dials(), min(i+2, 4), "restart %d", i+1)
		}
		after(2 * time.Minute)
		require.Len(t, good.Dials(), 5, "after the pause")
		require.LessOrEqual(t, len(mute.Dials()), 7, "its backoff holds")
		after(10 * time.Minute)
		r.stop()
		r = r.again(relaysync.Config{State: kept})
		after(6 * time.Second)
		require.Len(t, good.Dials(), 6, "ten minutes later")
		// A kill shortly afterwards is not a clean stop.
		found := copied(t, kept)
		r.stop()
		r = r.again(relaysync.Config{State: found})
		defer func() { r.stop() }()
		after(30 * time.Second)
		require.Len(t, good.Dials(), 6)
	})
}

// watchful is a Transport that reads the state when a relay is dialed.
type watchful struct {
	*relaytest.Network
	dial func(u graspsync.RelayURL)
}

func (w watchful) Dial(ctx context.Context, u graspsync.RelayURL) (relaysync.Conn, error) {
	w.dial(u)
	return w.Network.Dial(ctx, u)
}

// An attempt is recorded before the dial, in case the process ends during the dial.
func TestPromiseP15_SavedBeforeTheDial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://a.example", relaytest.Behavior{Down: true})
		kept := state.NewMemory()
		dials := 0
		transport := watchful{net, func(u graspsync.RelayURL) {
			dials++
			var record health.Record
			for r, err := range kept.Each(t.Context(), "sync/health/"+u.String()) {
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(r.Value, &record))
			}
			require.True(t, record.Dialing)
			require.Equal(t, uint64(dials), record.Attempts)
		}}
		r, _ := hostedOver(t, net, transport, relaysync.Config{State: kept}, "a.example")
		after(time.Hour)
		r.stop()
		require.Greater(t, dials, 5)
	})
}

// brokenState is a state that fails while enabled.
type brokenState struct {
	*state.Memory
	fails atomic.Bool
	hangs bool
}

func (b *brokenState) Each(ctx context.Context, prefix string) iter.Seq2[state.Record, error] {
	if !b.hangs {
		return b.Memory.Each(ctx, prefix)
	}
	return func(yield func(state.Record, error) bool) {
		<-ctx.Done()
		yield(state.Record{}, ctx.Err())
	}
}

func (b *brokenState) Put(ctx context.Context, records ...state.Record) error {
	if b.fails.Load() {
		return errors.New("no space left on device")
	}
	return b.Memory.Put(ctx, records...)
}

// If attempts cannot be saved, unknown relays are not dialed, and relays that worked before are.
// All are dialed when saving works again.
func TestStateThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		good := net.Add("wss://a.example", relaytest.Behavior{})
		unknown := net.Add("wss://b.example", relaytest.Behavior{Down: true})
		kept := &brokenState{Memory: state.NewMemory()}
		r, owner := hosted(t, net, relaysync.Config{State: kept}, "a.example")
		after(10 * time.Minute)
		require.True(t, r.relay("wss://a.example").Synced)
		kept.fails.Store(true)
		r.save(owner.Hosted(at(time.Hour), "other", us, "a.example", "b.example"))
		good.SetDown(true)
		after(time.Minute)
		good.SetDown(false)
		issue := owner.Issue(at(0), owner.Ref("repo"), "x")
		good.Publish(issue)
		after(5 * time.Minute)
		require.True(t, r.has(issue))
		require.Empty(t, unknown.Dials())
		unknown.SetDown(false)
		kept.fails.Store(false)
		after(2 * time.Minute)
		require.Len(t, unknown.Dials(), 1)
		require.Equal(t, 0, r.relay("wss://b.example").Failures, "it was not its fault")
		r.stop()
	})
}

// A state that hangs delays the start and the end by a limited time only.
func TestStateThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://a.example", relaytest.Behavior{})
		kept := &brokenState{Memory: state.NewMemory(), hangs: true}
		err := kept.Put(t.Context(), state.Record{Key: "sync/salt", Value: make([]byte, 16)})
		require.NoError(t, err)
		r, _ := hosted(t, net, relaysync.Config{State: kept}.With(relaysync.Fixed{StoreTimeout: 10 * time.Second}), "a.example")
		after(time.Minute)
		require.True(t, r.relay("wss://a.example").Synced)
		begun := time.Now()
		r.stop()
		require.Less(t, time.Since(begun), 5*time.Second)
	})
}

// A relay without NIP-77 got NEG-OPEN again after each restart.
func TestTrapS5_LearnedSurvivesARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{Negentropy: relaytest.NegNotice})
		kept := state.NewMemory()
		r, owner := hosted(t, net, relaysync.Config{State: kept}, "a.example")
		a.Publish(owner.Issue(at(time.Hour), owner.Ref("repo"), "x"))
		after(5 * time.Minute)
		asked := len(a.Requests(wire.TypeNegOpen))
		require.Positive(t, asked)
		for range 3 {
			found := copied(t, kept)
			r.stop()
			kept = found
			r = r.again(relaysync.Config{State: kept})
			after(5 * time.Minute)
			require.True(t, r.relay("wss://a.example").Synced)
			require.Len(t, a.Requests(wire.TypeNegOpen), asked)
		}
		r.stop()
		after(4 * time.Hour)
		r = r.again(relaysync.Config{State: kept})
		after(5 * time.Minute)
		require.Greater(t, len(a.Requests(wire.TypeNegOpen)), asked, "it is not believed for ever")
		r.stop()
	})
}

// The records of a relay that is no longer listed are removed.
func TestForgottenRelayLeavesTheState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://a.example", relaytest.Behavior{Negentropy: relaytest.NegNotice})
		kept := state.NewMemory()
		r, owner := hosted(t, net, relaysync.Config{State: kept}, "a.example")
		after(3 * time.Minute)
		n := 0
		for _, err := range kept.Each(t.Context(), "") {
			require.NoError(t, err)
			n++
		}
		require.Greater(t, n, 2)
		r.save(owner.Hosted(at(time.Hour), "repo", us))
		after(3 * time.Minute)
		for r, err := range kept.Each(t.Context(), "") {
			require.NoError(t, err)
			if !strings.HasPrefix(r.Key, "sync/host/") { // to list it anew must not make it a new one
				require.NotContains(t, r.Key, "a.example")
			}
		}
		r.stop()
	})
}

// keepingNetwork is a Transport with its own state.
type keepingNetwork struct {
	*relaytest.Network
	n        byte
	imported [][]byte
}

func (k *keepingNetwork) Export() [][]byte       { k.n++; return [][]byte{{k.n}, []byte("same")} }
func (k *keepingNetwork) Import(chunks [][]byte) { k.imported = chunks }

func TestTransportKeepsThings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		kept := state.NewMemory()
		first := &keepingNetwork{Network: relaytest.NewNetwork()}
		r, _ := hostedOver(t, first.Network, first, relaysync.Config{State: kept})
		after(90 * time.Second)
		found := copied(t, kept)
		r.stop()
		require.Nil(t, first.imported)
		for n, s := range map[byte]state.Store{1: found, 2: kept} {
			second := &keepingNetwork{Network: relaytest.NewNetwork()}
			r, _ = hostedOver(t, second.Network, second, relaysync.Config{State: s})
			after(time.Second)
			require.Equal(t, [][]byte{{n}, []byte("same")}, second.imported)
			r.stop()
		}
	})
}
