package nip34_test

import (
	"fmt"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Read whether an announcement lists this server, and which other relays it lists.
func ExampleParseAnnouncement() {
	us, err := nip34.ParseIdentity("grasp.example")
	if err != nil {
		fmt.Println(err)
		return
	}
	alice := relaytest.NewKey("alice")
	ev, err := graspsync.ParseEvent(alice.Hosted(1_700_000_000, "repo", "grasp.example", "other.example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := nip34.ParseAnnouncement(ev)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(a.Ref.Identifier, us.Lists(a))
	for _, relay := range a.Relays {
		fmt.Println(relay, us.IsRelay(relay))
	}
	// Output:
	// repo true
	// wss://grasp.example true
	// wss://other.example false
}

// The owner lists a maintainer, who becomes a member by an announcement that lists the owner.
func ExampleMembership() {
	alice, bob := relaytest.NewKey("alice"), relaytest.NewKey("bob")
	announce := func(key, other *relaytest.Key) *nip34.Announcement {
		ev, err := graspsync.ParseEvent(key.Announcement(1_700_000_000, "repo", nil, nil, other))
		if err != nil {
			panic(err)
		}
		a, err := nip34.ParseAnnouncement(ev)
		if err != nil {
			panic(err)
		}
		return a
	}
	listed, agrees := announce(alice, bob), announce(bob, alice)
	var rule nip34.Membership
	for _, all := range [][]*nip34.Announcement{{listed}, {listed, agrees}} {
		fmt.Println(rule.AnnouncementSet("repo", all).Authority(alice.Ref("repo")).Has(bob.PubKey()))
	}
	// Output:
	// false
	// true
}
