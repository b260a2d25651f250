package relayserver_test

import (
	"context"
	"fmt"
	"time"

	"github.com/coder/websocket"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/relaytest/relayserver"
	"github.com/graspsync/graspsync/sync/wire"
)

// Test any client on a scripted relay, for example one that returns at most two events.
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
	conn, _, err := websocket.Dial(ctx, server.URL().String(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, []byte(`["REQ","1",{"kinds":[1621]}]`)); err != nil {
		fmt.Println(err)
		return
	}
	for {
		_, text, err := conn.Read(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		m, err := wire.Parse(text)
		if err != nil {
			fmt.Println(err)
			return
		}
		if m.Type == wire.TypeEOSE {
			break
		}
		fmt.Println(m.Event.Tags.Find("subject"))
	}
	// Output:
	// [subject issue 4]
	// [subject issue 3]
}
