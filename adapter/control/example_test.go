package control_test

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/control"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// inMemory are repositories in memory without retired ones.
type inMemory struct{ *fetchtest.Fake }

func (inMemory) Departed(context.Context, graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error] {
	return func(func(graspsync.RepoRef, error) bool) {}
}

// server is a server in memory without listeners.
type server struct {
	store     *memstore.Store
	manager   *relaysync.SyncManager
	purgatory *purgatory.Purgatory
	control   *control.Control
	dials     egress.Config // configuration for dialing
}

// newServer connects the parts like adapter/grasp does, and runs them until ctx ends.
func newServer(ctx context.Context, audit func(admin.Entry), bootstrap ...graspsync.RelayURL) (s *server, wait func(), err error) {
	identity, err := nip34.ParseIdentity("grasp.example")
	if err != nil {
		return nil, nil, err
	}
	ruleSet, err := rules.Open(ctx, state.NewMemory(), rules.File{})
	if err != nil {
		return nil, nil, err
	}
	s = &server{store: memstore.New(memstore.WithIdentity(identity))}
	git := fetchtest.New()

	cfg := relaysync.Config{Policy: relaysync.NewGRASPPolicy(identity), Bootstrap: bootstrap}
	cfg, s.dials = control.Enforce(ruleSet, cfg, egress.Config{})
	policy := purgatoryadapter.NewPolicy(cfg.Policy)
	if s.manager, err = relaysync.New(policy.Store(s.store), relaytest.NewNetwork(), identity, policy.Configure(cfg)); err != nil {
		return nil, nil, err
	}
	host := purgatoryadapter.Host{
		Store: s.store, Release: purgatoryadapter.Save(s.store, s.manager.NotifyStored), Lists: policy.Lists,
		Held: s.manager.NotifyHeld, Removed: s.manager.NotifyRemoved, Postponed: s.manager.NotifyDeferred,
	}
	s.purgatory, err = purgatory.Open(ctx, host.Relay(), git, git, git, state.NewMemory(), purgatory.Config{Identity: identity, Observe: host.Observe})
	if err != nil {
		return nil, nil, err
	}
	policy.Join(s.purgatory)
	s.control, err = control.New(control.Config{
		Rules: ruleSet, Sync: s.manager, Store: s.store, Remove: s.remove, Purgatory: s.purgatory, Repositories: inMemory{git},
		Lists: policy.Lists, Bootstrap: bootstrap, Audit: audit,
	})
	if err != nil {
		return nil, nil, err
	}
	var running sync.WaitGroup
	running.Go(func() { _ = s.purgatory.Run(ctx) })
	running.Go(func() { _ = s.manager.Run(ctx) })
	<-s.manager.Ready()
	return s, running.Wait, nil
}

// remove removes an event like moderation does.
func (s *server) remove(ctx context.Context, e graspsync.Event) error {
	if err := s.store.Remove(ctx, e); err != nil {
		return err
	}
	s.manager.NotifyRemoved(e)
	s.purgatory.NotifySuperseded(e)
	return nil
}

// A spammer is blocked, and the spammer's data is removed. The audit log names the operator.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	s, wait, err := newServer(ctx, func(e admin.Entry) { fmt.Println(e.By, e.Command, e.Args[0], e.Outcome) })
	if err != nil {
		panic(err)
	}
	defer wait()
	defer cancel()
	mallory := relaytest.NewKey("mallory")
	spam, err := graspsync.ParseEvent(mallory.Hosted(nostr.Now(), "repo", "grasp.example"))
	if err != nil {
		panic(err)
	}
	if _, err := s.store.Save(ctx, []graspsync.Incoming{{Event: spam}}); err != nil {
		panic(err)
	}
	purged, err := s.control.Do(ctx, "alice", "remove", "author", mallory.Npub(), "spam")
	fmt.Println(purged.(control.Purged).Events, err)
	verdict, err := s.manager.Judge(ctx, spam)
	fmt.Println(verdict.Reason, err)
	// Output:
	// alice remove author begun
	// alice remove author done
	// 1 <nil>
	// blocked: this server takes nothing by this author <nil>
}
