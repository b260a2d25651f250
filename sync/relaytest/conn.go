package relaytest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/wire"
)

// Reasons for the end of a connection.
var (
	errClosed = fmt.Errorf("%w by the client", relaysync.ErrClosed)
	errCut    = fmt.Errorf("%w by the relay", relaysync.ErrClosed)
	errLarge  = fmt.Errorf("%w by the relay: message too large", relaysync.ErrClosed)
	errBusy   = fmt.Errorf("%w by the relay: too many messages", relaysync.ErrClosed)
)

const (
	maxAuthAge    = 2 * time.Minute
	maxChallenges = 20 // unanswered ones
)

type subscription struct {
	id      string
	filters []nostr.Filter
	follows bool // receives live events
	ended   bool // EOSE was sent
	size    int  // bytes of the REQ
	asksIDs int  // number of ids in the filters, -1 if a filter has no ids
	passes  bool // ends after its stored events
}

// Conn is a connection to a [Relay]. It implements [relaysync.Conn] without a goroutine.
type Conn struct {
	relay *Relay
	id    int
	info  wire.Info
	known func(graspsync.EventID) bool // set before Receive is called; may be nil

	over context.Context //nolint:containedctx // done at the end
	stop context.CancelCauseFunc
	wake chan struct{} // one slot: Receive must check again
	room chan struct{} // one slot: Send must check again

	inRecv, inSend sync.Mutex // held during Receive and Send

	// The fields below are guarded by relay.mu.
	closed     bool
	queue      []*answer
	unread     int // answers in queue that are not live events
	subs       map[string]*subscription
	negs       map[string]*negSession
	usedSubs   map[string]bool
	usedNegs   map[string]bool
	linkFree   time.Time // when the next message may be delivered
	delivered  int
	waiting    int // live events in queue
	meters     map[rate]meter
	refusedAt  time.Time // when the client received the last "rate-limited"
	asking     string    // the last REQ, if nothing has answered it
	askedAt    time.Time
	challenges map[string]bool // challenges that the client may answer
	authed     bool
}

func newConn(r *Relay, id int) *Conn {
	c := &Conn{
		relay:    r,
		id:       id,
		info:     r.behavior.Info,
		wake:     make(chan struct{}, 1),
		room:     make(chan struct{}, 1),
		subs:     make(map[string]*subscription),
		negs:     make(map[string]*negSession),
		usedSubs: make(map[string]bool),
		usedNegs: make(map[string]bool),

		meters:     make(map[rate]meter),
		challenges: make(map[string]bool),
	}
	c.over, c.stop = context.WithCancelCause(context.Background())
	return c
}

// Info returns the NIP-11 document at the time of the dial.
func (c *Conn) Info() wire.Info { return c.info }

// infoKnown is closed from the start, because Info does not change after Dial.
var infoKnown = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// InfoKnown implements [relaysync.Conn].
func (c *Conn) InfoKnown() <-chan struct{} { return infoKnown }

// Traffic implements [relaysync.Conn]. It returns the zero Traffic.
func (c *Conn) Traffic() relaysync.Traffic { return relaysync.Traffic{} }

// Close ends the connection. It returns nil.
func (c *Conn) Close() error {
	c.end(errClosed)
	return nil
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.over.Done() }

// end ends the connection. The caller must not hold relay.mu.
func (c *Conn) end(cause error) {
	c.relay.mu.Lock()
	delete(c.relay.conns, c)
	c.closed = true
	c.queue, c.subs, c.negs = nil, nil, nil
	c.relay.mu.Unlock()
	c.stop(cause) // the first cause stays
}

func (c *Conn) stir() {
	signal(c.wake)
	signal(c.room)
}

