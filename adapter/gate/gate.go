package gate

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"golang.org/x/time/rate"

	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/internal/loglimit"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/wire"
)

// Config sets bounds. The zero value takes all defaults.
type Config struct {
	// Client returns the address of the client of a request, as a proxy names it. A /24 or /48 has as
	// much as four clients. Defaults to [Address].
	Client func(*http.Request) string
	// Relay is the khatru relay that receives every websocket, for which the Gate keeps the
	// subscriptions. Defaults to the handler if that is a [khatru.Relay].
	Relay *khatru.Relay
	// Identity is the names that AUTH events (NIP-42) may name. If it is zero, the relay decides.
	Identity nip34.Identity
	// MaxConnections is at most a quarter of the open files. Beyond it the client with most websockets
	// loses one without subscriptions, or the longest idle. Defaults to 4,096.
	MaxConnections int
	// MaxMessage is in bytes. Defaults to MaxMessageSize of Relay, else 512,000.
	MaxMessage int64
	// MaxContent is in bytes, by default and at most MaxMessage - 4,096.
	MaxContent int
	// MaxQueues is the maximum of bytes queued to all connections. Beyond it the client with most
	// loses a connection. A connection with more than an eighth is closed. The minimum is 32 times
	// MaxMessage, the default 512 MiB.
	MaxQueues int
	// Logger logs refused clients (once per minute each) and closed connections (debug).
	Logger *slog.Logger

	fixed constants
}

type constants struct {
	// MaxQueue is the same for one connection. Only published events can exceed it. Defaults to an
	// eighth of MaxQueues.
	MaxQueue int
	// MaxListening is the maximum of filters of all open subscriptions. A filter counts as one more
	// for each 40 values. Defaults to 50,000.
	MaxListening int
	// EventRate is the maximum of published events per second and client, counted per subscription.
	// Defaults to 2,000.
	EventRate int
}

const (
	maxName          = 250 // bytes of a subscription id; NIP-01 allows 64
	maxFilters       = 100 // of a REQ
	maxSubscriptions = 500 // open subscriptions of a connection; more are refused
	// maxBody is of a NIP-86 request, which khatru reads before it checks the sender.
	maxBody = 1 << 20
)

const (
	places     = 128      // filters and counts that the relay handles, and as many events
	placesPart = 16       // of one client; a message counts as the number of its filters
	placesOf   = 16       // unanswered messages of one connection
	bodies     = 64 << 20 // bytes of large messages without an answer
	bodiesPart = 8 << 20  // of one client
	negPlaces  = 64       // reconciliations

	messageRate  = 500                   // messages of one client per second, also invalid ones
	messageBurst = 2000                  // further messages are not read
	messageWait  = 50 * time.Millisecond // until a client beyond that may send again

	eventParts = 10 // all clients together get eventParts times EventRate
	burst      = 5  // seconds of EventRate that may come together

	negKept   = 8 * time.Second // khatru keeps a reconciliation for 7 s after its last message
	softQueue = 1 << 20         // a client with more queued bytes gets no stored events and its next REQ waits
	softPart  = 4               // the same from a softPart of MaxQueue
	queuePart = 8               // MaxQueue is a queuePart of MaxQueues
	answerBy  = time.Minute
	authSpan  = 10 * time.Minute // maximum difference between created_at of an AUTH and our clock (NIP-42)
	pingEvery = 30 * time.Second
	pongBy    = 40 * time.Second
	writeBy   = 20 * time.Second // plus 1 s per 16 KiB
	bodyBy    = 30 * time.Second
	smallBody = 16 << 10               // bytes up to which a message needs no slot for large messages
	readAhead = 2                      // messages that are read before the message before them is handled
	closeBy   = 5 * time.Second        // until a connection is closed without its reason
	evictBy   = 100 * time.Millisecond // the same if another client needs the room
	filesPart = 4                      // of the open files are websockets
)

