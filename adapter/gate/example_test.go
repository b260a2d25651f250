// khatru has a data race between its subscriptions.

//go:build !race

package gate_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A gate handles the clients of a khatru relay.
func Example() {
	db := &slicestore.SliceStore{}
	if err := db.Init(); err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	relay := khatru.NewRelay()
	relay.StoreEvent = append(relay.StoreEvent, db.SaveEvent)
	relay.QueryEvents = append(relay.QueryEvents, db.QueryEvents)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	door := gate.New(relay, gate.Config{})
	defer door.Close() // disconnects clients
	server := &http.Server{Handler: door, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	defer server.Close()
	go server.Serve(listener)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := nostr.RelayConnect(ctx, "ws://"+listener.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	alice := relaytest.NewKey("alice")
	fmt.Println(client.Publish(ctx, *alice.Issue(nostr.Now(), alice.Ref("repo"), "it works")))
	found, err := client.QuerySync(ctx, nostr.Filter{Kinds: []int{1621}})
	fmt.Println(len(found), err)
	// Output:
	// <nil>
	// 1 <nil>
}
