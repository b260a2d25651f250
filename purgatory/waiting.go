package purgatory

import (
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// AllAnnouncements returns all announcements that wait and have not expired, in order
// of their repositories.
func (p *Purgatory) AllAnnouncements() (out []*nip34.Announcement) {
	p.mu.Lock()
	all := p.ledger.All()
	p.mu.Unlock()
	for _, e := range all {
		if e.Class == ledger.Announcement && !e.Soft {
			out = append(out, e.Announces)
		}
	}
	slices.SortFunc(out, func(a, b *nip34.Announcement) int { return graspsync.RepoRef.Compare(a.Ref, b.Ref) })
	return out
}
