package session

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

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
