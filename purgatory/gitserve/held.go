package gitserve

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/graspsync/graspsync"
)

// held is an answer whose end is kept back: the report of a push ends in a flush packet, and
// clients wait for it before they look at what they have pushed.
type held struct {
	http.ResponseWriter
	end []byte
}

// flushPacket ends the report of a push.
const flushPacket = "0000"

// Write implements [http.ResponseWriter].
func (l *held) Write(p []byte) (int, error) {
	l.end = append(l.end, p...)
	over := len(l.end) - len(flushPacket)
	if over <= 0 {
		return len(p), nil
	}
	if _, err := l.ResponseWriter.Write(l.end[:over]); err != nil {
		return 0, err
	}
	l.end = append(l.end[:0], l.end[over:]...)
	return len(p), nil
}

// close lets the end go.
func (l *held) close() {
	if len(l.end) > 0 {
		_, _ = l.ResponseWriter.Write(l.end) // the client is gone if this fails
	}
	l.end = nil
}

const (
	// settledMost is how long a push is not answered because its events are not served: most
	// are within a second, and that a relay can't store some is not for whoever pushed to
	// wait for.
	settledMost = 30 * time.Second
	// aliveEvery is how often a client is told meanwhile that we are here: some give up when
	// they hear nothing for 10 seconds.
	aliveEvery = 5 * time.Second
)

// stillHere is a packet of the second band, of which nothing is shown.
const stillHere = "0005\x02"

// settled waits until it was seen to what a push has brought. alive is called again and again
// meanwhile. The push is done: it has left the place of its visit to others, who need that more,
// and where too many wait already, by their shares, it is answered at once.
func (h *Handler) settled(ctx context.Context, v *visit, ref graspsync.RepoRef, alive func()) {
	s, ok := h.auth.(Settler)
	if !ok {
		return
	}
	leave, ok := h.settling.try(v.who)
	if !ok {
		return
	}
	defer leave()
	v.leave()
	ctx, cancel := context.WithTimeout(ctx, settledMost)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Settled(ctx, ref) }()
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil && h.lines.May(ref, time.Now()) {
				h.cfg.Logger.Warn("a push was answered before its events are served", "repo", graspsync.Printable(ref.String()), "error", graspsync.Printable(err.Error()))
			}
			return
		case <-tick.C:
			alive()
		}
	}
}

// sayAlive returns what tells the client of a push that we are here, if it could hear that.
func sayAlive(w io.Writer, req request) func() {
	return func() {
		if req.report && req.sideband {
			_, _ = w.Write([]byte(stillHere)) // the client is gone if this fails
		}
	}
}
