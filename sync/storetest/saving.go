package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// checkBatch saves no events, and events that were not parsed.
func checkBatch(s *subject) error {
	if err := s.save(); err != nil {
		return err
	}
	for _, none := range []graspsync.Event{{}, {Event: s.event(s.key(), 1, start)}} {
		got, err := s.Save(s.ctx, []graspsync.Incoming{{Event: none}})
		if err != nil || len(got) != 1 || got[0].Result != graspsync.Refused || !errors.Is(got[0].Err, graspsync.ErrEvent) {
			return fmt.Errorf("Save of an event that was not parsed: %v, %w", got, err)
		}
	}
	return nil
}

// histories saves generated events in several random orders, some again, and compares each outcome
// and then the content with the model. Each round has new authors, so one Store is enough.
func histories(rounds int, generate func(s *subject) []*nostr.Event) func(s *subject) error {
	return func(s *subject) error {
		for round := range rounds {
			s.gen, s.model = newGen(uint64(100+round)), model{here: s.here}
			events := generate(s)
			for range 1 + round%3 {
				for _, batch := range s.batches(events) {
					if err := s.save(batch...); err != nil {
						return fmt.Errorf("round %d: %w", round, err)
					}
				}
			}
			if err := s.holds(); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		return nil
	}
}

// batches returns events in random order, some of them twice, in batches of one to five.
func (g *gen) batches(events []*nostr.Event) (batches [][]*nostr.Event) {
	all := slices.Clone(events)
	for range 5 {
		all = append(all, pick(g, events))
	}
	g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for len(all) > 0 {
		n := min(1+g.IntN(5), len(all))
		batches, all = append(batches, all[:n]), all[n:]
	}
	return batches
}

// versions returns versions of addresses, many of them equally old, and ephemeral events.
func versions(s *subject) (events []*nostr.Event) {
	authors := s.keys(2)
	for _, kind := range []int{0, 3, 10002, 19999, 20000, 29999, 30000, kindAnnouncement, 30618, 39999} {
		for range 5 {
			events = append(events, s.event(pick(s.gen, authors), kind, s.time(2), nostr.Tag{"d", "repo"}))
		}
	}
	return events
}

// identifiers returns two versions for each of many similar identifiers.
func identifiers(s *subject) (events []*nostr.Event) {
	sets := []nostr.Tags{
		{}, {{"d"}}, {{"d", ""}}, {{"d", "", "x"}, {"d", "y"}}, // four times the empty identifier
		{{"d", "first"}, {"d", "second"}}, {{"d", "second"}, {"d", "first"}}, {{"e"}, {"d", "with"}, {"d"}},
	}
	for _, id := range similar("repo") {
		sets = append(sets, nostr.Tags{{"d", id}})
	}
	a := s.key()
	for _, tags := range sets {
		events = append(events, s.event(a, kindAnnouncement, start, tags...), s.event(a, kindAnnouncement, start+1, tags...))
	}
	return events
}

// deletions returns events of an author, and of another author who interferes, with deletions of
// addresses, of ids of regular events, and of other deletions.
func deletions(s *subject) []*nostr.Event { return s.deletions(false) }

// deletedVersions also deletes versions by their ids. Older versions are deleted too, so that no
// relay can replace the deleted version by an old one.
func deletedVersions(s *subject) []*nostr.Event { return s.deletions(true) }

func (g *gen) deletions(versionsByID bool) []*nostr.Event {
	a, b := g.key(), g.key()
	author := func() string { return pick(g, []string{a, a, a, b}) }
	id := pick(g, []string{"repo", "a:b", ":", "", strings.Repeat("long", 40)})
	kinds := []int{0, 10002, kindAnnouncement, 30618}
	var events []*nostr.Event
	for _, kind := range []int{1, kindIssue, kindComment, 1985} {
		for range 2 {
			events = append(events, g.event(author(), kind, g.time(6), nostr.Tag{"K", "1621"}))
		}
	}
	named := slices.Clone(events)
	for range 12 {
		d := nostr.Tag{"d", id + pick(g, []string{"", "", "", "x"})}
		events = append(events, g.event(author(), pick(g, kinds), g.time(6), d))
	}
	if versionsByID {
		named = slices.Clone(events)
	}
	for range 6 {
		var names []string
		for range 1 + g.IntN(2) {
			names = append(names, pick(g, named).ID, pick(g, []string{
				address(pick(g, kinds[:2]), a, ""), address(pick(g, kinds[2:]), a, id), address(nostr.KindDeletion, a, ""),
				"nonsense", strings.ToUpper(pick(g, named).ID),
			}))
		}
		deletion := g.deletion(author(), g.time(6), names[g.IntN(2):]...)
		events, named = append(events, deletion), append(named, deletion)
	}
	return events
}

// vanishing returns events and deletions of authors with requests to vanish, some of which name
// another relay.
func vanishing(s *subject) []*nostr.Event {
	events := s.deletions(false)
	first := slices.IndexFunc(events, func(e *nostr.Event) bool { return e.PubKey != events[0].PubKey })
	authors := []string{events[0].PubKey, events[max(first, 0)].PubKey}
	relays := []string{allRelays, allRelays, "wss://elsewhere.example"}
	if s.here != "" {
		relays[0] = s.here
	}
	for range 3 {
		author := pick(s.gen, authors)
		request := s.vanish(author, s.time(5), pick(s.gen, relays))
		events = append(events, request, s.deletion(author, s.time(9), request.ID)) // which cannot be deleted
	}
	return events
}

// checkVanishHere saves requests that name the service.
func checkVanishHere(s *subject, us nip34.Identity) error {
	s.here = us.RelayURL()
	if err := histories(20, vanishing)(s); err != nil {
		return fmt.Errorf("where %s is this service: %w", us.RelayURL(), err)
	}
	return nil
}
