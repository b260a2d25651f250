package sync_test

import (
	"context"
	"fmt"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// allowList is GRASPPolicy for the repositories of some people. What it does not change it has
// from the policy that it embeds: whose word counts there is told as before.
type allowList struct {
	relaysync.Policy
	owners map[graspsync.PubKey]bool
}

// Lists implements [relaysync.Policy].
func (p allowList) Lists(a *nip34.Announcement) bool {
	return p.owners[a.Ref.Owner] && p.Policy.Lists(a)
}

// Judge implements [relaysync.Policy].
func (p allowList) Judge(
	ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View,
) (graspsync.Verdict, error) {
	if a, err := nip34.ParseAnnouncement(ev); err == nil && p.Policy.Lists(a) && !p.Lists(a) {
		return graspsync.Verdict{Decision: graspsync.Reject, Reason: "blocked: not on the list"}, nil
	}
	return p.Policy.Judge(ctx, ev, src, view)
}

// An allow list around the policy of a GRASP server.
func ExamplePolicy() {
	identity, err := nip34.ParseIdentity("grasp.example")
	if err != nil {
		panic(err)
	}
	alice, mallory := relaytest.NewKey("alice"), relaytest.NewKey("mallory")
	var policy relaysync.Policy = allowList{
		Policy: relaysync.NewGRASPPolicy(identity), owners: map[graspsync.PubKey]bool{alice.PubKey(): true},
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
	// false blocked: not on the list <nil>
}
