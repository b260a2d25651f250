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
	"github.com/graspsync/graspsync/sync/wire"
)

// Server serves one relay. It is an [http.Handler], for use with another listener.
type Server struct {
	relay *relaytest.Relay
	url   graspsync.RelayURL
	http  *http.Server
	ctx   context.Context //nolint:containedctx // canceled by Close
	stop  context.CancelFunc

	mu      sync.Mutex
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
	s := &Server{relay: r}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// URL returns the URL of the relay, or the zero value after New.
func (s *Server) URL() graspsync.RelayURL { return s.url }

// Close ends all connections and waits for their goroutines.
func (s *Server) Close() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	if s.http != nil {
		_ = s.http.Close()
	}
	s.running.Wait()
}

// ServeHTTP serves the NIP-11 document or a websocket.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		http.Error(w, "closed", http.StatusServiceUnavailable)
		return
	}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()

	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	if strings.Contains(req.Header.Get("Accept"), "application/nostr+json") {
		w.Header().Set("Content-Type", "application/nostr+json")
		_ = json.NewEncoder(w).Encode(document(s.relay.Behavior().Info))
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

func document(info wire.Info) map[string]any {
	limits := map[string]any{}
	for name, n := range map[string]int{
		"max_message_length": info.MaxMessageLength,
		"max_subscriptions":  info.MaxSubscriptions,
		"max_filters":        info.MaxFilters,
		"max_limit":          info.MaxLimit,
		"max_subid_length":   info.MaxSubIDLength,
	} {
		if n > 0 {
			limits[name] = n
		}
	}
	if info.AuthRequired {
		limits["auth_required"] = true
	}
	doc := map[string]any{"name": info.Name, "software": info.Software, "limitation": limits}
	if len(info.NIPs) > 0 {
		doc["supported_nips"] = info.NIPs
	}
	return doc
}
