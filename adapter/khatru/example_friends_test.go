package khatruadapter_test

import (
	"context"
	"fmt"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// friendsPolicy is GRASPPolicy and also accepts notes (kind 1) and profiles (kind 0) that friends
// publish on this relay. GRASPPolicy already accepts deletions of stored events by their authors.
type friendsPolicy struct {
	*relaysync.GRASPPolicy
	friends map[graspsync.PubKey]bool
}

// Judge implements [relaysync.Policy].
func (p friendsPolicy) Judge(
	ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View,
) (graspsync.Verdict, error) {
	if src.Kind == graspsync.Direct && p.friends[ev.PubKey] && (ev.Kind == nostr.KindProfileMetadata || ev.Kind == nostr.KindTextNote) {
		return graspsync.Verdict{Decision: graspsync.Accept}, nil
	}
	return p.GRASPPolicy.Judge(ctx, ev, src, view)
}

// A relay that syncs repositories, and keeps notes of friends too.
func ExampleNew_friends() {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	if err != nil {
		panic(err)
	}
	friend, stranger := relaytest.NewKey("friend"), relaytest.NewKey("stranger")
	db := &slicestore.SliceStore{}
	if err := db.Init(); err != nil {
		panic(err)
	}
	relay := khatru.NewRelay()
	relay.Negentropy = true
	s, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{
		ApplyPolicyToClients: true, // the policy also judges published events
		Sync: relaysync.Config{Policy: friendsPolicy{
			relaysync.NewGRASPPolicy(identity), map[graspsync.PubKey]bool{friend.PubKey(): true},
		}},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Manager().Ready()
	for _, key := range []*relaytest.Key{friend, stranger} {
		_, err := relay.AddEvent(ctx, key.Event(1_700_000_000, nostr.KindTextNote, "hello"))
		fmt.Println(err)
	}
	cancel()
	fmt.Println(<-ended)
	// Output:
	// <nil>
	// blocked: not related to a repository of this service
	// context canceled
}