// Gate is an [http.Handler] that protects the relay behind it. It is safe for concurrent use.
type Gate struct {
	next      http.Handler
	cfg       Config
	work      *limit.Slots // for filters and counts
	events    *limit.Slots // for EVENT and AUTH
	bodies    *limit.Slots
	messages  *limit.Rate   // messages of each client
	eventRate *limit.Rate   // events written to each client
	totalRate *rate.Limiter // events written to all clients
	live      liveSubs
	tap       *broadcastTap // nil: the relay keeps the subscriptions
	softLimit int
	queued    atomic.Int64
	open      context.Context //nolint:containedctx // it ends with Close
	end       context.CancelFunc

	mu sync.Mutex
	// guarded by mu
	conns  *limit.Table[*conn, struct{}] // the longest idle connection of a client first
	counts map[string]uint64

	lines loglimit.Limiter[refused]
}

type refused struct{ client, what string }

// New returns a Gate before a handler of websockets. Without a Relay the caller must call [Gate.Pace] or
// [Gate.Wait].
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
	set(&cfg.fixed.MaxListening, 50_000)
	set(&cfg.fixed.EventRate, 2000)
	if cfg.Relay == nil {
		cfg.Relay, _ = next.(*khatru.Relay)
	}
	if cfg.MaxMessage <= 0 && cfg.Relay != nil {
		cfg.MaxMessage = cfg.Relay.MaxMessageSize
	}
	if cfg.MaxMessage <= 0 {
		cfg.MaxMessage = 512_000
	}
	set(&cfg.MaxQueues, 512<<20)
	// A queue then has room for a paced answer and one more event of any size.
	cfg.MaxQueues = max(cfg.MaxQueues, int(queuePart*softPart*cfg.MaxMessage))
	set(&cfg.fixed.MaxQueue, cfg.MaxQueues/queuePart)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if files := disk.Files(); cfg.MaxConnections > files/filesPart {
		cfg.MaxConnections = max(1, files/filesPart)
		cfg.Logger.Warn("websockets limited by open files", "websockets", cfg.MaxConnections, "files", files)
	}
	g := &Gate{
		next: next, cfg: cfg, conns: limit.NewTable[*conn, struct{}](cfg.MaxConnections, 0), counts: make(map[string]uint64),
		work:      limit.NewSlots(places, placesPart),
		events:    limit.NewSlots(places, placesPart),
		bodies:    limit.NewSlots(max(bodies, 2*cfg.MaxMessage), max(bodiesPart, cfg.MaxMessage)),
		messages:  limit.NewRate(messageRate, messageBurst, 3*cfg.MaxConnections),
		eventRate: limit.NewRate(float64(cfg.fixed.EventRate), burst*cfg.fixed.EventRate, 3*cfg.MaxConnections),
		totalRate: rate.NewLimiter(rate.Limit(eventParts*cfg.fixed.EventRate), burst*eventParts*cfg.fixed.EventRate),
		softLimit: min(softQueue, cfg.fixed.MaxQueue/softPart),
		live: liveSubs{
			subs: limit.NewTable[*sub, *conn](cfg.fixed.MaxListening, int64(cfg.fixed.MaxListening)),
			negs: limit.NewTable[*sub, *conn](negPlaces, 0),
		},
	}
	g.open, g.end = context.WithCancel(context.Background())
	switch {
	case cfg.Relay == nil:
	case routes(cfg.Relay) || subscriptionOf(withSubscription(g.open, "1")) != "1":
		g.Pace(cfg.Relay)
	default:
		g.tap = &broadcastTap{g: g, relay: cfg.Relay}
		g.tap.addHooks()
	}
	return g
}

// Pace makes stored events of a relay of a [khatru.Router] wait until the client has read most of
// the earlier ones, because a client slower than the database is disconnected. Call it before the
// relay serves.
func (g *Gate) Pace(relay *khatru.Relay) {
	relay.OverwriteResponseEvent = append(relay.OverwriteResponseEvent, func(ctx context.Context, _ *nostr.Event) {
		if ws := khatru.GetConnection(ctx); ws != nil {
			g.Wait(ctx, ws.Request, subscriptionOf(ctx))
		}
	})
}

