package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	"github.com/graspsync/graspsync/internal/seldom"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/wire"
)

// Config sets bounds. The zero value takes all defaults.
type Config struct {
	// Client returns the address of the client of a request, or another name of it. Clients of one IPv6 /64 are
	// one, and a /24 or /48 has as much as four clients. It returns "" if the client is not known. Defaults to
	// [Address]; behind a proxy it must return what the proxy says.
	Client func(*http.Request) string
	// Identity has the names of the relay: an AUTH (NIP-42) counts if it was signed for one of them, path
	// included. Without it the relay decides.
	Identity nip34.Identity
	// MaxConnections is the maximum number of websockets. When it is reached, the client or network with most
	// loses one: first those without subscriptions, and of these the longest idle. It is at most a quarter of the
	// files that the process may open, which is logged. Defaults to 4,096.
	MaxConnections int
	// MaxMessage bounds a message of a client, in bytes. Defaults to 512,000, or to what the [khatru.Relay]
	// takes that is next, as its MaxMessageSize says when New is called.
	MaxMessage int64
	// MaxContent is the maximum length of the content of an event, in bytes; longer events are refused. It is at
	// most MaxMessage less 4,096, which is its default.
	MaxContent int
	// MaxQueues bounds what waits to be written to all connections, in bytes: where it is reached, of the
	// client that most waits for the connection that most waits for is hung up; so is in any case who an
	// eighth of it waits for. Less than 32 times MaxMessage is taken for that: else one large event would
	// have everybody hung up who hears it. Defaults to 512 MiB.
	MaxQueues int
	// Logger gets which client is refused, and what, once a minute each at info level, and at debug level
	// who was hung up, and why. Defaults to one that discards.
	Logger *slog.Logger

	fixed constants
}

// constants are the numbers about which no two operators would differ. Only tests have others.
type constants struct {
	// MaxQueue bounds what waits to be written to one connection, in bytes: who is slower than that is
	// hung up. What is stored waits for whoever asks for it ([Gate.Pace]), so that it is events as they
	// come, and answers of a relay that was not told to wait, that can be too much. Defaults to an
	// eighth of MaxQueues.
	MaxQueue int
	// MaxName bounds the name of a subscription, in bytes: others have names of up to 64 (NIP-01), and the relay
	// says so. Defaults to 250.
	MaxName int
	// MaxFilters bounds the filters of a REQ. Defaults to 100.
	MaxFilters int
	// MaxSubscriptions is the maximum number of open subscriptions of a connection; more are refused. Defaults to 500.
	MaxSubscriptions int
	// MaxListening is the maximum number of filters of all open subscriptions, because each event that is
	// published is compared to each of them. A filter counts as one more for each 40 values. When it is reached,
	// the oldest subscription of the client with most is closed. Defaults to 50,000.
	MaxListening int
	// EventRate is the maximum number of published events per second that are written to one client, once for each of its
	// subscriptions; all clients get ten times as many. Beyond that its oldest subscriptions are closed. Defaults to 2,000.
	EventRate int
	// MaxBody bounds the body of a request that manages the relay (NIP-86), in bytes: khatru reads it
	// before it asks who that is. Defaults to 1 MiB.
	MaxBody int64
}

// What a relay is given to do at once.
const (
	places     = 128      // for filters, events, counts
	placesPart = 16       // of one client; a message with more filters counts as so many
	placesOf   = 16       // messages of one connection that have no answer yet
	bodies     = 64 << 20 // bytes of messages that have no answer yet
	bodiesPart = 8 << 20  // of one client
	negPlaces  = 64       // reconciliations

	eventParts = 10 // all clients together get so many times EventRate
	burst      = 5  // seconds of EventRate that may come together

	negKept   = 8 * time.Second // khatru keeps one for seven seconds after its last message
	softQueue = 1 << 20         // who has more than this to read is not asked what else they want, and gets no more of it
	softPart  = 4               // nor who has such a part of MaxQueue
	queuePart = 8               // of MaxQueues is MaxQueue
	answerBy  = time.Minute
	authSpan  = 10 * time.Minute // created_at of an AUTH may be so far from our clock (NIP-42)
	pingEvery = 30 * time.Second
	pongBy    = 40 * time.Second
	writeBy   = 20 * time.Second // and a second more for each 16 KiB
	bodyBy    = 30 * time.Second
	lingerBy  = 15 * time.Second       // the relay may be at what somebody has asked for who has gone, or not answer
	smallBody = 16 << 10               // bytes of a message that anybody may be sending
	readAhead = 2                      // messages that wait for the one before them
	frame     = 64 << 10               // bytes of a message that are written at once
	closeBy   = 5 * time.Second        // who is hung up hears why, or does not
	evictBy   = 100 * time.Millisecond // or this, where others need the room
	pingBy    = 5 * time.Second
	filesPart = 4 // of the files that the process may open are websockets
)