func signal(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// Receive returns the relay's next message. Malformed messages are dropped.
func (c *Conn) Receive(ctx context.Context) (wire.Message, error) {
	for {
		text, err := c.ReceiveText(ctx)
		if err != nil {
			return wire.Message{}, err
		}
		if m, err := wire.ParseNew(text, c.known); err == nil {
			return m, nil
		}
	}
}

// Skim implements [relaysync.Skimmer].
func (c *Conn) Skim(known func(graspsync.EventID) bool) { c.known = known }

// ReceiveText returns the relay's next message as text.
func (c *Conn) ReceiveText(ctx context.Context) ([]byte, error) {
	defer c.alone(&c.inRecv, "Receive")()
	for {
		if err := context.Cause(c.over); err != nil {
			return nil, fmt.Errorf("receive from %s: %w", c.relay.url, err)
		}
		if ctx.Err() != nil {
			return nil, c.abandon(ctx, "receive from")
		}
		f, wait, ok := c.take(time.Now())
		if ok && f.cut {
			c.end(errCut)
			continue
		}
		if ok {
			return f.text, nil
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-c.wake:
		case <-due:
		case <-c.over.Done():
		case <-ctx.Done():
		}
	}
}

// abandon ends the connection because a context ended.
func (c *Conn) abandon(ctx context.Context, what string) error {
	err := context.Cause(ctx)
	c.end(fmt.Errorf("%w: call given up: %w", relaysync.ErrClosed, err))
	return fmt.Errorf("%s %s: %w", what, c.relay.url, err)
}

// live queues a new event and reports whether any subscription matches. The caller holds relay.mu.
func (c *Conn) live(ev graspsync.Event) bool {
	hit := false
	for _, id := range sortedKeys(c.subs) {
		s := c.subs[id]
		if !s.follows || !nostr.Filters(s.filters).Match(ev.Event) {
			continue
		}
		if most := c.relay.behavior.MaxLive; !hit && most > 0 && c.waiting >= most {
			c.overflow()
			return true
		}
		c.push(&answer{
			sub:    id,
			frames: c.relay.serve(id, ev),
			due:    c.soon(),
			live:   true,
			first:  !hit,
		})
		hit = true
	}
	return hit
}

// overflow drops waiting live events and closes all subscriptions.
func (c *Conn) overflow() {
	for i := 0; i < len(c.queue); {
		if !c.queue[i].live {
			i++
			continue
		}
		c.unqueue(i)
	}
	for _, id := range sortedKeys(c.subs) {
		c.say(wire.Message{Type: wire.TypeClosed, Sub: id, Text: overflow})
	}
	clear(c.subs)
}

// Send sends a message to the relay.
func (c *Conn) Send(ctx context.Context, req wire.Request) error {
	size := requestSize(req)
	if exceeds(size, c.info.MaxMessageLength) && context.Cause(c.over) == nil {
		return fmt.Errorf("send %d bytes to %s: %w", size, c.relay.url, relaysync.ErrMessageTooLarge)
	}
	return c.send(ctx, copyRequest(req), size)
}

func (c *Conn) send(ctx context.Context, req wire.Request, size int) error {
	defer c.alone(&c.inSend, "Send")()
	for {
		if err := context.Cause(c.over); err != nil {
			return fmt.Errorf("send to %s: %w", c.relay.url, err)
		}
		if ctx.Err() != nil {
			return c.abandon(ctx, "send to")
		}
		if c.writable() {
			break
		}
		select {
		case <-c.room:
		case <-c.over.Done():
		case <-ctx.Done():
		}
	}
	if err := c.handle(req, size); err != nil {
		// The message was sent. The refusal shows in the next call.
		c.end(err)
	}
	c.stir()
	return nil
}

func (c *Conn) writable() bool {
	defer c.relay.lock()()
	return !c.relay.behavior.StopReading && c.unread < maxUnread
}

// SendText sends a message to the relay as text, from a real socket. A malformed message is
// answered by a NOTICE and recorded as a violation.
func (c *Conn) SendText(ctx context.Context, text []byte) error {
	req, err := decode(text)
	if err != nil {
		c.relay.mu.Lock()
		c.note(ViolationMalformed, err.Error(), "")
		within := c.spend(rateMessages, c.relay.behavior.MessageRate)
		c.say(wire.Message{Type: wire.TypeNotice, Text: c.relay.program.malformed})
		c.relay.mu.Unlock()
		if !within {
			c.end(errBusy)
		}
		c.stir()
		return nil
	}
	return c.send(ctx, req, len(text))
}

func (c *Conn) greet() {
	r := c.relay
	r.mu.Lock()
	if a := r.behavior.Auth; a == AuthOffered || a != AuthNone && r.behavior.Software == SoftwareAny {
		c.say(wire.Message{Type: wire.TypeAuth, Text: c.challenge()})
	}
	onConnect := r.behavior.OnConnect
	r.mu.Unlock()
	if onConnect != nil {
		onConnect(&ConnScript{conn: c})
	}
	c.stir()
}

// handle processes a message. It returns the reason to end the connection. The caller does not hold
// relay.mu.
func (c *Conn) handle(req wire.Request, size int) error {
	r := c.relay
	r.mu.Lock()
	if c.closed {
		r.mu.Unlock()
		return nil
	}
	r.requests = remember(r.requests, Seen{At: time.Now(), Conn: c.id, Size: size, Request: req})
	r.traffic.MessagesReceived++
	r.traffic.BytesReceived += int64(size)
	c.inspect(req, size)
	b := r.behavior
	var cause error
	switch {
	case exceeds(size, b.MaxMessage) || exceeds(size, c.info.MaxMessageLength):
		cause = errLarge
	case !c.spend(rateMessages, b.MessageRate):
		cause = errBusy
	}
	r.mu.Unlock()
	if cause == nil && (b.Handle == nil || !b.Handle(&ConnScript{conn: c}, req)) {
		c.process(req, size)
	}
	return cause
}

func (c *Conn) process(req wire.Request, size int) {
	reason := ""
	if b := c.relay.Behavior(); b.ClosedReason != nil && req.Type == wire.TypeReq {
		reason = b.ClosedReason(req)
	}
	defer c.relay.lock()()
	if c.closed {
		return
	}
	switch req.Type {
	case wire.TypeReq:
		c.request(req, size, reason)
	case wire.TypeClose:
		c.drop(req.Sub, c.relay.behavior.LateEvents)
		if c.asking == req.Sub {
			c.asking = ""
		}
	case wire.TypePublish:
		c.accept(req.Event, size-len(`["EVENT",]`))
	case wire.TypeAnswer:
		c.authenticate(req.Event)
	case wire.TypeNegOpen:
		c.negOpen(req)
	case wire.TypeNegSend:
		c.negSend(req)
	case wire.TypeNegClose:
		delete(c.negs, req.Sub)
	}
}

// say queues a message. The caller holds relay.mu.
func (c *Conn) say(m wire.Message) {
	c.push(&answer{frames: []frame{{msg: m}}, due: c.soon()})
}

func (c *Conn) soon() time.Time { return time.Now().Add(c.relay.behavior.Latency) }

func (c *Conn) accept(ev *nostr.Event, size int) {
	id, err := graspsync.ParseEventID(ev.ID)
	if err != nil {
		return
	}
	ok, text := false, "invalid: id or signature"
	switch most := c.relay.behavior.MaxEvent; {
	case exceeds(size, most):
		text = fmt.Sprintf("invalid: %d bytes, more than %d", size, most)
	case genuine(ev):
		ok, text = c.relay.publish(ev)
	}
	c.say(wire.Message{Type: wire.TypeOK, ID: id, Accepted: ok, Text: text})
}

func (c *Conn) authenticate(ev *nostr.Event) {
	id, _ := graspsync.ParseEventID(ev.ID)
	fault := c.authFault(ev)
	if fault == "" {
		c.authed = true
	} else {
		fault = "auth-required: " + fault
	}
	c.say(wire.Message{Type: wire.TypeOK, ID: id, Accepted: fault == "", Text: fault})
}

func (c *Conn) authFault(ev *nostr.Event) string {
	relay, err := graspsync.ParseRelayURL(tagValue(ev, "relay"))
	switch {
	case ev.Kind != nostr.KindClientAuthentication:
		return "invalid authentication event kind"
	case !c.challenges[tagValue(ev, "challenge")]:
		return "received invalid challenge"
	case !genuine(ev) || err != nil || relay != c.relay.url:
		return "invalid authentication event"
	case time.Since(ev.CreatedAt.Time()).Abs() > maxAuthAge:
		return "challenge is too old"
	}
	return ""
}

func (c *Conn) negOpen(req wire.Request) {
	r := c.relay
	if c.refuseNeg(req.Sub) || len(req.Filters) == 0 {
		return
	}
	if no := c.refuse(req, 0); no != nil {
		c.turnDown(wire.TypeNegErr, req.Sub, no)
		return
	}
	items := r.items(req.Filters[0])
	c.negs[req.Sub] = &negSession{set: negentropy.NewSet(append(items, r.lies(req.Filters[0])...)), items: len(items)}
	c.negAnswer(req)
}

func (c *Conn) refuseNeg(sub string) bool {
	b := &c.relay.behavior
	switch b.Negentropy {
	case NegNotice:
		c.say(wire.Message{Type: wire.TypeNotice, Text: or(b.NegText, c.relay.program.negOff)})
	case NegErr:
		c.say(wire.Message{Type: wire.TypeNegErr, Sub: sub, Text: or(b.NegText, "error: negentropy disabled")})
	case NegError:
		m := wire.Message{Type: wire.TypeNegErr, Sub: sub, Text: or(b.NegText, "negentropy is not supported here")}
		c.push(&answer{frames: []frame{{msg: m, negError: true}}, due: c.soon()})
	case NegClosed:
		c.say(wire.Message{Type: wire.TypeClosed, Sub: sub, Text: or(b.NegText, "unsupported: NIP-77")})
	case NegSilent:
	default:
		return false
	}
	return true
}

func (c *Conn) negSend(req wire.Request) {
	b, p := &c.relay.behavior, &c.relay.program
	s := c.negs[req.Sub]
	if s != nil && (b.NegTimeout > 0 && time.Since(s.last) > b.NegTimeout || b.NegRounds > 0 && s.rounds >= b.NegRounds) {
		delete(c.negs, req.Sub)
		s = nil
	}
	switch {
	case !c.spend(rateNegs, b.NegRate):
		c.turnDown(wire.TypeNegErr, req.Sub, &refusal{text: p.rate, rate: true})
	case s == nil:
		c.turnDown(wire.TypeNegErr, req.Sub, &refusal{text: p.negLost})
	default:
		c.negAnswer(req)
	}
}

func (c *Conn) negAnswer(req wire.Request) {
	b := &c.relay.behavior
	s := c.negs[req.Sub]
	reply, err := negReply(b, s, req.Payload)
	if err != nil {
		delete(c.negs, req.Sub)
		c.turnDown(wire.TypeNegErr, req.Sub, &refusal{text: c.relay.program.negInvalid})
		return
	}
	s.rounds, s.last, s.inFlight = s.rounds+1, time.Now(), true
	m := wire.Message{Type: wire.TypeNegMsg, Sub: req.Sub, Payload: reply}
	c.push(&answer{frames: []frame{{msg: m, sent: func() { s.inFlight = false }}}, due: c.soon()})
}

// request handles a REQ, which is refused with reason unless that is "".
func (c *Conn) request(req wire.Request, size int, reason string) {
	no := c.refuse(req, size)
	if no == nil && reason != "" {
		no = &refusal{text: reason}
	}
	if no != nil && c.relay.behavior.RefuseByNotice && !no.notice {
		no.notice, no.text = true, "ERROR: "+strings.TrimPrefix(no.text, "ERROR: ")
	}
	switch {
	case no == nil:
		c.subscribe(req, size)
	case no.notice:
		c.turnDown(wire.TypeClosed, req.Sub, no)
	default:
		c.drop(req.Sub, 0)
		c.turnDown(wire.TypeClosed, req.Sub, no)
		if no.after > 0 {
			c.follow(req.Sub, req.Filters[:no.after], size)
		}
	}
}

func (c *Conn) follow(id string, fs []nostr.Filter, size int) *subscription {
	s := &subscription{id: id, filters: fs, size: size}
	asks := false
	for _, f := range fs {
		asks = asks || !f.LimitZero
		if f.IDs == nil {
			s.asksIDs = -1
		}
		if s.asksIDs >= 0 {
			s.asksIDs += len(f.IDs)
		}
	}
	s.follows = !c.relay.behavior.LateListen || !asks
	c.subs[id] = s
	return s
}

// subscribe opens a subscription and queues its stored events.
func (c *Conn) subscribe(req wire.Request, size int) {
	r, b := c.relay, c.relay.behavior
	c.drop(req.Sub, 0) // a REQ with the same id replaces the subscription (NIP-01)
	s := c.follow(req.Sub, req.Filters, size)
	events, complete := r.stored(req.Filters)
	s.passes = b.Software == SoftwareRustNostr && s.asksIDs == len(events)
	a := &answer{sub: req.Sub, due: c.soon(), gap: b.Drip}
	made, eose := 0, false
	a.more = func() []frame { // the stored events and then EOSE
		if len(events) > 0 {
			ev := events[0]
			events = events[1:]
			return r.serve(s.id, ev)
		}
		if b.EndlessEvents > 0 && len(s.filters) > 0 {
			a.gap = b.EndlessEvents
			made++
			return []frame{r.madeUp(s, made-1)}
		}
		if eose || b.NeverEOSE {
			return nil
		}
		eose = true
		return c.eose(s, complete)
	}
	c.push(a)
}

// eose returns the EOSE of a subscription and the messages that follow it.
func (c *Conn) eose(s *subscription, complete bool) []frame {
	m := wire.Message{Type: wire.TypeEOSE, Sub: s.id}
	if c.relay.behavior.Hints {
		m.Hint = wire.HintMore
		if complete {
			m.Hint = wire.HintFinish
		}
	}
	frames := []frame{{msg: m, sent: func() { s.ended, s.follows = true, true }}}
	reading, _ := c.openSubs(s.id)
	var last wire.Message
	switch b := &c.relay.behavior; {
	case s.passes:
		last = wire.Message{Type: wire.TypeClosed, Sub: s.id}
	case b.Software == SoftwareStrfry && exceeds(len(c.subs)-reading, b.MaxSubs):
		last = wire.Message{Type: wire.TypeNotice, Text: strings.TrimPrefix(strfrySubs, byNotice)}
	default:
		return frames
	}
	if c.subs[s.id] == s {
		delete(c.subs, s.id)
	}
	return append(frames, frame{msg: last})
}

// drop ends a subscription and removes its queued messages except the next late ones.
func (c *Conn) drop(id string, late int) {
	delete(c.subs, id)
	for i := 0; i < len(c.queue); {
		a := c.queue[i]
		if a.sub != id || id == "" {
			i++
			continue
		}
		if late == 0 {
			c.unqueue(i)
			continue
		}
		a.last = late
		late = 0
		i++
	}
}

// alone locks mu until unlock is called. It records a violation if another call of the method runs.
func (c *Conn) alone(mu *sync.Mutex, method string) (unlock func()) {
	if !mu.TryLock() {
		c.relay.mu.Lock()
		c.note(ViolationConcurrentUse, method+" was called while another "+method+" ran", "")
		c.relay.mu.Unlock()
		mu.Lock()
	}
	return mu.Unlock
}

func (c *Conn) spend(what rate, perMinute int) bool {
	if perMinute == 0 {
		return true
	}
	m := c.meters[what]
	if m == nil {
		m = &window{}
		if c.relay.behavior.Software == SoftwareRustNostr {
			m = &tokens{}
		}
		c.meters[what] = m
	}
	return m.take(time.Now(), perMinute)
}

// openSubs returns number and size of the other subscriptions, without those that end after their
// stored events. Strfry counts only those whose stored events are being sent.
func (c *Conn) openSubs(but string) (n, size int) {
	for id, s := range c.subs {
		if id != but && !s.passes && !(s.ended && c.relay.behavior.Software == SoftwareStrfry) {
			n++
			size += s.size
		}
	}
	return n, size
}

// challenge returns a new challenge, which the client may answer.
func (c *Conn) challenge() string {
	if len(c.challenges) > maxChallenges {
		clear(c.challenges)
	}
	c.relay.challenges++
	text := fmt.Sprintf("challenge-%d", c.relay.challenges)
	c.challenges[text] = true
	return text
}

// turnDown queues a refusal of type typ, or a NOTICE. A refusal because of the rate starts the
// cool-down when it is sent.
func (c *Conn) turnDown(typ wire.Type, sub string, no *refusal) {
	if no.challenge {
		c.say(wire.Message{Type: wire.TypeAuth, Text: c.challenge()})
	}
	f := frame{msg: wire.Message{Type: typ, Sub: sub, Text: no.text}}
	switch {
	case no.notice:
		f.msg = wire.Message{Type: wire.TypeNotice, Text: no.text}
	case typ == wire.TypeNegErr:
		f.msg.Max = no.max
		f.negError = c.relay.behavior.Software == SoftwareKhatru
	}
	if no.rate {
		f.sent = func() {
			// A further refusal in that time concerns an earlier request.
			if c.refusedAt.IsZero() || time.Since(c.refusedAt) >= coolDown {
				c.refusedAt = time.Now()
			}
		}
	}
	c.push(&answer{frames: []frame{f}, due: c.soon()})
	if no.eose {
		c.say(wire.Message{Type: wire.TypeEOSE, Sub: sub})
	}
}

func exceeds(n, limit int) bool { return limit > 0 && n > limit }

func genuine(ev *nostr.Event) bool {
	if cheap(ev) {
		return ev.CheckID()
	}
	ok, err := ev.CheckSignature()
	return err == nil && ok && ev.CheckID()
}

func tagValue(ev *nostr.Event, name string) string {
	if tag := ev.Tags.Find(name); tag != nil {
		return tag[1]
	}
	return ""
}
