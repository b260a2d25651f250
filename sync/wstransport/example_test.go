package wstransport_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/relaytest/relayserver"
	"github.com/graspsync/graspsync/sync/wire"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// A conversation with a relay on this machine. The configuration must allow it, because the dialer
// otherwise connects only to public addresses over TLS.
func Example() {
	relay := relaytest.New("wss://hub.example", relaytest.Behavior{})
	alice := relaytest.NewKey("alice")
	relay.Publish(alice.Issue(1_700_000_000, alice.Ref("repo"), "it works"))
	server, err := relayserver.Start(relay)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	dialer, err := egress.NewDialer(egress.Config{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPlaintext: true,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	transport, err := wstransport.New(wstransport.Config{Dialer: dialer})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := transport.Dial(ctx, server.URL())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	err = conn.Send(ctx, wire.Request{Type: wire.TypeReq, Sub: "1", Filters: []nostr.Filter{{Kinds: []int{1621}}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for {
		m, err := conn.Receive(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		if m.Type == wire.TypeEOSE {
			break
		}
		if m.Type == wire.TypeEvent {
			fmt.Println(m.Event.Tags.Find("subject"))
		}
	}
	// Output: [subject it works]
}