// Gate is an [http.Handler] before that of a relay. Make one with [New]. It is safe for concurrent
// use, and has no goroutine but those of connections.
type Gate struct {
	next      http.Handler
	cfg       Config
	work      *limit.Slots
	bodies    *limit.Slots
	eventRate *limit.Rate   // events to each client
	totalRate *rate.Limiter // events to all clients
	live      liveSubs
	tap       *broadcastTap // nil: the relay has the subscriptions itself; set before it serves
	paced     map[*khatru.Relay]struct{}
	softLimit int
	queued    atomic.Int64
	evicting  sync.Mutex // nobody is hung up for what somebody else makes room for

	mu sync.Mutex
	// guarded by mu
	conns   *limit.Table[*conn, struct{}] // the longest idle ones of a client first
	counts  map[string]uint64
	closing chan struct{} // by Close

	lines seldom.Lines[refused]
}

// refused is what a line of the log is about.
type refused struct{ client, what string }

// New returns a Gate before a handler that takes websockets. One that is a [khatru.Relay] is paced;
// of another one [Gate.Pace] has to be told the relay that is behind it.
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
	set(&cfg.fixed.MaxName, 250)
	set(&cfg.fixed.MaxFilters, 100)
	set(&cfg.fixed.MaxSubscriptions, 500)
	set(&cfg.fixed.MaxListening, 50_000)
	set(&cfg.fixed.EventRate, 2000)
	relay, direct := next.(*khatru.Relay)
	if cfg.MaxMessage <= 0 {
		cfg.MaxMessage = 512_000
		if direct && relay.MaxMessageSize > 0 {
			cfg.MaxMessage = relay.MaxMessageSize
		}
	}
	set(&cfg.MaxQueues, 512<<20)
	// One queue then has room for a paced answer, which ends after the message that goes beyond a part of the
	// queue, and for one more published event of any size.
	cfg.MaxQueues = max(cfg.MaxQueues, int(queuePart*softPart*cfg.MaxMessage))
	set(&cfg.fixed.MaxQueue, cfg.MaxQueues/queuePart)
	if cfg.fixed.MaxBody <= 0 {
		cfg.fixed.MaxBody = 1 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if files := disk.Files(); cfg.MaxConnections > files/filesPart {
		cfg.MaxConnections = max(1, files/filesPart)
		cfg.Logger.Warn("websockets limited by the open files that the process may have", "websockets", cfg.MaxConnections, "files", files)
	}
	g := &Gate{
		next: next, cfg: cfg, conns: limit.NewTable[*conn, struct{}](cfg.MaxConnections, 0), counts: make(map[string]uint64),
		closing: make(chan struct{}), paced: make(map[*khatru.Relay]struct{}),
		work:      limit.NewSlots(places, placesPart),
		bodies:    limit.NewSlots(max(bodies, 2*cfg.MaxMessage), max(bodiesPart, cfg.MaxMessage)),
		eventRate: limit.NewRate(float64(cfg.fixed.EventRate), burst*cfg.fixed.EventRate, 3*cfg.MaxConnections),
		totalRate: rate.NewLimiter(rate.Limit(eventParts*cfg.fixed.EventRate), burst*eventParts*cfg.fixed.EventRate),
		softLimit: min(softQueue, cfg.fixed.MaxQueue/softPart),
		live: liveSubs{
			subs: limit.NewTable[*sub, *conn](cfg.fixed.MaxListening, int64(cfg.fixed.MaxListening)),
			negs: limit.NewTable[*sub, *conn](negPlaces, 0),
		},
	}
	if direct {
		g.Pace(relay)
	}
	return g
}

// Pace has what a relay has stored wait for whoever asks for it. Otherwise it comes as fast as it
// is read, and an honest client for which that is too fast, and too much, is hung up. It waits
// between the backend and khatru's lock of the connection, which who publishes needs: so that nobody
// else waits. A backend that has something open for as long as its answer is read keeps that open,
// for 64 answers at once and no longer than the client goes on reading; adapter/eventstore's has
// nothing open. Each relay of a [khatru.Router] has to be paced. It is called before the relay serves.
//
// Of a relay that is the only one the Gate keeps the subscriptions as well: it has the relay's hooks answer what is stored, and
// tells clients of what is published.
//
// A relay that is paced already stays as it is.
func (g *Gate) Pace(relay *khatru.Relay) {
	if _, is := g.paced[relay]; is {
		return
	}
	g.paced[relay] = struct{}{}
	relay.OverwriteResponseEvent = append(relay.OverwriteResponseEvent, g.pace)
	if len(g.paced) > 1 || routes(relay) || subscriptionOf(withSubscription(context.Background(), "1")) != "1" {
		g.tap = nil // only khatru knows which relay is asked
		return
	}
	g.tap = &broadcastTap{g: g, relay: relay}
	g.tap.addHooks()
}

