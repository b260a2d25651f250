package gate

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/coder/websocket"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
)

// broadcastTap receives all events that a khatru relay publishes, for all clients of a Gate. khatru
// compares an event with each value of each open filter, and reads its list of filters without the
// lock under which it changes: clients miss events while others open subscriptions, and a few large
// filters take seconds per event. The tap is the only subscription that khatru has, and it matches
// everything. The tap finds the subscribed clients when khatru asks whether the event may be
// broadcast.
type broadcastTap struct {
	g           *Gate
	relay       *khatru.Relay
	connectSeen atomic.Bool // the relay has called OnConnect for a connection
	connectLost atomic.Bool // the relay did not call it for a connection
	exempted    int         // hooks of PreventBroadcast that are not called for the tap; set before the relay publishes

	mu sync.Mutex      // held while the tap is opened
	in *websocket.Conn // guarded by mu; nil: not open
}

// tapKey is the context key of the *broadcastTap of a request.
type tapKey struct{}

// addHooks adds hooks for connections and published events to the relay.
func (e *broadcastTap) addHooks() {
	e.relay.OnConnect = append(e.relay.OnConnect, func(ctx context.Context) {
		ws := khatru.GetConnection(ctx)
		if c, _ := ws.Request.Context().Value(connKey{}).(*conn); c != nil && c.g == e.g && e.g.tap == e {
			c.onConnect(ctx, ws)
		}
	})
	hold := func(ws *khatru.WebSocket, event *nostr.Event) bool {
		return ws.Request.Context().Value(tapKey{}) == e && e.publish(event) == 0
	}
	e.relay.PreventBroadcast = append([]func(*khatru.WebSocket, *nostr.Event) bool{hold}, e.relay.PreventBroadcast...)
	e.exempted = 1
	e.exemptFromHooks()
}

// exemptFromHooks hides the tap from the present hooks of PreventBroadcast. They would prevent a
// broadcast to it, and khatru would report that nobody has received the event.
func (e *broadcastTap) exemptFromHooks() {
	for ; e.exempted < len(e.relay.PreventBroadcast); e.exempted++ {
		prevents := e.relay.PreventBroadcast[e.exempted]
		e.relay.PreventBroadcast[e.exempted] = func(ws *khatru.WebSocket, event *nostr.Event) bool {
			return ws.Request.Context().Value(tapKey{}) != e && prevents(ws, event)
		}
	}
}

// routes reports whether the relay belongs to a khatru.Router, which alone knows the relay that a
// filter is for.
func routes(relay *khatru.Relay) bool {
	by := reflect.ValueOf(relay).Elem().FieldByName("getSubRelayFromFilter")
	return by.IsValid() && by.Kind() == reflect.Func && !by.IsNil()
}

// connectMissed records that the relay did not call OnConnect. If it never does, clients are
// connected to another relay, which keeps their subscriptions from now on.
func (e *broadcastTap) connectMissed() {
	if !e.connectSeen.Load() && !e.connectLost.Swap(true) {
		e.g.cfg.Logger.Warn("gate bypassed: the relay does not call OnConnect and matches filters itself")
	}
}

// publish queues an event for each connection with matching subscriptions that no hook of the relay
// excludes. It returns the number of subscriptions.
func (e *broadcastTap) publish(event *nostr.Event) (sent int) {
	held := make(map[*conn]bool)
	matches := slices.DeleteFunc(e.g.live.matching(newLiveEvent(event)), func(h match) bool {
		if _, known := held[h.c]; !known {
			held[h.c] = h.c.ctx.Err() != nil || e.preventsBroadcast(h.c.ws, event)
		}
		return held[h.c]
	})
	if len(matches) == 0 {
		return 0
	}
	text := []byte(event.String())
	subs := make(map[*conn][]*sub)
	for _, h := range e.g.limitEvents(matches) {
		subs[h.c] = append(subs[h.c], h.s)
		sent++
	}
	for c, subs := range subs {
		if names := c.requests.claim(subs, event.ID); names != nil {
			c.put(outgoing{text, names}, math.MaxInt)
		}
	}
	return sent
}

func (e *broadcastTap) preventsBroadcast(ws *khatru.WebSocket, event *nostr.Event) bool {
	for _, prevents := range e.relay.PreventBroadcast {
		if prevents(ws, event) {
			return true
		}
	}
	return false
}

// open subscribes to all events of the relay. If the relay refuses, open returns false and the
// relay keeps the subscriptions.
func (e *broadcastTap) open() (open bool) {
	if e == nil || e.connectLost.Load() && !e.connectSeen.Load() {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.in != nil {
		return true
	}
	in, err := e.dial()
	if err != nil {
		e.g.cfg.Logger.Warn("gate bypassed: the relay refused its subscription and matches filters itself", "error", err)
		return false
	}
	e.in = in
	go e.listen(in)
	return true
}

func (e *broadcastTap) dial() (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), closeBy) // other clients wait for mu
	defer cancel()
	r, err := http.NewRequestWithContext(context.WithValue(context.Background(), tapKey{}, e), http.MethodGet, "http://relay.invalid/", nil)
	if err != nil {
		return nil, err
	}
	r.RemoteAddr = "127.0.0.1:0"
	in, _, err := e.g.dial(ctx, r) //nolint:bodyclose // a pipe that has ended
	if err != nil {
		return nil, err
	}
	// For this filter khatru looks for no stored events and calls no hook.
	err = in.Write(ctx, websocket.MessageText, []byte(`["REQ","1",{"limit":0}]`))
	for err == nil {
		var message []byte
		if _, message, err = in.Read(ctx); err == nil && bytes.HasPrefix(message, []byte(`["EOSE"`)) {
			return in, nil // khatru adds the filter before it writes EOSE
		}
		if bytes.HasPrefix(message, []byte(`["CLOSED"`)) {
			err = errors.New(string(message))
		}
	}
	_ = in.CloseNow()
	return nil, err
}

// listen discards the events that the relay writes, because publish has delivered them. If the
// relay closes the tap, clients would miss events, so they are disconnected and reconnect.
func (e *broadcastTap) listen(in *websocket.Conn) {
	var err error
	for err == nil {
		_, _, err = in.Read(context.Background())
	}
	_ = in.CloseNow()
	e.mu.Lock()
	lost := e.in == in
	if lost {
		e.in = nil
	}
	e.mu.Unlock()
	if lost {
		e.g.onTapLost()
	}
}

// close ends the subscription. The next client opens it again.
func (e *broadcastTap) close() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.in != nil {
		_ = e.in.CloseNow()
		e.in = nil
	}
}
