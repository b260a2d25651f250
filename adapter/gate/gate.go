package gate

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config sets bounds. The zero value takes all defaults.
type Config struct {
	// Client tells whose a request is: what strangers share is shared by that. Defaults to
	// [Address]; who is behind a proxy needs what that says.
	Client func(*http.Request) string
	// MaxConnections bounds websockets in all, defaults to 4,096. Where there is no more room, one
	// of the client that has most gives way.
	MaxConnections int
	// MaxMessage bounds a message of a client, in bytes. Defaults to 512,000.
	MaxMessage int64
	// MaxName bounds the name of a subscription, in bytes. Defaults to 250.
	MaxName int
	// MaxFilters bounds the filters of a REQ, defaults to 100.
	MaxFilters int
	// MaxListening bounds the filters of all subscriptions that are open, in all: each event that is
	// stored is held against each of them. Nobody has more than there is left. Defaults to 50,000.
	MaxListening int
	// MaxQueue bounds what waits to be written to one client, in bytes: who is slower than that is
	// hung up. Defaults to 64 MiB; MaxQueues bounds it for all, and defaults to 512 MiB.
	MaxQueue, MaxQueues int
	// MaxBody bounds the body of a request that manages the relay (NIP-86), in bytes: khatru reads it
	// before it asks who that is. Defaults to 1 MiB.
	MaxBody int64
	// Logger gets who was hung up, and why, at debug level. Defaults to one that discards.
	Logger *slog.Logger
}

// What a relay is given to do at once.
const (
	places    = 128             // for filters, events, counts; half of what is left for one client
	placesOf  = 16              // messages of one connection that have no answer yet
	bodies    = 64 << 20        // bytes of messages that have no answer yet
	negPlaces = 64              // reconciliations
	negOf     = 10              // of one connection
	negKept   = 8 * time.Second // khatru keeps one for seven seconds after its last message
	softQueue = 1 << 20         // who has more than this to read is not asked what else they want
	answerBy  = time.Minute
	pingEvery = 30 * time.Second
	pongBy    = 40 * time.Second
	writeBy   = 20 * time.Second // and a second more for each 16 KiB
	bodyBy    = 30 * time.Second
	goneFor   = 15 * time.Second // the relay may be at what somebody has asked for who has gone
	smallBody = 16 << 10         // bytes of a message that anybody may be sending
)

// Gate is an [http.Handler] before that of a relay. Make one with [New]. It is safe for concurrent
// use, and has no goroutine but those of connections.
type Gate struct {
	next      http.Handler
	cfg       Config
	work      *turns
	bodies    *turns
	negs      *turns
	listening *turns
	queued    atomic.Int64

	mu sync.Mutex
	// guarded by mu
	conns   map[*conn]struct{}
	clients map[string]int
	counts  map[string]uint64
}

// New returns a Gate before a handler that takes websockets.
func New(next http.Handler, cfg Config) *Gate {
	set := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	if cfg.Client == nil {
		cfg.Client = Address
	}
	set(&cfg.MaxConnections, 4096)
	set(&cfg.MaxName, 250)
	set(&cfg.MaxFilters, 100)
	set(&cfg.MaxListening, 50_000)
	set(&cfg.MaxQueue, 64<<20)
	set(&cfg.MaxQueues, 512<<20)
	if cfg.MaxMessage <= 0 {
		cfg.MaxMessage = 512_000
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = 1 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Gate{
		next: next, cfg: cfg, conns: make(map[*conn]struct{}), clients: make(map[string]int), counts: make(map[string]uint64),
		work: newTurns(max(places, 2*cfg.MaxFilters)), bodies: newTurns(max(bodies, 2*int(cfg.MaxMessage))),
		negs: newTurns(negPlaces), listening: newTurns(max(cfg.MaxListening, 2*cfg.MaxFilters)),
	}
}

// Address is whose a request is by where it comes from: an IPv4 address, or the /64 of an IPv6 one.
func Address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		return netip.PrefixFrom(ip, 64).Masked().String()
	}
	return ip.String()
}

// ServeHTTP implements [http.Handler].
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		g.websocket(w, r)
		return
	}
	if r.Header.Get("Content-Type") == "application/nostr+json+rpc" {
		// Not each connection can have a deadline, and what can't is bounded in bytes all the same.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyBy))
		r.Body = http.MaxBytesReader(w, r.Body, g.cfg.MaxBody)
	}
	g.next.ServeHTTP(w, r)
}

// Why connections end.
var (
	errSlow  = errors.New("too slow: there is no more room for what you have asked for")
	errRoom  = errors.New("others need the room")
	errGone  = errors.New("the relay has hung up")
	errQuiet = errors.New("no sign of life")
)

// Counts says how often what was done, by what: "connections" refused, and hung up for "room",
// "slow", "quiet".
func (g *Gate) Counts() map[string]uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make(map[string]uint64, len(g.counts))
	for k, v := range g.counts {
		out[k] = v
	}
	return out
}

func (g *Gate) count(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counts[what]++
}

// enter counts a connection; false: there is no room for it.
func (g *Gate) enter(c *conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.conns) >= g.cfg.MaxConnections {
		var most *conn
		for o := range g.conns {
			if most == nil || g.clients[o.client] > g.clients[most.client] {
				most = o
			}
		}
		if g.clients[most.client] < g.clients[c.client]+2 {
			g.counts["connections"]++
			return false
		}
		g.counts["room"]++
		g.forget(most)
		most.end(errRoom)
	}
	g.conns[c] = struct{}{}
	g.clients[c.client]++
	return true
}

func (g *Gate) leave(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(c)
}

func (g *Gate) forget(c *conn) {
	if _, here := g.conns[c]; !here {
		return
	}
	delete(g.conns, c)
	if g.clients[c.client]--; g.clients[c.client] == 0 {
		delete(g.clients, c.client)
	}
}

// Close hangs up everybody. New connections may come.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		c.end(context.Canceled)
	}
}