// TapBroadcasts subscribes the Gate to published events. Otherwise the first client does, and khatru
// cannot publish meanwhile. Call it before the server itself publishes.
func (g *Gate) TapBroadcasts() { g.tap.open() }

// Wait is Pace for another relay, to be called before each stored event for a REQ, with the request
// that became the connection and the subscription id that the relay knows.
func (g *Gate) Wait(ctx context.Context, r *http.Request, subscription string) {
	c, _ := r.Context().Value(connKey{}).(*conn)
	if c == nil || c.g != g {
		return
	}
	if number, err := strconv.ParseUint(subscription, 10, 64); err == nil {
		_ = c.queue.await(ctx, func() bool { return c.isPaced() || !c.requests.waits(number) || c.ctx.Err() != nil })
	}
}

// soft returns the queued bytes above which a client gets no stored events, 0 while all queues
// together are half full.
func (g *Gate) soft() int {
	if g.queued.Load() > int64(g.cfg.MaxQueues/2) {
		return 0
	}
	return g.softLimit
}

type connKey struct{}

// subscriptionOf returns the answered subscription, and "" for a published event, for which khatru
// panics.
func subscriptionOf(ctx context.Context) (id string) {
	defer func() { _ = recover() }()
	return khatru.GetSubscriptionID(ctx)
}

// Address returns the remote address of a request: an IPv4 address, or the /64 of an IPv6 address.
func Address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return clientOf(host).ID
}

func clientOf(name string) limit.Stranger {
	addr, err := netip.ParseAddr(name)
	if p, no := netip.ParsePrefix(name); no == nil {
		addr, err = p.Addr(), nil
	}
	if err != nil {
		return limit.Stranger{ID: name}
	}
	return limit.Client(addr)
}

// ServeHTTP implements [http.Handler].
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		g.websocket(w, r)
		return
	}
	if r.Header.Get("Content-Type") == "application/nostr+json+rpc" {
		// Fails for connections without deadlines.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyBy))
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	}
	g.next.ServeHTTP(w, r)
}

// hangUp is a reason to close a connection.
type hangUp struct {
	reason string
	label  string // of the metric; "": not counted
	status websocket.StatusCode
	by     time.Duration // until the connection is closed without its reason
}

func (h *hangUp) Error() string { return h.reason }

var (
	errSlow  = &hangUp{"too slow: there is no more room for what you have asked for", hungUpSlow, websocket.StatusTryAgainLater, closeBy}
	errRoom  = &hangUp{"others need the room", hungUpRoom, websocket.StatusTryAgainLater, evictBy}
	errGone  = &hangUp{"the relay has hung up", "", websocket.StatusGoingAway, closeBy}
	errQuiet = &hangUp{"no sign of life", hungUpQuiet, websocket.StatusGoingAway, 0}
)

const (
	refusedListening = "listening"
	refusedNegs      = "reconciliations"
	hungUpRoom       = "room"
	hungUpSlow       = "slow"
	hungUpQuiet      = "quiet"
)

func (g *Gate) countRefusal(client, what string) {
	g.count(what)
	if g.lines.Allow(refused{client, what}, time.Now()) {
		g.cfg.Logger.Info("client refused", "client", client, "resource", what)
	}
}

func (g *Gate) count(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counts[what]++
}

// enter may close another connection.
func (g *Gate) enter(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conns.Len() >= g.cfg.MaxConnections {
		var listening []*conn
		for o := range g.conns.All() {
			if o.requests.subscriptions() > 0 {
				listening = append(listening, o)
			}
		}
		for _, o := range listening { // connections without subscriptions are evicted first
			g.conns.Touch(o)
		}
	}
	gone, _ := g.conns.Displace(c, c.who, 0, struct{}{}) // always finds room, because all connections count the same
	for _, o := range gone {
		o.Key.end(errRoom)
	}
}

func (g *Gate) touch(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns.Touch(c)
}

