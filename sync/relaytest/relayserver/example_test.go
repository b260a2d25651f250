package relayserver_test

import (
	"context"
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/relaytest/relayserver"
)

// Any client can be tried on a relay that does what a test says: here one of go-nostr, on a relay
// that gives two events at a time.
func Example() {
	hub := relaytest.New("wss://hub.example", relaytest.Behavior{Cap: 2})
	alice := relaytest.NewKey("alice")
	for i := range 5 {
		hub.Publish(alice.Issue(nostr.Timestamp(100+i), alice.Ref("repo"), fmt.Sprint("issue ", i)))
	}
	server, err := relayserver.Start(hub)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := nostr.RelayConnect(ctx, server.URL().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	found, err := client.QuerySync(ctx, nostr.Filter{Kinds: []int{1621}})
	fmt.Println(len(found), err)
	// Output: 2 <nil>
}
