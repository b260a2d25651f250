package session

import (
	"github.com/graspsync/graspsync/sync/wire"
)

// idsAtMost makes a relay return nothing for requests of more than n ids.
func (w *world) idsAtMost(most int) {
	w.refuse = func(r wire.Request) bool {
		if r.Type != wire.TypeReq || len(r.Filters[0].IDs) <= most {
			return false
		}
		w.say(eose(r.Sub))
		return true
	}
}
