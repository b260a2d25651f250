package batchverify_test

import (
	"errors"
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/batchverify"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A bad signature among good ones gets its own verdict. The ids must be verified before.
func ExampleVerifier() {
	alice := relaytest.NewKey("alice")
	var events []*nostr.Event
	for i := range 10 {
		events = append(events, alice.Issue(nostr.Timestamp(100+i), alice.Ref("repo"), fmt.Sprint("issue ", i)))
	}
	events[3].Sig = events[4].Sig
	for i, err := range batchverify.New().Verify(events) {
		if err != nil {
			fmt.Println(i, errors.Is(err, batchverify.ErrSignature))
		}
	}
	// Output: 3 true
}
