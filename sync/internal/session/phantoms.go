package session

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// phantoms are ids that the relay announced by NIP-77, that it did not serve by id, and for which
// pages were asked for instead. If one of them comes by page, the relay does not serve by id what it
// has. If not, it has made them up, and need not be asked for all of its pages again because of
// these. The zero value is empty.
type phantoms struct {
	ids   map[graspsync.EventID]struct{}
	since time.Time
}

// maxPhantoms bounds them. A relay that announces more is not asked for pages because of that for
// as long as anything is believed of it: each time it may have made up others.
const maxPhantoms = 1_000

// add notes ids, as far as there is room, and reports whether there is any that is news.
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
