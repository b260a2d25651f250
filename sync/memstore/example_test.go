package memstore_test

import (
	"context"
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A deletion is stored and executed, and the deleted event does not come back.
func Example() {
	ctx, alice := context.Background(), relaytest.NewKey("alice")
	store := memstore.New()
	issue := alice.Issue(1_700_000_000, alice.Ref("repo"), "by mistake")
	deletion := alice.Event(1_700_000_001, graspsync.KindDeletion, "", nostr.Tag{"e", issue.ID})
	for _, raw := range []*nostr.Event{issue, issue, deletion, issue} {
		ev, err := graspsync.ParseEvent(raw)
		if err != nil {
			fmt.Println(err)
			return
		}
		outcomes, err := store.Save(ctx, []graspsync.Incoming{{Event: ev}})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(ev.Kind, outcomes[0].Result)
	}
	fmt.Println(store.Len())
	// Output:
	// 1621 stored
	// 1621 duplicate
	// 5 stored
	// 1621 deleted
	// 1
}
