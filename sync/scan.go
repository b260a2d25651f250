package sync

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// readable is whether the Store was read once.
type readable struct {
	once atomic.Bool
	done chan struct{} // closed then
}

func newReadable() *readable { return &readable{done: make(chan struct{})} }

func (r *readable) is() bool { return r.once.Load() }

// set takes note that it was. It is true for the first time.
func (r *readable) set() (first bool) {
	if first = !r.once.Swap(true); first {
		close(r.done)
	}
	return first
}

// scanner reads what is stored, beside the loop, which it tells of that.
type scanner struct {
	cfg      *Config // read-only
	identity nip34.Identity
	index    *index
	reader   storeReader
	feed     *feed
	ingest   *ingest
	report   *report
	readable *readable
	inbox    *mailbox[any] // of the loop
}

// scan reads all there is, and makes the index that.
func (x *scanner) scan(ctx context.Context) {
	first, waited := !x.readable.is(), make(map[pending.Key]struct{})
	// What begins to wait from now on finds what is here once the index has it.
	recalls := first && !x.ingest.absences.rejected.Idle()
	authors := writers{most: x.cfg.fixed.MaxAuthors}
	announcements := 0
	snap, missed, err := x.reader.scan(ctx, func(ev graspsync.Event) {
		if reason, _ := x.cfg.blocks(ev); ev.Kind == graspsync.KindAnnouncement && reason == "" {
			announcements++
		}
		authors.add(ev)
		if recalls {
			x.ingest.absences.awaited(ev, waited)
		}
	})
	if err != nil {
		x.inbox.put(scanned{err: err})
		return
	}
	if missed != nil {
		x.report.drop("scans", 1)
		x.cfg.Logger.Warn("not all that is stored could be read", keyErr, missed)
	}
	x.inbox.put(planInput{plan.Authors(authors.sorted())})
	change, ok := x.feed.replaceAll(snap)
	if !ok {
		x.inbox.put(scanned{err: errScanOvertaken})
		return
	}
	if x.readable.set() {
		if announcements > 0 && x.index.announcedRepos() == 0 {
			x.cfg.Logger.Warn("announcements are stored, and none lists us: is this our domain?",
				"announcements", announcements, "us", x.identity.String())
		}
	}
	x.inbox.put(scanned{})
	// What is asked for is asked of relays, which the plan knows from now on.
	if first {
		x.ingest.recalled(waited)
	}
	x.ingest.discovered(change)
}

// descend looks for what descends from repositories; nil: all.
func (x *scanner) descend(ctx context.Context, of map[graspsync.RepoRef]struct{}) {
	err := func() (err error) {
		defer x.report.recovered(&err, "store")
		return x.reader.descend(ctx, of, x.feed.descends)
	}()
	x.inbox.put(descended{of, err})
}

var errScanOvertaken = errors.New("too much changed while the store was read")

// writers is who wrote what we store: their deletions are asked for.
// Where there are too many it is a sample, another one at each scan, in which who has
// written more is more likely to be.
type writers struct {
	most    int
	seen    map[graspsync.PubKey]struct{}
	keys    []graspsync.PubKey // those seen, in any order
	leftOut int
}

func (w *writers) add(ev graspsync.Event) {
	a := ev.PubKey
	if _, known := w.seen[a]; known {
		return
	}
	if len(w.keys) < w.most {
		w.keys = append(w.keys, a)
		lazy.Put(&w.seen, a, struct{}{})
		return
	}
	w.leftOut++
	if i := rand.IntN(w.most + w.leftOut); i < w.most {
		delete(w.seen, w.keys[i])
		w.keys[i] = a
		lazy.Put(&w.seen, a, struct{}{})
	}
}

func (w *writers) sorted() []graspsync.PubKey {
	return slices.SortedFunc(maps.Keys(w.seen), graspsync.PubKey.Compare)
}
