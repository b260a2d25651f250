package sync

import (
	"time"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// largestRequest is the largest unanswered request of a connection. If the relay disconnects, the
// request may be too large. The zero value means no request.
type largestRequest struct {
	sub  string
	size int
	at   time.Time // when it was sent
}

func (l *largestRequest) asked(r wire.Request, size int, now time.Time) {
	if (r.Type == wire.TypeReq || r.Type == wire.TypeNegOpen) && size > relaylimits.LeastMessage && size >= l.size {
		*l = largestRequest{r.Sub, size, now}
	}
}

// answered records that the relay accepts requests of this size.
func (l *largestRequest) answered(stats *relayStats, sub string, now time.Time) {
	if l.size > 0 && sub == l.sub {
		stats.learn(func(o *relaylimits.Observed) { o.Answered(l.size, now) })
		*l = largestRequest{}
	}
}

// cutSoon is the maximum time between a request and a disconnection that the request may have
// caused.
const cutSoon = 10 * time.Second

// cut records that the relay has disconnected.
func (l *largestRequest) cut(stats *relayStats, now time.Time) {
	if l.size > 0 && now.Sub(l.at) < cutSoon {
		stats.learn(func(o *relaylimits.Observed) { o.Cut(l.size, now) })
	}
}

func sizeOf(r wire.Request) int {
	n := 80 + 2*len(r.Payload) // label and id
	for _, f := range r.Filters {
		n += filters.Size(f) + 1
	}
	return n
}
