package wire_test

import (
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// What a client sends.
func ExampleAppend() {
	text, err := wire.Append(nil, wire.Request{
		Type: wire.TypeReq, Sub: "1", Filters: []nostr.Filter{{Kinds: []int{graspsync.KindIssue}, Limit: 2}},
	})
	fmt.Println(string(text), err)
	// Output: ["REQ","1",{"kinds":[1621],"limit":2}] <nil>
}

// What relays say, and what they mean by it.
func ExampleParse() {
	for _, text := range []string{
		`["EOSE","1"]`,
		`["CLOSED","1","rate-limited: slow down"]`,
		`["EVENT","1",{"id":"none"}]`,
	} {
		m, err := wire.Parse([]byte(text))
		switch {
		case err != nil:
			fmt.Println(err)
		case m.Type == wire.TypeClosed:
			fmt.Println(m.Sub, wire.Classify(m.Text))
		case m.Type == wire.TypeEOSE:
			fmt.Println(m.Sub, "all stored events were sent")
		}
	}
	// Output:
	// 1 all stored events were sent
	// 1 rate limited
	// malformed message: event lacks pubkey, at byte 26 of 27
}
