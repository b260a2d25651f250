package storetest

import (
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/nip34"
)

const kindVanish = 62

// vanish returns a request to vanish from all relays, which every Store executes.
func (g *gen) vanish(author string, at nostr.Timestamp) *nostr.Event {
	return g.event(author, kindVanish, at, nostr.Tag{"relay", "ALL_RELAYS"})
}

func checkVanish(s *subject) error {
	a, b, d := s.key(), s.key(), nostr.Tag{"d", "repo"}
	early, late := s.event(a, kindIssue, start), s.event(a, 1, start+6)
	theirs := s.event(b, 1, start)
	ann, profile := s.event(a, kindAnnouncement, start+5, d), s.event(a, 0, start+1)
	deletion := s.deletion(a, start+4, early.ID)
	request := s.vanish(a, start+5)
	elsewhere := s.event(b, kindVanish, start+9, nostr.Tag{"relay", "wss://elsewhere.example"}, nostr.Tag{"relay"}, nostr.Tag{"r", "ALL_RELAYS"})
	return s.play(
		step{early, stored}, step{late, stored}, step{theirs, stored}, step{ann, stored}, step{profile, stored},
		step{s.deletion(a, start+4, s.hex(32)), stored}, step{deletion, stored},
		step{elsewhere, stored}, step{theirs, duplicate}, // names another relay
		step{request, stored}, step{request, duplicate}, step{late, duplicate},
		step{early, deleted}, step{ann, deleted}, step{profile, deleted}, step{deletion, deleted},
		step{s.event(a, 1, start+5), deleted}, step{s.event(a, kindAnnouncement, start+6, d), stored},
		step{s.deletion(a, start+7, request.ID), stored}, step{request, duplicate}, // a request to vanish cannot be deleted
		step{s.vanish(a, start+1), stored}, step{s.event(a, 1, start+3), deleted},
		step{s.vanish(a, start+8), stored}, step{request, duplicate}, step{late, deleted})
}

// checkVanishHere saves requests that name the service, and one that names another.
func checkVanishHere(s *subject, us nip34.Identity) error {
	a, b := s.key(), s.key()
	name := func(author, relay string) *nostr.Event {
		return s.event(author, kindVanish, start+5, nostr.Tag{"relay", relay})
	}
	gone, late, stays := s.event(a, 1, start), s.event(a, 1, start+6), s.event(b, 1, start)
	for _, st := range []step{
		{gone, stored}, {late, stored}, {stays, stored},
		{name(a, us.RelayURL()), stored}, {name(b, "wss://elsewhere.example"), stored},
		{gone, deleted}, {late, duplicate}, {stays, duplicate}, {s.event(a, 1, start+4), deleted}, {s.event(b, 1, start+4), stored},
	} {
		if err := s.save(st.event, st.want); err != nil {
			return fmt.Errorf("where %s is this service: %w", us.RelayURL(), err)
		}
	}
	return s.deleted(gone, true)
}

// checkVanishOrder checks that the content does not depend on the time at which a request arrives.
func checkVanishOrder(s *subject) error {
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