func (g *Gate) leave(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns.Delete(c)
}

// makeRoom closes the oldest connections of the client with most queued bytes beyond MaxQueues.
func (g *Gate) makeRoom() {
	if g.queued.Load() <= int64(g.cfg.MaxQueues) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	room := limit.NewTable[*conn, struct{}](g.cfg.MaxConnections+1, int64(g.cfg.MaxQueues))
	for c := range g.conns.All() {
		gone, ok := room.Put(c, c.who, int64(c.queue.size()), struct{}{})
		if !ok {
			gone = append(gone, limit.Entry[*conn, struct{}]{Key: c})
		}
		for _, o := range gone {
			o.Key.end(errSlow)
			o.Key.queue.close()
		}
	}
}

// limitEvents closes the oldest subscriptions of clients beyond EventRate and returns the other
// matches. Beyond the total rate the clients with most lose up to half of the matches.
func (g *Gate) limitEvents(matches []match) (kept []match) {
	var over []match
	for _, h := range slices.Backward(matches) {
		if g.eventRate.Allow(h.c.who, 1) {
			kept = append(kept, h)
		} else {
			over = append(over, h)
		}
	}
	if !g.totalRate.AllowN(time.Now(), len(kept)) {
		room := limit.NewTable[*sub, *conn](max(int(g.totalRate.Tokens()), (len(kept)+1)/2), 0)
		for _, h := range slices.Backward(kept) {
			gone, ok := room.Put(h.s, h.c.who, 0, h.c)
			for _, o := range gone {
				over = append(over, match{o.Value, o.Key})
			}
			if !ok {
				over = append(over, h)
			}
		}
		kept = kept[:0]
		for s, c := range room.All() {
			kept = append(kept, match{c, s})
		}
	}
	for _, h := range over {
		h.c.evict(h.s)
	}
	return kept
}

// Close closes all connections. Later connections are closed immediately.
func (g *Gate) Close() { g.end() }

func (g *Gate) websocket(w http.ResponseWriter, r *http.Request) {
	ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer end(nil)
	defer context.AfterFunc(g.open, func() { end(nil) })()
	c := &conn{
		g: g, who: clientOf(g.cfg.Client(r)), queue: &queue{all: &g.queued}, inbox: make(chan inbound, readAhead),
		slots: make(chan struct{}, placesOf), ctx: ctx, end: end, requests: newOpenRequests(), connected: make(chan struct{}), viaTap: g.tap.open(),
	}
	g.enter(c)
	defer g.leave(c)
	dialing, cancel := context.WithTimeout(ctx, answerBy)
	in, resp, err := g.dial(dialing, r.WithContext(context.WithValue(context.WithoutCancel(r.Context()), connKey{}, c))) //nolint:bodyclose // a pipe that has ended
	cancel()
	if err != nil {
		status := http.StatusBadGateway
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			status = resp.StatusCode
		}
		http.Error(w, "the relay refused the connection, or does not answer", status)
		return
	}
	c.in = in
	defer func() { _ = in.CloseNow() }()
	taken := &takenConn{ResponseWriter: w}
	c.out, err = websocket.Accept(taken, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // Accept has answered
	}
	c.out.SetReadLimit(g.cfg.MaxMessage)
	c.rawOut = taken.conn
	c.serve()
}

// eventOverhead is in bytes of a message beside the content of its event.
const eventOverhead = 4096

func (g *Gate) maxContent() int {
	most := int(max(0, g.cfg.MaxMessage-eventOverhead))
	if g.cfg.MaxContent > 0 {
		most = min(most, g.cfg.MaxContent)
	}
	return most
}

// Limits returns the enforced limits as the limitation of a NIP-11 document.
func (g *Gate) Limits() map[string]any {
	return map[string]any{
		"max_message_length": g.cfg.MaxMessage, "max_content_length": g.maxContent(), "max_event_tags": wire.MaxTags,
		"max_subscriptions": maxSubscriptions, "max_subid_length": maxName, "max_filters": maxFilters,
	}
}
