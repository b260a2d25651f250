package sync_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// cramped is a policy that holds states and records their sources.
type cramped struct {
	relaysync.Policy

	mu      sync.Mutex
	sources []graspsync.Source // guarded by mu
}

// judged returns the sources of the judged events.
func (p *cramped) judged() []graspsync.Source {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sources)
}

func (p *cramped) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View) (graspsync.Verdict, error) {
	v, err := p.Policy.Judge(ctx, ev, src, view)
	if err == nil && v.Decision == graspsync.Accept && ev.Kind == graspsync.KindState {
		p.mu.Lock()
		p.sources = append(p.sources, src)
		p.mu.Unlock()
		v.Decision = graspsync.Hold
	}
	return v, err
}

// A held event that lost its room to others is judged again within minutes, from memory, and not
// only after the daily pass. After several losses only its id is kept.
func TestWhatGaveWayIsJudgedAgain(t *testing.T) {
	for name, direct := range map[string]bool{"synced": false, "submitted": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{})
				policy := &cramped{Policy: newKeeper(t).Policy}
				r, owner := hosted(t, net, relaysync.Config{Policy: policy, Holder: holdsNothing{}}, "a.example")
				defer r.stop()
				after(time.Minute)
				state := owner.State(at(0), "repo", nil, "")
				if direct {
					v, err := r.manager.Judge(t.Context(), eventtest.Of(state))
					require.NoError(t, err)
					require.Equal(t, graspsync.Hold, v.Decision)
				} else {
					a.Publish(state)
					after(10 * time.Second)
				}
				require.Len(t, policy.judged(), 1)
				sent := a.Traffic().EventsSent
				for i := range 4 {
					r.manager.NotifyDeferred(eventtest.Of(state))
					after(90 * time.Second)
					require.Len(t, policy.judged(), i+2)
					require.Equal(t, policy.judged()[0], policy.judged()[i+1])
				}
				require.Equal(t, sent, a.Traffic().EventsSent, "nobody is asked for it")
				r.manager.NotifyDeferred(eventtest.Of(state))
				after(12 * time.Hour)
				require.Len(t, policy.judged(), 5, "there is an end")
				after(14 * time.Hour)
				if !direct {
					require.Len(t, policy.judged(), 6, "the daily pass brings it")
				}
			})
		})
	}
}
