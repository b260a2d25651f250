package plan

import (
	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// authorSet contains authors of stored events. Each pass requests the deletions of some authors.
type authorSet struct {
	list []graspsync.PubKey
	set  map[graspsync.PubKey]struct{}
}

type deletionsState struct {
	at, asked int
}

func (in Authors) apply(p *Plan) {
	a, dropped := &p.authors, 0
	for _, key := range in {
		if _, ok := a.set[key]; ok {
			continue
		}
		if len(a.list) >= p.cfg.MaxAuthors {
			dropped++
			i := p.rng.IntN(len(a.list)) // otherwise the first authors would exclude later ones
			delete(a.set, a.list[i])
			a.list[i] = key
		} else {
			a.list = append(a.list, key)
		}
		a.set[key] = struct{}{}
	}
	p.dropped("authors", dropped)
	for _, r := range sortedBy(p.connected, byName) {
		p.markDirty(r)
	}
}

func (p *Plan) startDeletions(r *relayState) bool {
	s, authors := &r.deletions, p.authors.list
	n := min(len(authors), p.cfg.AuthorsPerPass) - s.asked
	if n <= 0 || r.busy() || r.pending.waiting(Deletions) > 0 {
		return false
	}
	keys := make([]graspsync.PubKey, n)
	for i := range keys {
		if s.at >= len(authors) {
			s.at = 0
		}
		keys[i] = authors[s.at]
		s.at++
	}
	s.asked += n
	b := &batch{Batch: Batch{Kind: Deletions}}
	for _, f := range filters.Deletions(keys) {
		b.Queries = append(b.Queries, Query{Filter: f})
	}
	p.begin(r, b)
	return true
}
