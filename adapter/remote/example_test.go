package remoteadapter_test

import (
	"context"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	remoteadapter "github.com/graspsync/graspsync/adapter/remote"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A relay in another program is kept in sync. Its events are read from it, and events of other
// relays about its repositories are published to it. Real relays need package wstransport, with one
// transport for our own relay and another one for strangers. See cmd/follower.
func Example() {
	identity, err := nip34.ParseIdentity("grasp.example")
	if err != nil {
		fmt.Println(err)
		return
	}
	own, err := graspsync.ParseRelayURL("wss://internal.example")
	if err != nil {
		fmt.Println(err)
		return
	}
	inside, outside := relaytest.NewNetwork(), relaytest.NewNetwork()
	alice, bob := relaytest.NewKey("alice"), relaytest.NewKey("bob")
	inside.Add(own.String(), relaytest.Behavior{}).Publish(alice.Hosted(1_700_000_000, "repo", "grasp.example", "other.example"))
	outside.Add("wss://other.example", relaytest.Behavior{}).Publish(bob.Issue(1_700_000_001, alice.Ref("repo"), "it works"))

	store, err := remoteadapter.New(own, inside, remoteadapter.Config{Identity: identity})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	stored := make(chan graspsync.Event, 1)
	manager, err := relaysync.New(store, outside, identity, relaysync.Config{
		OwnRelay: own, OwnTransport: inside,
		BatchWindow: 10 * time.Millisecond,
		Observe: func(o relaysync.Observation) {
			if o.Is == relaysync.IsStored {
				stored <- o.Event
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- manager.Run(ctx) }()
	select {
	case ev := <-stored:
		fmt.Println(ev.Kind, ev.Tags.Find("subject"))
	case <-ctx.Done():
	}
	cancel()
	fmt.Println(<-ended)
	fmt.Println(len(inside.Relay(own).Events()), "events are on our relay")
	// Output:
	// 1621 [subject it works]
	// context canceled
	// 2 events are on our relay
}
