package session

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// phantoms are ids that the relay announced by NIP-77 and did not serve by id, so that pages were
// requested instead. If one arrives by page, the relay does not serve its events by id. If none
// does, the relay invented the ids, and pages are not requested again because of these ids. The
// zero value is empty.
type phantoms struct {
	ids   map[graspsync.EventID]struct{}
	since time.Time
}

// maxPhantoms is the maximum number of stored ids. If a relay announces more, no further pages are
// requested for this reason until its limits expire, because the relay may invent new ids each
// time.
const maxPhantoms = 1_000

// add stores ids while there is room and reports whether an id is new.
func (p *phantoms) add(ids []graspsync.EventID, now time.Time) (news bool) {
	if len(p.ids) >= maxPhantoms && now.Sub(p.since) >= relaylimits.Believed {
		p.ids = nil
	}
	if p.ids == nil {
		p.ids, p.since = make(map[graspsync.EventID]struct{}), now
	}
	for _, id := range ids {
		if len(p.ids) >= maxPhantoms {
			break
		}
		if !p.has(id) {
			p.ids[id] = struct{}{}
			news = true
		}
	}
	return news
}

func (p *phantoms) has(id graspsync.EventID) bool {
	_, ok := p.ids[id]
	return ok
}
