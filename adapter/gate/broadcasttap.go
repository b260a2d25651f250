package gate

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/coder/websocket"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
)

// ear hears all that a khatru relay publishes, for all clients of a Gate. khatru holds an event against
// each filter that is open, value by value and tag by tag, and goes through these without the lock under which
// they come and go: who opens and closes some has others miss events, and a few filters that
// name much take it seconds an event. So it has one subscription, for everything, and it stays. Whoever
// is to hear of an event is found out here, where the relay asks whether it is to be held back.
type broadcastTap struct {
	g           *Gate
	relay       *khatru.Relay
	connectSeen atomic.Bool // the relay has told of a connection
	connectLost atomic.Bool // it has not told of one
	exempted    int         // hooks of PreventBroadcast that are not asked about this; set before the relay publishes

	mu sync.Mutex      // held while it is opened: who else wants that waits
	in *websocket.Conn // guarded by mu; nil: it does not hear
}

// earKey is where a request has the ear that it is of.
type tapKey struct{}

// wire has the relay tell of connections, and of what it publishes.
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

// spare keeps hooks that the relay has by now from being asked about this connection: it is nobody's, and they would have the relay tell
// whoever publishes that nobody hears of it.
func (e *broadcastTap) exemptFromHooks() {
	for ; e.exempted < len(e.relay.PreventBroadcast); e.exempted++ {
		prevents := e.relay.PreventBroadcast[e.exempted]
		e.relay.PreventBroadcast[e.exempted] = func(ws *khatru.WebSocket, event *nostr.Event) bool {
			return ws.Request.Context().Value(tapKey{}) != e && prevents(ws, event)
		}
	}
}

// routes reports whether a relay is that of a khatru.Router, which asks others by what a filter says: only it knows which.
func routes(relay *khatru.Relay) bool {
	by := reflect.ValueOf(relay).Elem().FieldByName("getSubRelayFromFilter")
	return by.IsValid() && by.Kind() == reflect.Func && !by.IsNil()
}

// untold notes that the relay did not tell of a connection. If it never does, it is not the one that clients come to, and has their
// subscriptions from now on.
func (e *broadcastTap) connectMissed() {
	if !e.connectSeen.Load() && !e.connectLost.Swap(true) {
		e.g.cfg.Logger.Warn("the relay does not tell its gate of connections, and holds events against filters itself")
	}
}

// publish queues an event for each connection with subscriptions that match it, unless a hook of the relay's holds it
// back from that. It returns the number of subscriptions.
func (e *broadcastTap) publish(event *nostr.Event) (sent int) {
	held := make(map[*conn]bool)
	hearers := slices.DeleteFunc(e.g.live.matching(newLiveEvent(event)), func(h match) bool {
		if _, known := held[h.c]; !known {
			held[h.c] = h.c.ctx.Err() != nil || e.preventsBroadcast(h.c.ws, event)
		}
		return held[h.c]
	})
	if len(hearers) == 0 {
		return 0
	}
	text := []byte(event.String())
	subs := make(map[*conn][]*sub)
	for _, h := range e.g.limitEvents(hearers) {
		subs[h.c] = append(subs[h.c], h.s)
		sent++
	}
	for c, subs := range subs {
		if names := c.requests.claim(subs, event.ID); names != nil {
			c.put(outgoing{text, names})
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

// open has it hear. If the relay does not let it, that has the subscriptions itself.
func (e *broadcastTap) open() (hears bool) {
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
		e.g.cfg.Logger.Warn("the relay keeps its gate from listening, and holds events against filters itself", "err", err)
		return false
	}
	e.in = in
	go e.listen(in)
	return true
}

func (e *broadcastTap) dial() (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), closeBy) // who else wants it waits
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
	// Of filters with this limit khatru looks for nothing that is stored, and asks no hook.
	err = in.Write(ctx, websocket.MessageText, []byte(`["REQ","1",{"limit":0}]`))
	for err == nil {
		var message []byte
		if _, message, err = in.Read(ctx); err == nil && bytes.HasPrefix(message, []byte(`["EOSE"`)) {
			return in, nil // it is open before it says so
		}
		if bytes.HasPrefix(message, []byte(`["CLOSED"`)) {
			err = errors.New(string(message))
		}
	}
	_ = in.CloseNow()
	return nil, err
}

// listen reads what the relay writes, which was heard before. Without an ear nobody hears: they are hung up, and come again.
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

// close has it hear no more, until the next client comes.
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
