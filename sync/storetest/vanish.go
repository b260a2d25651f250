package storetest

import (
	"context"
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

const kindVanish = 62

// vanish returns a request to vanish from all relays, which every Store executes.
func (g *gen) vanish(author string, at nostr.Timestamp) *nostr.Event {
	return g.event(author, kindVanish, at, nostr.Tag{"relay", "ALL_RELAYS"})
}

func checkVanish(ctx context.Context, store relaysync.Store) error {
	g := newGen(12)
	a, b, d := g.key(), g.key(), nostr.Tag{"d", "repo"}
	early, late := g.event(a, kindIssue, start), g.event(a, 1, start+6)
	theirs := g.event(b, 1, start)
	ann, profile := g.event(a, kindAnnouncement, start+5, d), g.event(a, 0, start+1)
	deletion := g.deletion(a, start+4, early.ID)
	request := g.vanish(a, start+5)
	elsewhere := g.event(b, kindVanish, start+9, nostr.Tag{"relay", "wss://elsewhere.example"}, nostr.Tag{"relay"}, nostr.Tag{"r", "ALL_RELAYS"})
	return play(ctx, store,
		step{early, stored}, step{late, stored}, step{theirs, stored}, step{ann, stored}, step{profile, stored},
		step{g.deletion(a, start+4, g.hex(32)), stored}, step{deletion, stored},
		step{elsewhere, stored}, step{theirs, duplicate}, // names another relay
		step{request, stored}, step{request, duplicate}, step{late, duplicate},
		step{early, deleted}, step{ann, deleted}, step{profile, deleted}, step{deletion, deleted},
		step{g.event(a, 1, start+5), deleted}, step{g.event(a, kindAnnouncement, start+6, d), stored},
		step{g.deletion(a, start+7, request.ID), stored}, step{request, duplicate}, // a request to vanish cannot be deleted
		step{g.vanish(a, start+1), stored}, step{g.event(a, 1, start+3), deleted},
		step{g.vanish(a, start+8), stored}, step{request, duplicate}, step{late, deleted})
}

// checkVanishHere saves requests that name the service, and one that names another.
func checkVanishHere(ctx context.Context, store relaysync.Store, us nip34.Identity) error {
	s, g := subject{store, ctx}, newGen(14)
	a, b := g.key(), g.key()
	name := func(author, relay string) *nostr.Event {
		return g.event(author, kindVanish, start+5, nostr.Tag{"relay", relay})
	}
	gone, late, stays := g.event(a, 1, start), g.event(a, 1, start+6), g.event(b, 1, start)
	for _, st := range []step{
		{gone, stored}, {late, stored}, {stays, stored},
		{name(a, us.RelayURL()), stored}, {name(b, "wss://elsewhere.example"), stored},
		{gone, deleted}, {late, duplicate}, {stays, duplicate}, {g.event(a, 1, start+4), deleted}, {g.event(b, 1, start+4), stored},
	} {
		if err := s.save(st.event, st.want); err != nil {
			return fmt.Errorf("where %s is this service: %w", us.RelayURL(), err)
		}
	}
	return s.deleted(gone, true)
}

// checkVanishOrder checks that the content does not depend on the time at which a request arrives.
func checkVanishOrder(ctx context.Context, store relaysync.Store) error {
	s := subject{store, ctx}
	for round := range uint64(40) {
		g := newGen(2000 + round)
		a, b := g.key(), g.key()
		var events []*nostr.Event
		at := func(n int) nostr.Timestamp { return start + nostr.Timestamp(n+g.IntN(4)) }
		for range 3 {
			target := g.event(a, 1, at(0))
			events = append(events, target, g.event(b, kindIssue, at(0)), g.event(a, kindAnnouncement, at(0), nostr.Tag{"d", "x"}),
				g.deletion([]string{a, b}[g.IntN(2)], at(4), target.ID))
		}
		events = append(events, g.deletion(a, at(0), address(kindAnnouncement, a, "x")),
			g.vanish(a, at(0)), g.vanish([]string{a, b}[g.IntN(2)], at(3)))
		if err := s.deliver(g, shuffled(g, events)); err != nil {
			return err
		}
		if err := s.deliver(g, shuffled(g, events)); err != nil { // some targets of deletions whose authors vanish
			return err
		}
		if err := s.holds(events, model(events)); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}
