package session

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

const maxBarren = 8 // consecutive requests by id without an event

// wanted contains the ids of events that a query requests by id.
//
// Missing events are requested once more, in smaller requests. Some relays return nothing for too
// many ids. So while no event arrives, a few ids are requested alone, half as many each time. The
// size that brings an event applies to the others.
type wanted struct {
	todo     []graspsync.EventID // ids to request
	open     int                 // open requests
	barren   int                 // consecutive requests that returned nothing
	unserved []graspsync.EventID // ids that did not arrive
	more     int                 // ids not requested because many others did not arrive
	retried  bool                // the second attempt has started
	came     int
	size     int                 // ids in the largest request of this attempt
	few      int                 // maximum ids per request, 0: the relay's limit
	held     []graspsync.EventID // ids that wait for these few
}

func (w *wanted) ask(ids []graspsync.EventID) { w.todo, w.barren, w.size = ids, 0, 0 }

// next returns the ids of the next request. The second attempt uses smaller requests.
func (w *wanted) next(size int) []graspsync.EventID {
	switch {
	case w.few > 0:
		size = min(size, w.few)
	case w.retried && size > 2*leastPage:
		size /= 2
	}
	ids := w.todo[:min(size, len(w.todo))]
	w.todo = w.todo[len(ids):]
	w.open++
	w.size = max(w.size, len(ids))
	return ids
}

// again takes back the ids of a request that must be sent in another form.
func (w *wanted) again(x *request) {
	w.open--
	w.todo = append(x.left(), w.todo...)
}

// took records the end of a request. If fewer than half of its events arrived, limit is their
// number, because the relay may limit the number of ids. Otherwise limit is 0.
func (w *wanted) took(x *request) (limit int) {
	w.open--
	left := x.left()
	got := x.asked - len(left)
	w.came += got
	if got > 0 && got < x.asked/2 && x.asked > 2*leastPage {
		limit = max(leastPage, got)
		w.todo = append(slices.Clip(w.todo), left...)
	} else {
		w.unserved = append(w.unserved, left...)
	}
	if w.barren++; got > 0 {
		w.barren = 0
	}
	if w.barren >= maxBarren {
		// The relay invented the ids or does not serve events now.
		w.unserved = append(w.unserved, w.todo...)
		w.todo, w.retried = nil, true
	}
	return limit
}

// retry returns the ids to request again after all requests ended. limit is a newly found maximum
// of ids per request, or 0.
func (w *wanted) retry() (ids []graspsync.EventID, limit int) {
	switch {
	case w.came > 0 && len(w.held) > 0:
		ids, limit, w.held = w.held, w.few, nil
	case len(w.unserved) > 0 && !w.retried:
		ids, w.retried = w.missing(), true
	case w.came == 0 && w.size > leastPage:
		ids = append(w.missing(), w.held...)
		w.few = max(leastPage, w.size/2)
		ids, w.held = ids[:w.few:w.few], ids[w.few:]
	default:
		w.unserved, w.held = append(w.unserved, w.held...), nil
	}
	return ids, limit
}

func (w *wanted) missing() []graspsync.EventID {
	ids := w.unserved
	w.unserved = nil
	slices.SortFunc(ids, graspsync.EventID.Compare)
	return ids
}

// unservedIDs are ids that the relay announced by NIP-77 and did not serve, so that pages were
// requested. If one of these events arrives by page, the relay cannot serve by id. If none arrives,
// the relay invented the ids, and they cause no further requests for pages. The zero value is
// empty.
type unservedIDs struct {
	ids   map[graspsync.EventID]struct{}
	since time.Time
}

// maxUnservedIDs is the maximum number of ids. A relay that announces more may invent new ids each
// time. Then no further pages are requested for this reason until its limits expire.
const maxUnservedIDs = 1_000

// add stores ids while there is room and reports whether an id is new.
func (p *unservedIDs) add(ids []graspsync.EventID, now time.Time) (news bool) {
	if len(p.ids) >= maxUnservedIDs && now.Sub(p.since) >= relaylimits.Believed {
		p.ids = nil
	}
	if p.ids == nil {
		p.ids, p.since = make(map[graspsync.EventID]struct{}), now
	}
	for _, id := range ids {
		if len(p.ids) >= maxUnservedIDs {
			break
		}
		if !p.has(id) {
			p.ids[id] = struct{}{}
			news = true
		}
	}
	return news
}

func (p *unservedIDs) has(id graspsync.EventID) bool {
	_, ok := p.ids[id]
	return ok
}
