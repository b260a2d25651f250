package relaytest_test

import (
	"context"
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// A relay that returns two events per page, and the violations of its client.
func Example() {
	ctx := context.Background()
	net := relaytest.NewNetwork()
	hub := net.Add("wss://hub.example", relaytest.Behavior{Cap: 2})
	alice := relaytest.NewKey("alice")
	for i := range 3 {
		hub.Publish(alice.Issue(nostr.Timestamp(100+i), alice.Ref("demo"), fmt.Sprint("issue ", i)))
	}

	conn, err := net.Dial(ctx, hub.URL())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	issues := nostr.Filter{Tags: nostr.TagMap{"a": {alice.Ref("demo").String()}}}
	ask := wire.Request{Type: wire.TypeReq, Sub: "page-1", Filters: []nostr.Filter{issues}}
	if err := conn.Send(ctx, ask); err != nil {
		fmt.Println(err)
		return
	}
	for {
		m, err := conn.Receive(ctx)
		if err != nil || m.Type == wire.TypeEOSE {
			break
		}
		fmt.Println(m.Event.CreatedAt, m.Event.Content)
	}
	if err := conn.Send(ctx, ask); err != nil {
		fmt.Println(err)
	}
	for _, v := range hub.Violations() {
		fmt.Println(v)
	}
	// Output:
	// 102 issue 2
	// 101 issue 1
	// connection 1, "page-1": reused id: used before
}
