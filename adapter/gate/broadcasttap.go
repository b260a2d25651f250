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

	"github.com/coder/websocket"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
)

// broadcastTap receives all events that a khatru relay publishes. khatru compares an event with each
// value of each open filter, which takes seconds for a few large filters, and reads its list of
// filters without a lock, so that clients miss events while others subscribe. The tap is the only
// subscription of khatru and matches everything. It finds the subscribed clients when khatru asks
// whether the event may be broadcast.
type broadcastTap struct {
	g     *Gate
	relay *khatru.Relay

	mu     sync.Mutex // held while the tap is opened
	isOpen bool       // guarded by mu
}

type tapKey struct{} // of the *broadcastTap of a request

func (e *broadcastTap) addHooks() {
	e.relay.OnConnect = append(e.relay.OnConnect, func(ctx context.Context) {
		ws := khatru.GetConnection(ctx)
		if c, _ := ws.Request.Context().Value(connKey{}).(*conn); c != nil && c.g == e.g {
			c.ws, c.relayCtx = ws, ctx
			close(c.connected)
		}
	})
	e.relay.PreventBroadcast = slices.Insert(e.relay.PreventBroadcast, 0, func(ws *khatru.WebSocket, event *nostr.Event) bool {
		return ws.Request.Context().Value(tapKey{}) == e && !e.publish(event)
	})
}

// routes reports whether only a khatru.Router knows the relay that a filter is for.
func routes(relay *khatru.Relay) bool {
	by := reflect.ValueOf(relay).Elem().FieldByName("getSubRelayFromFilter")
	return by.IsValid() && by.Kind() == reflect.Func && !by.IsNil()
}

// publish queues an event for connections with matching subscriptions that no hook excludes, and
// reports whether there are any.
func (e *broadcastTap) publish(event *nostr.Event) bool {
	held := make(map[*conn]bool)
	matches := slices.DeleteFunc(e.g.live.matching(newLiveEvent(event)), func(h match) bool {
		if _, known := held[h.c]; !known {
			held[h.c] = h.c.ctx.Err() != nil ||
				slices.ContainsFunc(e.relay.PreventBroadcast, func(prevents func(*khatru.WebSocket, *nostr.Event) bool) bool { return prevents(h.c.ws, event) })
		}
		return held[h.c]
	})
	if len(matches) == 0 {
		return false
	}
	text := []byte(event.String())
	names := make(map[*conn][][]byte)
	for _, h := range e.g.limitEvents(matches) {
		names[h.c] = append(names[h.c], h.s.name)
	}
	for c, names := range names {
		c.put(outgoing{text, names}, math.MaxInt)
	}
	return len(names) > 0
}

// open subscribes to all events of the relay. If the relay refuses, open returns false and the
// relay keeps the subscriptions.
func (e *broadcastTap) open() (open bool) {
	if e == nil || e.g.open.Err() != nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isOpen {
		return true
	}
	in, err := e.dial()
	if err != nil {
		e.g.cfg.Logger.Warn("gate bypassed: the relay refused its subscription and matches filters itself", "error", err)
		return false
	}
	e.isOpen = true
	go e.listen(in)
	return true
}

func (e *broadcastTap) dial() (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(e.g.open, closeBy) // other clients wait for mu
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

// listen discards the events that publish has delivered. If the relay closes the tap, clients would
// miss events, so they are disconnected and reconnect.
func (e *broadcastTap) listen(in *websocket.Conn) {
	var err error
	for err == nil {
		_, _, err = in.Read(e.g.open)
	}
	_ = in.CloseNow()
	e.mu.Lock()
	e.isOpen = false
	e.mu.Unlock()
	e.g.mu.Lock()
	defer e.g.mu.Unlock()
	for c := range e.g.conns.All() {
		if c.viaTap {
			c.end(errGone)
		}
	}
}