// Hear has the Gate hear of what the relay publishes from now on, and not only when the first client comes: khatru
// can't publish while its first listener comes. It is called before anything but clients publishes, once the relay has all its hooks,
// and undone by Close.
func (g *Gate) TapBroadcasts() {
	if g.tap != nil {
		g.tap.exemptFromHooks()
	}
	g.tap.open()
}

// pace is called before each event that is written for a REQ, and after each one that is published.
func (g *Gate) pace(ctx context.Context, e *nostr.Event) {
	if ws := khatru.GetConnection(ctx); ws != nil {
		g.Wait(ctx, ws.Request, subscriptionOf(ctx), eventSize(e))
	}
}

// Wait is Pace for a relay that is no [khatru.Relay]. It is called before each event that is stored is
// written for a REQ, with the request that became the connection, the name that the relay knows the
// subscription by, and about how many bytes the event has. It returns at once for what did not come
// through this Gate, and when ctx or the connection has ended.
func (g *Gate) Wait(ctx context.Context, r *http.Request, subscription string, bytes int) {
	c, _ := r.Context().Value(connKey{}).(*conn)
	if c == nil || c.g != g {
		return
	}
	if number, err := strconv.ParseUint(subscription, 10, 64); err == nil {
		c.pace(ctx, number, bytes)
	}
}

// sizeOf is how many bytes an event has, about.
func eventSize(e *nostr.Event) int {
	n := 400 + len(e.Content)
	for _, tag := range e.Tags {
		for _, s := range tag {
			n += len(s) + 3
		}
	}
	return n
}

// connKey is where requests have the connection that they are of.
type connKey struct{}

// subscription is the one that is answered. khatru panics if it is none, but an event that is published.
func subscriptionOf(ctx context.Context) (id string) {
	defer func() { _ = recover() }()
	return khatru.GetSubscriptionID(ctx)
}

// Address returns the address that a request comes from: an IPv4 address, or the /64 of an IPv6 one.
func Address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return clientOf(host).ID
}

// stranger returns the client that [Config.Client] names.
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
		// Not each connection can have a deadline, and what can't is bounded in bytes all the same.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyBy))
		r.Body = http.MaxBytesReader(w, r.Body, g.cfg.fixed.MaxBody)
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

// What is counted.
const (
	refusedListening = "listening"
	refusedNegs      = "reconciliations"
	hungUpRoom       = "room"
	hungUpSlow       = "slow"
	hungUpQuiet      = "quiet"
)

// refuse counts that a client was refused something, and says so.
func (g *Gate) countRefusal(client, what string) {
	g.count(what)
	if g.lines.May(refused{client, what}, time.Now()) {
		g.cfg.Logger.Info("a client was refused: there is no room", "client", client, "what", what)
	}
}

func (g *Gate) count(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counts[what]++
}

// enter adds a connection, and ends one that yields to it when there is no room.
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
		for _, o := range listening { // those without subscriptions yield first
			g.conns.Touch(o)
		}
	}
	c.closing = g.closing
	gone, _ := g.conns.Displace(c, c.who, 0, struct{}{}) // there is one that yields, because all count the same
	for _, o := range gone {
		g.counts[hungUpRoom]++
		o.Key.end(errRoom)
	}
}

// touch makes a connection the one that was used last.
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

// all returns the connections.
func (g *Gate) all() []*conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []*conn
	for c := range g.conns.All() {
		all = append(all, c)
	}
	return all
}

// makeRoom hangs up who most waits for, as long as more waits in all than may.
func (g *Gate) makeRoom() {
	if g.queued.Load() <= int64(g.cfg.MaxQueues) {
		return
	}
	g.evicting.Lock()
	defer g.evicting.Unlock()
	for g.queued.Load() > int64(g.cfg.MaxQueues) {
		c := g.slowest()
		if c == nil {
			return // what there is is being written to who has been hung up
		}
		c.end(errSlow)
		c.queue.close()
	}
}

