package khatruadapter

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// roomy is a policy that holds events until it is full, and then accepts them.
type roomy struct {
	relaysync.Policy
	full   atomic.Bool
	judged atomic.Int64
}

func (p *roomy) Judge(context.Context, graspsync.Event, graspsync.Source, relaysync.View) (graspsync.Verdict, error) {
	p.judged.Add(1)
	if p.full.Load() {
		return graspsync.Verdict{Decision: graspsync.Accept}, nil
	}
	return graspsync.Verdict{Decision: graspsync.Hold, Reason: held}, nil
}

// A held event of a client that was evicted and judged again skipped the hooks, so that an event
// was stored although a hook refused its author by then. A submission calls the hooks once, and an
// authenticated client need not authenticate again.
func TestHooksAreAskedWhenASubmissionIsJudgedAgain(t *testing.T) {
	for says, stored := range map[string]bool{
		"": true, "blocked: banned": false, "auth-required: who are you?": true, "error: the list can't be read": false,
	} {
		t.Run(says, func(t *testing.T) {
			relay := khatru.NewRelay()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				said, asked := "", 0 // guarded by mu
				say := func(text string) (before int) {
					mu.Lock()
					defer mu.Unlock()
					said = text
					return asked
				}
				relay.RejectEvent = append(relay.RejectEvent, func(context.Context, *nostr.Event) (bool, string) {
					mu.Lock()
					defer mu.Unlock()
					asked++
					return said != "", said
				})
				switch says {
				case "blocked: banned":
					expectLog(t, "WARN hook refused a synced event, khatruadapter.IsSynced lets it accept such events")
				case "error: the list can't be read":
					expectLog(t, "WARN hook refused a synced event, khatruadapter.IsSynced lets it accept such events",
						"WARN saving events failed, will retry")
				}
				identity, err := nip34.ParseIdentity("grasp.example.com")
				require.NoError(t, err)
				policy := &roomy{Policy: relaysync.NewGRASPPolicy(identity)}
				s, err := New(relay, newSlice(t), identity, Config{
					ApplyPolicyToClients: true, Transport: relaytest.NewNetwork(),
					Sync: relaysync.Config{Policy: policy, Holder: holder{}, Verifier: relaytest.CheapVerifier{}, Logger: logged(t)},
				})
				require.NoError(t, err)
				stop := run(t, s)
				synctest.Wait()
				ev := relaytest.NewCheapKey("who").Event(nostr.Now(), 30618, "", nostr.Tag{"d", "repo"})
				_, err = relay.AddEvent(t.Context(), ev)
				require.NoError(t, err)
				require.Equal(t, 1, say(says), "asked by khatru, and not again")
				require.EqualValues(t, 1, policy.judged.Load())
				require.Empty(t, content(t, s.Store()))
				policy.full.Store(true)
				s.Manager().NotifyDeferred(eventtest.Of(ev))
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Greater(t, say(""), 1)
				require.Equal(t, stored, len(content(t, s.Store())) == 1)
				require.Equal(t, stored, policy.judged.Load() > 1, "the policy is asked about what may come")
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				require.Equal(t, says != "blocked: banned", len(content(t, s.Store())) == 1, "no verdict is none")
				stop()
			})
		})
	}
}
