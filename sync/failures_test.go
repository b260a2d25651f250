package sync_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// sick selects the dependency that fails.
type sick struct{ what atomic.Value }

func (s *sick) err(what string) error {
	if s.what.Load() == what {
		return errors.New("sick dependency\x1b")
	}
	return nil
}

type sickStore struct {
	relaysync.Store
	*sick
}

func (s sickStore) Save(ctx context.Context, events []graspsync.Incoming) (out []graspsync.Outcome, err error) {
	if err := s.err("save"); err != nil {
		return nil, err
	}
	if err := s.err("outcomes"); err != nil {
		for range events {
			out = append(out, graspsync.Outcome{Result: graspsync.Failed, Err: err})
		}
		return out, nil
	}
	return s.Store.Save(ctx, events)
}

type sickPolicy struct {
	relaysync.Policy
	*sick
}

func (p sickPolicy) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View) (graspsync.Verdict, error) {
	if err := p.err("policy"); err != nil {
		return graspsync.Verdict{}, err
	}
	return p.Policy.Judge(ctx, ev, src, view)
}

type sickState struct {
	state.Store
	*sick
}

func (s sickState) Put(ctx context.Context, records ...state.Record) error {
	if err := s.err("state"); err != nil {
		return err
	}
	return s.Store.Put(ctx, records...)
}

// A Store that saved nothing was visible in the log only. Now the status shows failures of the
// Store, the Policy and the state.
func TestCaseC20_FailingDependencyIsInStatus(t *testing.T) {
	for what, of := range map[string]string{"save": "store save", "outcomes": "store outcome", "policy": "policy judge", "state": "state write"} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s, net, owner := &sick{}, relaytest.NewNetwork(), relaytest.NewCheapKey("owner")
				s.what.Store("")
				identity, err := nip34.ParseIdentity(us)
				require.NoError(t, err)
				store := sickStore{memstore.New(), s}
				(&rig{t: t, store: store}).save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
				relay := net.Add("wss://a.example", relaytest.Behavior{})
				r := start(t, net, store, relaysync.Config{Policy: sickPolicy{relaysync.NewGRASPPolicy(identity), s}, State: sickState{state.NewMemory(), s}})
				defer func() { r.stop() }()
				after(time.Minute)
				require.Empty(t, r.manager.Status().Failures)

				began := time.Now()
				s.what.Store(what)
				var issues []*nostr.Event
				for _, text := range []string{"x", "y", "z"} {
					issues = append(issues, owner.Issue(at(0), owner.Ref("repo"), text))
					relay.Publish(issues...)
					after(5 * time.Minute)
				}
				failures := r.manager.Status().Failures
				require.Len(t, failures, 1)
				f := failures[0]
				require.Equal(t, of, f.Of)
				require.Contains(t, f.Error, "sick dependency")
				require.NotContains(t, f.Error, "\x1b")
				require.Greater(t, f.Count, uint64(1))
				require.WithinDuration(t, began, f.Since, 3*time.Minute)
				text, err := json.Marshal(r.manager.Status())
				require.NoError(t, err)
				require.Contains(t, string(text), "sick dependency")
				require.Equal(t, 1, testutil.CollectAndCount(r.manager.Collector("ngit"), "ngit_sync_dependency_failures_total"))

				s.what.Store("")
				relay.Publish(owner.Issue(at(0), owner.Ref("repo"), "later"))
				after(2 * time.Hour)
				require.Empty(t, r.manager.Status().Failures)
				for _, ev := range issues {
					require.True(t, r.has(ev))
				}
				require.Equal(t, 1, testutil.CollectAndCount(r.manager.Collector("ngit"), "ngit_sync_dependency_failures_total"), "it is counted")
			})
		})
	}
}