// ration returns the subscriptions that an event is written to. Others are closed, because their client has had its part
// of the events of this second: the oldest ones of it. If all clients together have had theirs, half of the subscriptions
// remain at most, and those with most lose first.
func (g *Gate) limitEvents(hearers []match) (kept []match) {
	var over []match
	for _, h := range slices.Backward(hearers) {
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

// slowest is, of the client that most waits for, the connection that most waits for.
func (g *Gate) slowest() *conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	of, sizes := make(map[limit.Stranger]int), make(map[*conn]int)
	for c := range g.conns.All() {
		all, waiting := c.queue.size()
		of[c.who] += all
		if waiting > 0 {
			sizes[c] = all
		}
	}
	var most *conn
	for c, n := range sizes {
		if most == nil || of[c.who] > of[most.who] || c.who == most.who && n > sizes[most] {
			most = c
		}
	}
	return most
}

// deafened hangs up who would not hear any more of what is published.
func (g *Gate) onTapLost() {
	for _, c := range g.all() {
		if c.useTap {
			c.end(errGone)
		}
	}
}

// Close hangs up everybody. New connections may come.
func (g *Gate) Close() {
	g.tap.close()
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns.All() {
		c.end(context.Canceled)
	}
	close(g.closing) // and who lingers
	g.closing = make(chan struct{})
}

// websocket serves a client that wants one.
func (g *Gate) websocket(w http.ResponseWriter, r *http.Request) {
	ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
	c := &conn{
		g: g, who: clientOf(g.cfg.Client(r)), queue: newQueue(&g.queued), inbox: make(chan inbound, readAhead),
		slots: make(chan struct{}, placesOf), ctx: ctx, end: end, requests: newOpenRequests(), connected: make(chan struct{}), useTap: g.tap.open(),
	}
	defer end(nil)
	g.enter(c)
	defer g.leave(c)
	dialing, cancel := context.WithTimeout(ctx, answerBy)
	in, resp, err := g.dial(dialing, r.WithContext(context.WithValue(context.WithoutCancel(r.Context()), connKey{}, c))) //nolint:bodyclose // a pipe that has ended
	cancel()
	if err != nil {
		forwardRefusal(w, resp)
		return
	}
	c.in = in
	defer func() { _ = in.CloseNow() }()
	taken := &takenConn{ResponseWriter: w}
	c.out, err = websocket.Accept(taken, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // it has been answered
	}
	c.out.SetReadLimit(g.cfg.MaxMessage)
	c.rawOut = taken.conn
	c.serve()
}

// refuse hands on how the relay has refused a websocket.
func forwardRefusal(w http.ResponseWriter, resp *http.Response) {
	if resp == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		http.Error(w, "the relay does not answer", http.StatusBadGateway)
		return
	}
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if v := resp.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.WriteHeader(resp.StatusCode)
	var text bytes.Buffer
	_, _ = text.ReadFrom(http.MaxBytesReader(nil, resp.Body, 4096)) // what there is of it
	_, _ = w.Write(text.Bytes())                                    // the client is gone if this fails
}

// around is how many bytes of a message are for what is around the content of an event.
const eventOverhead = 4096

func (g *Gate) maxContent() int {
	most := int(max(0, g.cfg.MaxMessage-eventOverhead))
	if g.cfg.MaxContent > 0 {
		most = min(most, g.cfg.MaxContent)
	}
	return most
}

// Limits returns the limits that a Gate enforces, as the limitation of a NIP-11 document has them.
func (g *Gate) Limits() map[string]any {
	fixed := g.cfg.fixed
	return map[string]any{
		"max_message_length": g.cfg.MaxMessage, "max_content_length": g.maxContent(), "max_event_tags": wire.MaxTags,
		"max_subscriptions": fixed.MaxSubscriptions, "max_subid_length": fixed.MaxName, "max_filters": fixed.MaxFilters,
	}
}

// parse reads a message of a client. An answer says what is wrong with it.
func (g *Gate) parse(message []byte) (r request, answer []byte) {
	var parts []json.RawMessage
	if err := json.Unmarshal(message, &parts); err != nil {
		answer = r.unreadable(message, "invalid: not JSON: "+err.Error())
		return r, answer
	}
	if len(parts) < 2 {
		return r, noticeMessage("invalid: this is no message of NIP-01")
	}
	if json.Unmarshal(parts[0], &r.label) != nil {
		return r, noticeMessage("invalid: a message begins with its label")
	}
	parts = parts[1:]
	switch r.label {
	case labelEvent, labelAuth:
		answer = r.readEvent(message, parts[0], g.maxContent())
		return r, answer
	case labelReq, labelClose, labelCount, labelNegOpen, labelNegMsg, labelNegClose:
	default:
		return r, noticeMessage("invalid: unknown label of a message")
	}
	if json.Unmarshal(parts[0], &r.name) != nil || r.name == "" || len(r.name) > maxEcho {
		return r, noticeMessage("invalid: a subscription has a name, and no long one")
	}
	if r.parts = parts[1:]; len(r.name) > g.cfg.fixed.MaxName {
		return r, r.refusal("invalid: the subscription id is too long")
	}
	answer = r.check(g.cfg.fixed.MaxFilters)
	return r, answer
}
