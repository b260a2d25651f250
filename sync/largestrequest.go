package sync

import (
	"time"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// largest is the largest request on a connection of which it is not known whether it is too
// large for the relay. The zero value is none.
type largestRequest struct {
	sub  string
	size int
	at   time.Time // when it was sent
}

// asked notes a request that was sent.
func (l *largestRequest) asked(r wire.Request, size int, now time.Time) {
	if (r.Type == wire.TypeReq || r.Type == wire.TypeNegOpen) && size > relaylimits.LeastMessage && size >= l.size {
		*l = largestRequest{r.Sub, size, now}
	}
}

// answered notes that the relay takes requests of this size.
func (l *largestRequest) answered(stats *relayStats, sub string, now time.Time) {
	if l.size > 0 && sub == l.sub {
		stats.answered(l.size, now)
		*l = largestRequest{}
	}
}

// cutSoon is how soon after a request a lost connection is taken for its answer.
const cutSoon = 10 * time.Second

// cut takes in that the relay has ended the connection.
func (l *largestRequest) cut(stats *relayStats, now time.Time) {
	if l.size > 0 && now.Sub(l.at) < cutSoon {
		stats.cut(l.size, now)
	}
}

// sizeOf is about how many bytes a request has.
func sizeOf(r wire.Request) int {
	n := 80 + 2*len(r.Payload) // label and id
	for _, f := range r.Filters {
		n += filters.Size(f) + 1
	}
	return n
}
