// Package relayserver serves a [relaytest.Relay] on a real socket: websocket and NIP-11 document,
// at any path of a loopback address.
//
//	hub := relaytest.New("wss://hub.example", relaytest.Behavior{Cap: 100})
//	server, err := relayserver.Start(hub)
//	...
//	defer server.Close()
//	... connect to server.URL() ...
package relayserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Server serves one relay. It is an [http.Handler], for use with another listener.
type Server struct {
	relay *relaytest.Relay
	url   graspsync.RelayURL
	http  *http.Server
	stop  chan struct{} // closed by Close

	mu      sync.Mutex
	closed  bool           // guarded by mu
	running sync.WaitGroup // added to under mu while not closed
}

// Start serves a relay at a free port of 127.0.0.1.
func Start(r *relaytest.Relay) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := New(r)
	s.url, err = graspsync.ParseRelayURL("ws://" + l.Addr().String())
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("own address: %w", err)
	}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.running.Go(func() {
		// The error is always that of Close.
		_ = s.http.Serve(l)
	})
	return s, nil
}

// New returns a Server without a listener.
func New(r *relaytest.Relay) *Server {
	return &Server{relay: r, stop: make(chan struct{})}
}

// URL returns the URL of the relay, or the zero value after New.
func (s *Server) URL() graspsync.RelayURL { return s.url }

// Close ends all connections and waits for their goroutines.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stop)
	}
	s.mu.Unlock()
	if s.http != nil {
		_ = s.http.Close()
	}
	s.running.Wait()
}

// ServeHTTP serves the NIP-11 document or a websocket.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		http.Error(w, "closed", http.StatusServiceUnavailable)
		return
	}
	s.running.Add(2)
	s.mu.Unlock()
	defer s.running.Done()

	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	go func() {
		defer s.running.Done()
		select {
		case <-s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	if strings.Contains(req.Header.Get("Accept"), "application/nostr+json") {
		s.inform(w)
		return
	}
	conn, err := s.relay.Dial(ctx)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer func() { _ = conn.Close() }()
	ws, err := websocket.Accept(w, req, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return // Accept has sent an error
	}
	relay(ctx, ws, conn)
}

// relay forwards messages in both directions until one side ends.
func relay(ctx context.Context, ws *websocket.Conn, conn *relaytest.Conn) {
	ws.SetReadLimit(-1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		select {
		case <-conn.Done():
		case <-ctx.Done():
			_ = conn.Close()
		}
		// Unblocks reads and writes. A relay that cuts a connection sends no close frame.
		_ = ws.CloseNow()
	})
	wg.Go(func() {
		defer func() { _ = conn.Close() }()
		for {
			_, text, err := ws.Read(ctx)
			if err != nil || conn.SendText(ctx, text) != nil {
				return
			}
		}
	})
	defer func() { _ = conn.Close() }()
	for {
		text, err := conn.ReceiveText(ctx)
		if err != nil || ws.Write(ctx, websocket.MessageText, text) != nil {
			return
		}
	}
}

func (s *Server) inform(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/nostr+json")
	_, _ = w.Write([]byte(document(s.relay.Behavior())))
}

func document(b relaytest.Behavior) string {
	limits := map[string]any{}
	for name, n := range map[string]int{
		"max_message_length": b.Info.MaxMessageLength,
		"max_subscriptions":  b.Info.MaxSubscriptions,
		"max_filters":        b.Info.MaxFilters,
		"max_limit":          b.Info.MaxLimit,
		"max_subid_length":   b.Info.MaxSubIDLength,
	} {
		if n > 0 {
			limits[name] = n
		}
	}
	if b.Info.AuthRequired {
		limits["auth_required"] = true
	}
	doc := map[string]any{"name": b.Info.Name, "software": b.Info.Software, "limitation": limits}
	if len(b.Info.NIPs) > 0 {
		doc["supported_nips"] = b.Info.NIPs
	}
	text, err := json.Marshal(doc)
	if err != nil { // cannot fail for strings and numbers
		return "{}"
	}
	return string(text)
}
