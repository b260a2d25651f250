package sync_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// relayOnly is GRASPPolicy for a relay without git data: an announcement need not list a clone URL
// of this service. GRASPPolicy does not call methods of the embedding type, so both Lists and Judge
// are overridden.
type relayOnly struct {
	relaysync.Policy
	identity nip34.Identity
}

// Lists implements [relaysync.Policy].
func (p relayOnly) Lists(a *nip34.Announcement) bool {
	return slices.ContainsFunc(a.Relays, p.identity.IsRelay)
}

// Judge implements [relaysync.Policy].
func (p relayOnly) Judge(
	ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View,
) (graspsync.Verdict, error) {
	mayCome := src.Kind == graspsync.Direct || !nip34.IsProtected(ev.Event)
	if a, err := nip34.ParseAnnouncement(ev); err == nil && p.Lists(a) && mayCome {
		return graspsync.Verdict{Decision: graspsync.Accept}, nil
	}
	return p.Policy.Judge(ctx, ev, src, view)
}

// A relay that hosts no git data follows the repositories that list it as a relay.
func ExamplePolicy_relayOnly() {
	identity, err := nip34.ParseIdentity("relay.example")
	if err != nil {
		panic(err)
	}
	hub, err := graspsync.ParseRelayURL("wss://hub.example")
	if err != nil {
		panic(err)
	}
	alice, bob := relaytest.NewKey("alice"), relaytest.NewKey("bob")
	repo := alice.Ref("repo")
	network := relaytest.NewNetwork()
	network.Add(hub.String(), relaytest.Behavior{}).Publish(
		alice.Announcement(1_700_000_000, "repo", []string{hub.String(), "wss://relay.example"}, []string{"https://git.example/repo.git"}),
		alice.State(1_700_000_001, "repo", map[string]string{"refs/heads/main": strings.Repeat("1", 40)}, "main"),
		bob.Issue(1_700_000_002, repo, "it works"),
	)
	stored := make(chan int, 3)
	store := memstore.New()
	manager, err := relaysync.New(store, network, identity, relaysync.Config{
		Policy:      relayOnly{relaysync.NewGRASPPolicy(identity), identity},
		Bootstrap:   []graspsync.RelayURL{hub},
		BatchWindow: 10 * time.Millisecond,
		Observe: func(o relaysync.Observation) {
			if o.Is == relaysync.IsStored {
				stored <- o.Event.Kind
			}
		},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- manager.Run(ctx) }()
	kinds := []int{<-stored, <-stored, <-stored}
	cancel()
	<-ended
	slices.Sort(kinds)
	fmt.Println(kinds)
	// Output:
	// [1621 30617 30618]
}
