package sync_test

import (
	"context"
	"fmt"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// blockList is a GRASPPolicy that rejects events of listed authors. Their deletions are still
// accepted, because they may concern events stored before the author was listed.
type blockList struct {
	relaysync.Policy
	authors map[graspsync.PubKey]bool
}

// Lists implements [relaysync.Policy].
func (p blockList) Lists(a *nip34.Announcement) bool {
	return !p.authors[a.Ref.Owner] && p.Policy.Lists(a)
}

// Judge implements [relaysync.Policy].
func (p blockList) Judge(
	ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View,
) (graspsync.Verdict, error) {
	if p.authors[ev.PubKey] && ev.Kind != graspsync.KindDeletion && ev.Kind != graspsync.KindVanish {
		return graspsync.Verdict{Decision: graspsync.Reject, Reason: "blocked: you are on the list"}, nil
	}
	return p.Policy.Judge(ctx, ev, src, view)
}

// A block list around the policy of a GRASP server.
func ExamplePolicy_blockList() {
	identity, err := nip34.ParseIdentity("grasp.example")
	if err != nil {
		panic(err)
	}
	alice, mallory := relaytest.NewKey("alice"), relaytest.NewKey("mallory")
	var policy relaysync.Policy = blockList{
		Policy: relaysync.NewGRASPPolicy(identity), authors: map[graspsync.PubKey]bool{mallory.PubKey(): true},
	}
	for _, key := range []*relaytest.Key{alice, mallory} {
		announcement, err := graspsync.ParseEvent(key.Hosted(1_700_000_000, "repo", "wss://grasp.example"))
		if err != nil {
			panic(err)
		}
		verdict, err := policy.Judge(context.Background(), announcement, graspsync.Source{}, nil)
		fmt.Println(verdict.Decision == graspsync.Accept, verdict.Reason, err)
	}
	// Output:
	// true  <nil>
	// false blocked: you are on the list <nil>
}
