package session

import (
	"cmp"
	"slices"

	"github.com/graspsync/graspsync"
)

// maxBarren is the number of consecutive requests by id without an event after which the relay is
// not asked for the other ids.
const maxBarren = 8

// wanted contains the ids that a query requests. Missing events are requested again once. Some
// relays return nothing for too many ids, so an empty answer halves the number of ids.
type wanted struct {
	todo     []graspsync.EventID
	open     int
	chunk    int // maximum ids per request, 0: the limit of the relay
	again    []graspsync.EventID
	second   bool
	unserved []graspsync.EventID
	more     int
	came     int
	barren   int
}

func (w *wanted) atOnce(most int) int {
	if w.chunk > 0 && w.came == 0 {
		return 1
	}
	return most
}

func (w *wanted) next(size int) []graspsync.EventID {
	if w.chunk > 0 {
		size = min(size, w.chunk)
	}
	ids := w.todo[:min(size, len(w.todo))]
	w.todo = w.todo[len(ids):]
	w.open++
	return ids
}

// putBack takes back the ids of a request that must be sent in another form.
func (w *wanted) putBack(x *request) {
	w.open--
	w.todo = append(x.left(), w.todo...)
}

// took records the end of a request. It returns a new maximum of ids per request, or 0.
func (w *wanted) took(x *request) (limit int) {
	w.open--
	left := x.left()
	got := x.asked - len(left)
	w.came += got
	if w.barren++; got > 0 {
		w.barren, limit = 0, w.chunk
	}
	switch small := x.asked <= leastPage; {
	case small && w.barren >= maxBarren:
		w.unserved = slices.Concat(w.unserved, w.again, left, w.todo)
		w.todo, w.again = nil, nil
	case got == 0 && !small, got < x.asked/2 && x.asked > 2*leastPage: // the relay may limit the number of ids
		size := max(leastPage, got)
		if got == 0 {
			size = max(leastPage, x.asked/2)
		}
		w.chunk = min(size, cmp.Or(w.chunk, size))
		w.todo = append(slices.Clip(w.todo), left...)
		if got > 0 {
			limit = w.chunk
		}
	case !w.second:
		w.again = append(w.again, left...)
	default:
		w.unserved = append(w.unserved, left...)
	}
	return limit
}

func (w *wanted) missing() []graspsync.EventID {
	ids := w.unserved
	w.unserved = nil
	slices.SortFunc(ids, graspsync.EventID.Compare)
	return ids
}
