package fieldhub

import (
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"
)

// Update is an event that is published later.
type Update struct {
	At    time.Time
	Event *nostr.Event
	// Relay is the only relay that receives Event, nil for the hub.
	Relay *Relay
}

// Live returns n events at even intervals from from to to: comments, statuses, issues, states and
// new repositories.
func (h *Hub) Live(n int, from, to time.Time) []Update {
	var all []Update
	for i := range n {
		rng := h.random("life "+from.UTC().Format(time.RFC3339), i)
		u := Update{At: from.Add(to.Sub(from) * time.Duration(i+1) / time.Duration(n+1))}
		at := nostr.Timestamp(u.At.Unix())
		author, r := h.authors[rng.IntN(len(h.authors))], h.repos[skewed(rng, len(h.repos))]
		switch k := rng.IntN(100); {
		case k < 60:
			root := h.roots[skewed(rng, len(h.roots))]
			u.Event = author.Comment(at, root, words(rng, 60))
			r = h.repositoryOf(root)
		case k < 70:
			u.Event = author.Status(at, 1630+rng.IntN(4), h.roots[rng.IntN(len(h.roots))])
			r = nil
		case k < 82:
			u.Event = author.Issue(at, r.identifier, words(rng, 40))
		case k < 99:
			u.Event = r.owner.State(at, r.name, map[string]string{"refs/heads/main": commit(rng)}, "main")
		default:
			u.Event = author.Hosted(at, fmt.Sprintf("new-%d-%d", at, i), h.cfg.Server, h.Host)
			r = nil
		}
		if r != nil && rng.IntN(20) == 0 {
			for _, rel := range r.relays {
				if rel.Answers {
					u.Relay = rel
				}
			}
		}
		all = append(all, u)
	}
	return all
}
