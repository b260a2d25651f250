package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip77"
	"github.com/nbd-wtf/go-nostr/nip77/negentropy"
	"github.com/nbd-wtf/go-nostr/nip77/negentropy/storage/vector"
)

// canned is a relay that does not limit the client: its events are stored as text, and the
// messages of an answer are written together. It answers REQ with at most a page, and NIP-77. It
// never sends live events.
type canned struct {
	archive *archive
	nip77   bool

	mu      sync.Mutex
	traffic traffic   // guarded by mu
	last    time.Time // guarded by mu: time of the last answer
}

// traffic is the number and size of messages by label.
type traffic map[string]said

type said struct{ Messages, Bytes int64 }

// labelLive is the label of a REQ for live events only.
const labelLive = "REQ live"

// sum returns the traffic and the time of the last answer.
func (c *canned) sum() (traffic, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.traffic), c.last
}

func (c *canned) count(label string, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.traffic[label]
	c.traffic[label] = said{s.Messages + 1, s.Bytes + int64(size)}
	c.last = time.Now()
}

// ServeHTTP serves the NIP-11 document or a websocket.
func (c *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		w.Header().Set("Content-Type", "application/nostr+json")
		nips := "1,11"
		if c.nip77 {
			nips += ",77"
		}
		fmt.Fprintf(w, `{"name":"canned","supported_nips":[%s]}`, nips)
		return
	}
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	ws.SetReadLimit(4 << 20)
	t := &cannedConn{relay: c, ctx: r.Context(), ws: ws, sessions: make(map[string]*negentropy.Negentropy)}
	for {
		_, text, err := ws.Read(t.ctx)
		if err != nil {
			return
		}
		t.answer(string(text))
	}
}

// cannedConn is one client of a canned relay. Only one goroutine uses it.
type cannedConn struct {
	relay    *canned
	ctx      context.Context // ends with the connection
	ws       *websocket.Conn
	sessions map[string]*negentropy.Negentropy
}

func (c *cannedConn) send(label, text string) {
	c.relay.count(label, len(text))
	_ = c.ws.Write(c.ctx, websocket.MessageText, []byte(text)) // the next read returns the error
}

func (c *cannedConn) sendEnvelope(e nostr.Envelope) { c.send(e.Label(), e.String()) }

func (c *cannedConn) answer(text string) {
	envelope, err := nostr.NewMessageParser().ParseMessage(text)
	if errors.Is(err, nostr.UnknownLabel) && c.relay.nip77 {
		if envelope = nip77.ParseNegMessage(text); envelope != nil {
			err = nil
		}
	}
	if err != nil {
		notice := nostr.NoticeEnvelope("failed to parse envelope: " + err.Error())
		c.sendEnvelope(&notice)
		return
	}
	label := envelope.Label()
	if req, ok := envelope.(*nostr.ReqEnvelope); ok && !slices.ContainsFunc(req.Filters, func(f nostr.Filter) bool { return !f.LimitZero }) {
		label = labelLive
	}
	c.relay.count(label, len(text))
	switch e := envelope.(type) {
	case *nostr.ReqEnvelope:
		c.request(e)
	case *nip77.OpenEnvelope:
		v := vector.New()
		for _, i := range slices.Backward(c.relay.archive.query(e.Filter, unlimited)) {
			v.Insert(c.relay.archive.records[i].event.CreatedAt, c.relay.archive.records[i].event.ID)
		}
		v.Seal()
		c.sessions[e.SubscriptionID] = negentropy.New(v, 1<<20) // khatru's maximum
		c.reconcile(e.SubscriptionID, e.Message)
	case *nip77.MessageEnvelope:
		c.reconcile(e.SubscriptionID, e.Message)
	case *nip77.CloseEnvelope:
		delete(c.sessions, e.SubscriptionID)
	}
}

func (c *cannedConn) request(e *nostr.ReqEnvelope) {
	var places []int
	for _, f := range e.Filters {
		most := maxPage
		switch {
		case f.LimitZero:
			most = 0
		case f.Limit > 0:
			most = min(most, f.Limit)
		}
		places = append(places, c.relay.archive.query(f, most)...)
	}
	if len(e.Filters) > 1 {
		slices.Sort(places)
		places = slices.Compact(places)
	}
	for _, i := range places {
		c.send("EVENT", `["EVENT","`+e.SubscriptionID+`",`+c.relay.archive.records[i].text+`]`)
	}
	c.send("EOSE", `["EOSE","`+e.SubscriptionID+`"]`)
}

func (c *cannedConn) reconcile(id, message string) {
	session, ok := c.sessions[id]
	if !ok {
		c.sendEnvelope(&nip77.ErrorEnvelope{SubscriptionID: id, Reason: "closed: no such session"})
		return
	}
	out, err := session.Reconcile(message)
	if err != nil {
		c.sendEnvelope(&nip77.ErrorEnvelope{SubscriptionID: id, Reason: "error: " + err.Error()})
		return
	}
	c.sendEnvelope(&nip77.MessageEnvelope{SubscriptionID: id, Message: out})
}
