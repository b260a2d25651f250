package eventstoreadapter_test

import (
	"context"
	"fmt"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A backend returns a limited number of events per query. A Store over it returns all of them.
func Example() {
	ctx := context.Background()
	db := &slicestore.SliceStore{MaxLimit: 2}
	if err := db.Init(); err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store, err := eventstoreadapter.New(db, eventstoreadapter.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close() // before the backend is closed

	alice := relaytest.NewKey("alice")
	var events []graspsync.Incoming
	for i := range 5 {
		ev, err := graspsync.ParseEvent(alice.Issue(nostr.Timestamp(100+i), alice.Ref("repo"), fmt.Sprint("issue ", i)))
		if err != nil {
			fmt.Println(err)
			return
		}
		events = append(events, graspsync.Incoming{Event: ev})
	}
	outcomes, err := store.Save(ctx, events)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, o := range outcomes {
		if o.Result != graspsync.Stored {
			fmt.Println(events[i].Event.ID, o.Result, o.Err)
		}
	}
	count := 0
	for _, err := range store.Events(ctx, nostr.Filter{Kinds: []int{graspsync.KindIssue}}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		count++
	}
	fmt.Println(count)
	// Output: 5
}
