package plan

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// deletions requests the deletions of authors, a part of them per pass.
type deletions struct {
	*core
	pending *pendingSyncIndex

	authors   []graspsync.PubKey
	authorSet map[graspsync.PubKey]struct{}
}

type deletionsState struct {
	at, asked int
}

func newDeletions(c *core, bs *pendingSyncIndex) *deletions {
	return &deletions{core: c, pending: bs, authorSet: make(map[graspsync.PubKey]struct{})}
}

func (dl *deletions) add(in Authors) {
	dropped := 0
	for _, a := range in {
		if _, ok := dl.authorSet[a]; ok {
			continue
		}
		if len(dl.authors) >= dl.cfg.MaxAuthors {
			dropped++
			i := dl.rng.IntN(len(dl.authors)) // otherwise the first authors would exclude later ones
			delete(dl.authorSet, dl.authors[i])
			dl.authors[i] = a
		} else {
			dl.authors = append(dl.authors, a)
		}
		dl.authorSet[a] = struct{}{}
	}
	if dropped > 0 {
		dl.emit(Dropped{Reason: "authors", Count: dropped})
	}
}

func (dl *deletions) passStarted(r *relayState) {
	r.deletions.asked = 0
	if len(dl.authors) <= dl.cfg.AuthorsPerPass {
		r.deletions.at = 0 // every author has a turn, new ones last
	}
}

func (dl *deletions) due(r *relayState, _ time.Time) bool {
	return !r.busy() && dl.left(r) > 0 && !r.pending.parks(dl)
}

func (dl *deletions) left(r *relayState) int {
	return min(len(dl.authors)-r.deletions.asked, dl.cfg.AuthorsPerPass-r.deletions.asked)
}

func (dl *deletions) start(r *relayState, now time.Time) {
	n := dl.left(r)
	b := &batch{of: dl, kind: Deletions, authors: n, authorsAt: r.deletions.at}
	authors := make([]graspsync.PubKey, n)
	for i := range authors {
		if r.deletions.at >= len(dl.authors) {
			r.deletions.at = 0
		}
		authors[i] = dl.authors[r.deletions.at]
		r.deletions.at++
	}
	r.deletions.asked += n
	if qs := dl.pending.queries(r, filters.Deletions(authors), 0, nil); len(qs) > 0 {
		dl.pending.start(r, b, qs, now)
	}
}

func (dl *deletions) done(*relayState, *batch) {}

func (dl *deletions) failed(r *relayState, b *batch, _ Done) {
	r.deletions.asked = max(0, r.deletions.asked-b.authors)
	r.deletions.at = b.authorsAt
}
