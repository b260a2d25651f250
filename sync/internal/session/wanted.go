package session

import (
	"slices"

	"github.com/graspsync/graspsync"
)

const maxBarren = 8 // requests by id in a row that bring nothing

// wanted are the events that a query asks for by their ids, in requests for some at a time.
//
// What does not come is asked for once more, in smaller requests. There are relays that give nothing
// at all for more ids than they like: as long as none of the larger requests brings anything a
// few are asked for alone, half as many each time. What is learned from these goes for the others.
type wanted struct {
	todo     []graspsync.EventID // to be asked for
	open     int                 // requests that have not ended
	barren   int                 // that brought nothing, in a row
	unserved []graspsync.EventID // that did not come
	more     int                 // that were not asked for, since of many nothing came
	retried  bool                // those that did not come are asked for once more
	came     int

	few    int                 // so many are asked for at once at most, 0: as many as the relay takes
	held   []graspsync.EventID // they wait for these few to come
	works  int                 // ids in the largest request that brought something
	failed int                 // in the largest of those asked last that brought nothing
	before int                 // the same, of those before them
}

// ask adds events.
func (w *wanted) ask(ids []graspsync.EventID) { w.todo, w.barren = ids, 0 }

// next returns the ids of the next request. What was asked for once already goes into
// smaller ones.
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
	if got > 0 {
		w.barren, w.works = 0, max(w.works, x.asked)
	} else {
		w.barren, w.failed = w.barren+1, max(w.failed, x.asked)
	}
	if w.barren >= maxBarren {
		// They were made up, or the relay is not in the mood.
		w.unserved = append(w.unserved, w.todo...)
		w.todo, w.retried = nil, true
	}
	return limit
}

// retry returns what is asked for next of what did not come, once all requests have ended, and
// how many ids the relay was found to take at once, 0 if that is not news.
func (w *wanted) retry() (ids []graspsync.EventID, limit int) {
	vain, before := w.failed, w.before
	w.failed, w.before = 0, vain
	if vain == 0 && before > w.works {
		limit = w.works
	}
	switch {
	case len(w.held) > 0 && vain <= w.works:
		ids, w.held = w.held, nil
	case len(w.unserved) > 0 && !w.retried:
		ids, w.retried = w.missing(), true
	case vain > max(w.works, leastPage):
		ids = append(w.missing(), w.held...)
		w.few = max(leastPage, w.works, vain/2)
		ids, w.held = ids[:w.few:w.few], ids[w.few:]
	default:
		w.unserved, w.held = append(w.unserved, w.held...), nil
	}
	return ids, limit
}

// missing returns what did not come, and forgets it.
func (w *wanted) missing() []graspsync.EventID {
	ids := w.unserved
	w.unserved = nil
	slices.SortFunc(ids, graspsync.EventID.Compare)
	return ids
}
