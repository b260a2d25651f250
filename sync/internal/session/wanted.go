package session

import (
	"slices"

	"github.com/graspsync/graspsync"
)

const maxBarren = 8 // requests by id in a row that bring nothing

// wanted are the events that a query asks for by their ids, in requests for some at a time.
type wanted struct {
	todo     []graspsync.EventID // to be asked for
	open     int                 // requests that have not ended
	barren   int                 // that brought nothing, in a row
	unserved []graspsync.EventID // that did not come
	retried  bool                // those that did not come are asked for once more
	came     int
}

// ask adds events.
func (w *wanted) ask(ids []graspsync.EventID) { w.todo, w.barren = ids, 0 }

// next returns the ids of the next request. What was asked for once already goes into
// smaller ones.
func (w *wanted) next(size int) []graspsync.EventID {
	if w.retried && size > 2*leastPage {
		size /= 2
	}
	ids := w.todo[:min(size, len(w.todo))]
	w.todo = w.todo[len(ids):]
	w.open++
	return ids
}

// again takes a request back whose ids are to be asked for in another form.
func (w *wanted) again(x *request) {
	w.open--
	w.todo = append(x.left(), w.todo...)
}

// took takes in the end of a request. If fewer than half of its events came, the relay has a
// cap: it is how many of them came, else 0.
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
	w.barren++
	if got > 0 {
		w.barren = 0
	}
	if w.barren >= maxBarren {
		// They were made up, or the relay is not in the mood.
		w.unserved = append(w.unserved, w.todo...)
		w.todo, w.retried = nil, true
	}
	return limit
}

// retry returns, once, what did not come.
func (w *wanted) retry() []graspsync.EventID {
	if w.retried || len(w.unserved) == 0 {
		return nil
	}
	w.retried = true
	return w.missing()
}

// missing returns what did not come, and forgets it.
func (w *wanted) missing() []graspsync.EventID {
	ids := w.unserved
	w.unserved = nil
	slices.SortFunc(ids, graspsync.EventID.Compare)
	return ids
}
