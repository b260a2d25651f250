package plan

import (
	"time"

	"github.com/graspsync/graspsync"
)

// Detail is what is known of one relay, and of what it is not asked for.
type Detail struct {
	RelayStatus
	NoRoom, TooLarge int       // filters that found no room, or that it takes in no message
	Resting          []Resting // what it refuses to have followed
	WaitsSince       time.Time // for its turn to be dialed; zero: it does not
}

// Resting is a filter that a relay refuses, and until when it is left alone with that.
type Resting struct {
	Filter string
	Until  time.Time
}

// Detail returns what is known of a relay; false if nothing is wanted of it.
func (p *Plan) Detail(u graspsync.RelayURL) (Detail, bool) {
	r := p.relays.byURL[u]
	if r == nil {
		return Detail{}, false
	}
	d := Detail{RelayStatus: p.status(r), NoRoom: r.live.unfollowed, TooLarge: r.live.tooLarge}
	for _, k := range r.live.resting {
		for _, f := range k.filters.Spell() {
			d.Resting = append(d.Resting, Resting{Filter: f.String(), Until: k.until})
		}
	}
	if r.turn.waits() {
		d.WaitsSince = r.dial.waitsSince
	}
	return d, true
}
