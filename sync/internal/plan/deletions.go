package plan

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// deletions asks relays for the deletions of authors: at each pass for those of another part
// of them.
type deletions struct {
	*core
	pending *pendingSyncIndex

	authors   []graspsync.PubKey
	authorSet map[graspsync.PubKey]struct{}
	leftOut   int // authors for whom there was no room
}

// deletionsState is where a relay is in the rotation over the authors whose deletions are
// asked for.
type deletionsState struct {
	at      int
	asked   int       // of the authors, in this pass
	retryAt time.Time // asking for them failed: not before
}

func newDeletions(c *core, bs *pendingSyncIndex) *deletions {
	return &deletions{core: c, pending: bs, authorSet: make(map[graspsync.PubKey]struct{})}
}

// mostLeftOut keeps the chance of a new author from becoming too small, as a multiple of
// how many are asked about.
const mostLeftOut = 4

// add takes in authors whose deletions are to be asked for, as far as there is room.
func (dl *deletions) add(in Authors) {
	dropped := 0
	for _, a := range in {
		if _, ok := dl.authorSet[a]; ok {
			continue
		}
		if len(dl.authors) >= dl.cfg.MaxAuthors {
			dropped++
			dl.draw(a)
			continue
		}
		dl.authorSet[a] = struct{}{}
		dl.authors = append(dl.authors, a)
	}
	if dropped > 0 {
		dl.emit(Dropped{Reason: "authors", Count: dropped})
	}
}

// draw decides by lot whether an author for whom there is no room replaces another one: the
// fewer authors were left out so far, the likelier. Without the lot those who came first would
// keep all others out for ever, and that takes no more than keys.
func (dl *deletions) draw(a graspsync.PubKey) {
	most := len(dl.authors)
	dl.leftOut = min(dl.leftOut+1, mostLeftOut*most)
	if i := dl.rng.IntN(most + dl.leftOut); i < most {
		delete(dl.authorSet, dl.authors[i])
		dl.authors[i] = a
		dl.authorSet[a] = struct{}{}
	}
}

// passStarted begins to ask about the authors again.
func (dl *deletions) passStarted(r *relayState) {
	r.deletions.asked = 0
	if len(dl.authors) <= dl.cfg.AuthorsPerPass {
		r.deletions.at = 0 // all have their turn, those who come later at the end
	}
}

func (dl *deletions) due(r *relayState, now time.Time) bool {
	return !r.busy() && dl.left(r) > 0 && !now.Before(r.deletions.retryAt)
}

// left is how many authors a relay is to be asked about now. At each pass it
// is asked about a part of them, each once; the rest have their turn at a later one.
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
	r.deletions.retryAt = time.Time{}
	var qs []Query
	if qs, b.roles = dl.pending.queries(r, filters.Deletions(authors), 0, nil); len(qs) > 0 {
		dl.pending.start(r, b, qs, now)
	}
}

func (dl *deletions) done(*relayState, *batch, bool) {}

func (dl *deletions) failed(r *relayState, b *batch, _ Done, until time.Time) {
	dl.lost(r, b, nil)
	r.deletions.retryAt = until
}

// lost asks about the authors of a batch again.
func (dl *deletions) lost(r *relayState, b *batch, _ []Cursor) {
	r.deletions.asked = max(0, r.deletions.asked-b.authors)
	r.deletions.at = b.authorsAt
}
