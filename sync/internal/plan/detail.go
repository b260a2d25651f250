package plan

import (
	"time"

	"github.com/graspsync/graspsync"
)

// Detail is the status of one relay, and the items that are not requested.
type Detail struct {
	RelayStatus
	NoRoom, TooLarge int       // filters without room, and filters larger than a message
	Resting          []Resting // refused live filters
	WaitsSince       time.Time // start of the wait for a dial; zero: none
}

// Resting is a live filter that the relay refused, and the time of the next attempt.
type Resting struct {
	Filter string
	Until  time.Time
}

// Detail returns the detail of a relay, and false if it is unknown.
func (p *Plan) Detail(u graspsync.RelayURL) (Detail, bool) {
	r := p.relays.byURL[u]
	if r == nil {
		return Detail{}, false
	}
	d := Detail{RelayStatus: p.status(r), NoRoom: r.live.unfollowed, TooLarge: r.live.tooLarge}
	for _, k := range r.live.resting {
		for _, f := range k.filters {
			d.Resting = append(d.Resting, Resting{Filter: f.String(), Until: k.until})
		}
	}
	if r.turn.waits() {
		d.WaitsSince = r.dial.waitsSince
	}
	return d, true
}
