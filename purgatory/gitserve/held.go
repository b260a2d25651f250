package gitserve

import (
	"io"
	"net/http"
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

// stillHere is a packet of the second band, of which nothing is shown.
const stillHere = "0005\x02"

// sayAlive returns what tells the client of a push that we are here, if it could hear that.
func sayAlive(w io.Writer, req request) func() {
	return func() {
		if req.report && req.sideband {
			_, _ = w.Write([]byte(stillHere)) // the client is gone if this fails
		}
	}
}
