package khatruadapter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore/slicestore"
	"fiatjaf.com/nostr/khatru"
	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	khatruadapter "github.com/graspsync/graspsync/adapter/nostrlib/khatru"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Another relay has a repository that lists our relay, and an issue of it. Our relay starts empty,
// knows the URL of the other relay, and has both events a moment later.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(err)
		return l
	}
	theirs, ours := listen(), listen()
	name := ours.Addr().String()

	// The other relay.
	other, has := khatru.NewRelay(), &slicestore.SliceStore{}
	check(has.Init())
	other.Negentropy = true
	other.UseEventstore(has, 500)
	defer other.DisableExpirationManager()
	otherServer := &http.Server{Handler: other, ReadHeaderTimeout: time.Minute}
	defer otherServer.Close()

	alice := relaytest.NewKey("alice")
	now := gonostr.Now()
	for _, e := range []*gonostr.Event{
		alice.Announcement(now, "repo", []string{"ws://" + name, "ws://" + theirs.Addr().String()}, []string{"http://" + name + "/" + alice.Npub() + "/repo.git"}),
		alice.Issue(now, alice.Ref("repo"), "it does not start"),
	} {
		parsed, err := graspsync.ParseEvent(e)
		check(err)
		event, err := nostrlib.ToEvent(parsed)
		check(err)
		check(has.SaveEvent(event))
	}
	go otherServer.Serve(theirs)

	// Our relay.
	relay, db := khatru.NewRelay(), &slicestore.SliceStore{}
	check(db.Init())
	saved := make(chan nostr.Kind, 2)
	relay.OnEventSaved = func(ctx context.Context, e nostr.Event) {
		if khatruadapter.IsSynced(ctx) {
			saved <- e.Kind
		}
	}
	identity, err := nip34.ParseIdentity(name)
	check(err)
	first, err := graspsync.ParseRelayURL("ws://" + theirs.Addr().String())
	check(err)
	syncer, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{
		ApplyPolicyToClients: true,
		Egress:               egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		Sync: relaysync.Config{
			AllowPlaintext: true, Bootstrap: []graspsync.RelayURL{first},
			BatchWindow: time.Millisecond,
		},
	})
	check(err)
	server := &http.Server{Handler: relay, ReadHeaderTimeout: time.Minute}
	defer server.Close()
	go server.Serve(ours)
	done := make(chan error)
	go func() { done <- syncer.Run(ctx) }()

	fmt.Println(uint16(<-saved), uint16(<-saved))
	cancel()
	fmt.Println(errors.Is(<-done, context.Canceled), syncer.Close())
	// Output:
	// 30617 1621
	// true <nil>
}
