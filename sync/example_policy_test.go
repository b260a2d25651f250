package sync_test

import (
	"context"
	"fmt"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// An allow list: only repositories of some owners are hosted, with all events that belong to them,
// including those of maintainers and commenters.
func ExampleGRASPPolicy_allowList() {
	identity, err := nip34.ParseIdentity("grasp.example")
	if err != nil {
		panic(err)
	}
	alice, mallory := relaytest.NewKey("alice"), relaytest.NewKey("mallory")
	allowed := map[graspsync.PubKey]bool{alice.PubKey(): true}
	policy := relaysync.NewGRASPPolicy(identity)
	policy.Hosts = func(a *nip34.Announcement) bool { return allowed[a.Ref.Owner] }

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	manager, err := relaysync.New(memstore.New(), relaytest.NewNetwork(), identity, relaysync.Config{Policy: policy})
	if err != nil {
		panic(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Run(ctx) }()
	<-manager.Ready()
	for _, key := range []*relaytest.Key{alice, mallory} {
		announcement, err := graspsync.ParseEvent(key.Hosted(1_700_000_000, "repo", "wss://grasp.example"))
		if err != nil {
			panic(err)
		}
		verdict, err := manager.Judge(ctx, announcement)
		fmt.Println(verdict.Decision == graspsync.Accept, verdict.Reason, err)
	}
	cancel()
	fmt.Println(<-ended)
	// Output:
	// true  <nil>
	// false blocked: this service does not host this repository <nil>
	// context canceled
}
