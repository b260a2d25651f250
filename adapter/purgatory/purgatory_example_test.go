package purgatoryadapter_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A submitted event is held until the announced push arrives. For real repositories use packages
// gitserve and gitfetch. state.Open returns a store that survives a restart.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	identity, err := nip34.ParseIdentity("grasp.example")
	if err != nil {
		fmt.Println(err)
		return
	}
	store, git := memstore.New(), fetchtest.New()
	released := make(chan purgatory.HoldEnded, 2)
	host := purgatoryadapter.Host{
		Store: store, Release: purgatoryadapter.Save(store), Lists: identity.Lists,
		Held: func(graspsync.Event) {}, Removed: func(graspsync.Event) {}, // for a SyncManager, of which there is none here
	}
	p, err := purgatory.Open(ctx, host.Relay(), git, git, git, state.NewMemory(), purgatory.Config{
		Identity: identity,
		Observe: func(o purgatory.Observation) {
			if o, is := o.(purgatory.HoldEnded); is {
				released <- o
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()

	alice, commit := relaytest.NewKey("alice"), strings.Repeat("1", 40)
	for _, raw := range []*nostr.Event{
		alice.Hosted(nostr.Now(), "repo", "grasp.example"),
		alice.State(nostr.Now(), "repo", map[string]string{"refs/heads/main": commit}, "main"),
	} {
		ev, err := graspsync.ParseEvent(raw)
		if err != nil {
			fmt.Println(err)
			return
		}
		answer, err := p.Submit(ctx, ev, graspsync.Source{Kind: graspsync.Direct})
		fmt.Println(ev.Kind, answer.Decision == purgatory.Held, answer.Reason, err)
	}

	id, err := nip34.ParseObjectID(commit)
	if err != nil {
		fmt.Println(err)
		return
	}
	main, err := nip34.ParseRefName("refs/heads/main")
	if err != nil {
		fmt.Println(err)
		return
	}
	git.Push(alice.Ref("repo"), map[nip34.RefName]nip34.ObjectID{main: id}, id)
	p.Pushed(ctx, alice.Ref("repo"), []nip34.RefName{main})
	for range 2 {
		select {
		case o := <-released:
			fmt.Println(o.Event.Kind, o.Reason)
		case <-ctx.Done():
		}
	}
	cancel()
	fmt.Println(<-ended, store.Len())
	// Output:
	// 30617 true purgatory: won't be served until git data arrives <nil>
	// 30618 true purgatory: won't be served until git data arrives <nil>
	// 30617 released
	// 30618 released
	// context canceled 2
}
