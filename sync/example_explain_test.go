package sync_test

import (
	"context"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Why are this event and its repository missing? The clone URL of the announcement has the wrong
// name.
func ExampleSyncManager_EventState() {
	identity, err := nip34.ParseIdentity("grasp.example")
	if err != nil {
		panic(err)
	}
	hub, err := graspsync.ParseRelayURL("wss://hub.example")
	if err != nil {
		panic(err)
	}
	alice := relaytest.NewKey("alice")
	announcement := alice.Announcement(1_700_000_000, "demo",
		[]string{"wss://grasp.example", hub.String()}, []string{"https://grasp.example/" + alice.Npub() + "/dmeo.git"})
	network := relaytest.NewNetwork()
	network.Add(hub.String(), relaytest.Behavior{}).Publish(announcement)
	rejected := make(chan graspsync.EventID, 1)
	manager, err := relaysync.New(memstore.New(), network, identity, relaysync.Config{
		Bootstrap:   []graspsync.RelayURL{hub},
		BatchWindow: 10 * time.Millisecond,
		Observe: func(o relaysync.Observation) {
			if o.Is == relaysync.IsRejected {
				rejected <- o.Event.ID
			}
		},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- manager.Run(ctx) }()
	x, err := manager.EventState(ctx, <-rejected)
	if err != nil {
		panic(err)
	}
	fmt.Println(x.Is, "from", x.Relay)
	fmt.Println(x.Reason)
	fmt.Println(x.Detail)
	repo, err := manager.RepoFollowState(ctx, alice.Ref("demo"))
	if err != nil {
		panic(err)
	}
	fmt.Println(repo.Is)
	cancel()
	<-ended
	// Output:
	// rejected from wss://hub.example
	// blocked: announcement does not list this service in clone
	// want wss://grasp.example in relays and https://grasp.example/npub1d026lwm7lmx3ls8k4sq230790nvqk95h4mp4qgat66pf0hslcxfqvaw5az/demo.git in clone; it lists relays wss://grasp.example wss://hub.example, clone https://grasp.example/npub1d026lwm7lmx3ls8k4sq230790nvqk95h4mp4qgat66pf0hslcxfqvaw5az/dmeo.git
	// rejected
}
