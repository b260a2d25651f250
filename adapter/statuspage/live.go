package statuspage

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const (
	// writeTimeout is the time in which a viewer must read an update.
	writeTimeout = 10 * time.Second
	// quietPeriod is the time after which an empty message checks whether the viewer still reads.
	quietPeriod = 15 * time.Second
	// liveLength is the duration of one connection. A browser reconnects.
	liveLength = time.Hour
)

// live sends the lines of HTML of a view, and then changed lines by number, as server-sent events.
func (p *Page) live(w http.ResponseWriter, r *http.Request) {
	v := views[r.FormValue("view")]
	asked, err := url.ParseQuery(r.FormValue("query"))
	if v == nil || v.every == 0 || err != nil {
		http.Error(w, "no such view", http.StatusNotFound)
		return
	}
	if r.Method == http.MethodHead {
		return
	}
	select {
	case p.viewers <- struct{}{}:
		defer func() { <-p.viewers }()
	default:
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many viewers of this page", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // disables buffering in nginx
	out := stream{w: w, rc: http.NewResponseController(w)}
	q := v.query(asked)
	tick := time.NewTicker(v.every)
	defer tick.Stop()
	end := time.NewTimer(liveLength)
	defer end.Stop()
	var last []string
	for sent := time.Now(); ; {
		now := p.render(r.Context(), v, q).lines
		switch message := changes(last, now); {
		case message != nil:
			err, sent, last = out.send(message), time.Now(), now
		case time.Since(sent) >= quietPeriod:
			err, sent = out.write(": still here\n\n"), time.Now()
		}
		if err != nil {
			return // the viewer is gone or does not read
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// message is an update: all lines, or the changed ones.
type message struct {
	All []string       `json:"all,omitempty"`
	Set map[int]string `json:"set,omitempty"`
}

// changes returns the message that makes now of before, or nil if they are equal.
func changes(before, now []string) *message {
	if len(before) != len(now) {
		return &message{All: now}
	}
	var m *message
	for i, line := range now {
		if line == before[i] {
			continue
		}
		if m == nil {
			m = &message{Set: make(map[int]string)}
		}
		m.Set[i] = line
	}
	return m
}

// stream writes server-sent events.
type stream struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (s stream) send(m *message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("data: %s\n\n", data))
}

func (s stream) write(text string) error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.rc.Flush()
}
