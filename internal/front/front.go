// Package front has what servers put before all their handlers.
package front

import (
	"net/http"
	"time"
)

// Bodies gives the body of a request a while to come. net/http reads some of what a handler has left unread before it
// answers, and waits for that without end: who announces a body and sends none keeps a connection for good. A handler that
// takes long bodies sets deadlines of its own as it reads.
func Bodies(h http.Handler, most time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			c := http.NewResponseController(w)
			// Where there can't be one, somebody else answers for the connection.
			_ = c.SetReadDeadline(time.Now().Add(most))
			defer func() { _ = c.SetReadDeadline(time.Now().Add(most)) }() // that of the handler is over
		}
		h.ServeHTTP(w, r)
	})
}
