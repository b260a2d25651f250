package explain_test

import (
	"context"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Explain why a repository is missing. The question may use any spelling.
func Example() {
	identity, err := nip34.ParseIdentity("grasp.example")
	if err != nil {
		panic(err)
	}
	hub, err := graspsync.ParseRelayURL("wss://hub.example")
	if err != nil {
		panic(err)
	}
	network, alice := relaytest.NewNetwork(), relaytest.NewKey("alice")
	network.Add(hub.String(), relaytest.Behavior{}).Publish(alice.Announcement(1_700_000_000, "demo",
		[]string{hub.String()}, []string{"https://git.example/demo.git"}))
	manager, err := relaysync.New(memstore.New(), network, identity, relaysync.Config{
		Bootstrap: []graspsync.RelayURL{hub}, BatchWindow: 10 * time.Millisecond,
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- manager.Run(ctx) }()
	for !manager.Status().Synced {
		time.Sleep(10 * time.Millisecond)
	}
	why := explain.Explainer{Sync: manager}
	for _, question := range []string{alice.Npub() + "/demo", "hub.example"} {
		x, err := why.Explain(ctx, question)
		if err != nil {
			panic(err)
		}
		fmt.Println(x.Subject, x.Is)
	}
	cancel()
	<-ended
	// Output:
	// repository rejected
	// relay followed
}
