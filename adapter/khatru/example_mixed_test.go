package khatruadapter_test

import (
	"context"
	"fmt"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A relay for every event that its own hooks accept. Sync adds only events of repositories.
func ExampleNew_mixed() {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	if err != nil {
		panic(err)
	}
	db := &slicestore.SliceStore{}
	if err := db.Init(); err != nil {
		panic(err)
	}
	relay := khatru.NewRelay()
	relay.Negentropy = true
	relay.RejectEvent = append(relay.RejectEvent, func(_ context.Context, ev *nostr.Event) (bool, string) {
		return ev.Kind == nostr.KindReaction, "blocked: no reactions"
	})
	// Without ApplyPolicyToClients the policy judges only events of other relays.
	s, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Manager().Ready()
	for _, kind := range []int{nostr.KindTextNote, nostr.KindReaction} {
		_, err := relay.AddEvent(ctx, relaytest.NewKey("client").Event(1_700_000_000, kind, "hello"))
		fmt.Println(err)
	}
	cancel()
	fmt.Println(<-ended)
	// Output:
	// <nil>
	// blocked: no reactions
	// context canceled
}
