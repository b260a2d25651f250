package relaytest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
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

type subscription struct {
	id      string
	filters []nostr.Filter
	opened  time.Time
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

	done chan struct{} // closed at the end
	wake chan struct{} // one slot: Receive must check again
	room chan struct{} // one slot: Send must check again

	once   sync.Once
	cause  error // set before done is closed
	inRecv guard
	inSend guard

	// The fields below are guarded by relay.mu.
	closed     bool
	queue      []*answer
	unread     int // answers in queue that are not live events
	subs       map[string]*subscription
	negs       map[string]*negSession
	usedSubs   map[string]struct{}
	usedNegs   map[string]struct{}
	linkFree   time.Time // when the next message may be delivered
	delivered  int
	waiting    int // live events in queue
	meters     map[rate]meter
	refusedAt  time.Time // when the client received the last "rate-limited"
	asking     string    // the last REQ, if nothing has answered it
	askedAt    time.Time
	challenges map[string]struct{} // challenges that the client may answer
	authed     bool
	records    []negentropy.Item // of the NEG-OPEN that is being handled
}

func newConn(r *Relay, id int) *Conn {
	return &Conn{
		relay:    r,
		id:       id,
		info:     r.behavior.Info,
		done:     make(chan struct{}),
		wake:     make(chan struct{}, 1),
		room:     make(chan struct{}, 1),
		subs:     make(map[string]*subscription),
		negs:     make(map[string]*negSession),
		usedSubs: make(map[string]struct{}),
		usedNegs: make(map[string]struct{}),

		meters:     make(map[rate]meter),
		challenges: make(map[string]struct{}),
	}
}

// Info returns the NIP-11 document at the time of the dial.
func (c *Conn) Info() wire.Info {
	info := c.info
	info.NIPs = slices.Clone(info.NIPs)
	return info
}

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
func (c *Conn) Done() <-chan struct{} { return c.done }

// end ends the connection. The caller must not hold relay.mu.
func (c *Conn) end(cause error) {
	c.once.Do(func() {
		c.relay.mu.Lock()
		delete(c.relay.conns, c)
		c.closed = true
		c.queue, c.subs, c.negs = nil, nil, nil
		c.relay.mu.Unlock()
		c.cause = cause
		close(c.done)
	})
}

func (c *Conn) ended() error {
	select {
	case <-c.done:
		return c.cause
	default:
		return nil
	}
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

// Receive returns the relay's next message.
func (c *Conn) Receive(ctx context.Context) (wire.Message, error) {
	for {
		f, err := c.receive(ctx)
		if err != nil {
			return wire.Message{}, err
		}
		if f.raw == nil {
			return c.skim(f.msg), nil
		}
	}
}

// Skim implements [relaysync.Skimmer].
func (c *Conn) Skim(known func(graspsync.EventID) bool) { c.known = known }

func (c *Conn) skim(m wire.Message) wire.Message {
	if m.Type != wire.TypeEvent || m.Event.IsZero() || c.known == nil || !c.known(m.Event.ID) {
		return m
	}
	ev := m.Event.Event
	m.Known, m.Event.Event = true, &nostr.Event{ID: ev.ID, PubKey: ev.PubKey, CreatedAt: ev.CreatedAt, Kind: ev.Kind}
	return m
}

// ReceiveText returns the relay's next message as text, for a real socket. Do not mix it with
// Receive.
func (c *Conn) ReceiveText(ctx context.Context) ([]byte, error) {
	f, err := c.receive(ctx)
	if err != nil || f.raw != nil {
		return f.raw, err
	}
	return encode(f), nil
}

func (c *Conn) receive(ctx context.Context) (frame, error) {
	if !c.inRecv.enter() {
		c.violate(ViolationConcurrentUse, "Receive was called while another Receive ran", "")
	}
	defer c.inRecv.leave()
	for {
		if err := c.ended(); err != nil {
			return frame{}, fmt.Errorf("receive from %s: %w", c.relay.url, err)
		}
		if ctx.Err() != nil {
			return frame{}, c.abandon(ctx, "receive from")
		}
		f, wait, ok := c.take(time.Now())
		if ok && f.cut {
			c.end(errCut)
			continue
		}
		if ok {
			return f, nil
		}
		var timer *time.Timer
		var due <-chan time.Time
		if wait > 0 {
			timer = time.NewTimer(wait)
			due = timer.C
		}
		select {
		case <-c.wake:
		case <-due:
		case <-c.done:
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
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
func (c *Conn) live(rec *record) bool {
	hit := false
	if most := c.relay.behavior.MaxLive; most > 0 && c.waiting >= most && c.follows(rec) {
		c.overflow()
		return true
	}
	for _, id := range sortedKeys(c.subs) {
		s := c.subs[id]
		if !s.follows || !s.match(rec.ev) {
			continue
		}
		c.push(&answer{
			sub:    id,
			frames: c.relay.serve(id, rec),
			due:    time.Now().Add(c.relay.behavior.Latency),
			live:   true,
			first:  !hit,
		})
		hit = true
	}
	return hit
}

func (c *Conn) follows(rec *record) bool {
	for _, s := range c.subs {
		if s.follows && s.match(rec.ev) {
			return true
		}
	}
	return false
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
	text := c.relay.program.overflow
	for _, id := range sortedKeys(c.subs) {
		c.say(wire.Message{Type: wire.TypeClosed, Sub: id, Text: text})
	}
	clear(c.subs)
}

func (s *subscription) match(ev *nostr.Event) bool { return nostr.Filters(s.filters).Match(ev) }

// Send sends a message to the relay.
func (c *Conn) Send(ctx context.Context, req wire.Request) error {
	size := requestSize(req)
	if most := c.info.MaxMessageLength; most > 0 && size > most && c.ended() == nil {
		return fmt.Errorf("send %d bytes to %s: %w", size, c.relay.url, relaysync.ErrMessageTooLarge)
	}
	return c.send(ctx, copyRequest(req), size)
}

func (c *Conn) send(ctx context.Context, req wire.Request, size int) error {
	if !c.inSend.enter() {
		c.violate(ViolationConcurrentUse, "Send was called while another Send ran", "")
	}
	defer c.inSend.leave()
	for {
		if err := c.ended(); err != nil {
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
		case <-c.done:
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
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	return !c.relay.behavior.StopReading && c.unread < maxUnread
}

// SendText sends a message to the relay as text, from a real socket. A malformed message is
// answered by a NOTICE and recorded as a violation.
func (c *Conn) SendText(ctx context.Context, text []byte) error {
	req, err := decode(text)
	if err != nil {
		c.violate(ViolationMalformed, err.Error(), "")
		if !c.another() {
			c.end(errBusy)
			return nil
		}
		c.relay.mu.Lock()
		text := strings.Replace(c.relay.program.malformed, "%v", err.Error(), 1)
		c.say(wire.Message{Type: wire.TypeNotice, Text: text})
		c.relay.mu.Unlock()
		c.stir()
		return nil
	}
	return c.send(ctx, req, len(text))
}

func (c *Conn) greet() {
	r := c.relay
	r.mu.Lock()
	if a := r.behavior.Auth; a == AuthOffered || a != AuthNone && r.program.greets {
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
	r.mu.Unlock()

	if exceeds(size, b.MaxMessage) || exceeds(size, c.info.MaxMessageLength) {
		return errLarge
	}
	if !c.another() {
		return errBusy
	}
	if b.Handle == nil || !b.Handle(&ConnScript{conn: c}, req) {
		c.process(req, size)
	}
	return nil
}

func (c *Conn) another() bool {
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	return c.spend(rateMessages, c.relay.behavior.MessageRate)
}

func (c *Conn) process(req wire.Request, size int) {
	switch req.Type {
	case wire.TypeReq:
		c.request(req, size)
	case wire.TypeClose:
		c.unsubscribe(req.Sub)
	case wire.TypePublish:
		c.accept(req.Event, size-len(`["EVENT",]`))
	case wire.TypeAnswer:
		c.authenticate(req.Event)
	case wire.TypeNegOpen:
		c.negOpen(req)
	case wire.TypeNegSend:
		c.negSend(req)
	case wire.TypeNegClose:
		c.relay.mu.Lock()
		delete(c.negs, req.Sub)
		c.relay.mu.Unlock()
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
	c.relay.mu.Lock()
	most, outcomes := c.relay.behavior.MaxEvent, c.relay.program.outcomes
	c.relay.mu.Unlock()
	var out outcome
	switch {
	case exceeds(size, most):
		out.text = fmt.Sprintf("invalid: %d bytes, more than %d", size, most)
	case !ev.CheckID() || !signed(ev):
		out.text = "invalid: id or signature"
	default:
		out.accepted, out.text = c.relay.publish(ev)
		if o, ok := outcomes[out.text]; ok && !out.accepted {
			out = o
		}
	}
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	c.say(wire.Message{Type: wire.TypeOK, ID: id, Accepted: out.accepted, Text: out.text})
}

func (c *Conn) authenticate(ev *nostr.Event) {
	id, idErr := graspsync.ParseEventID(ev.ID)
	genuine := idErr == nil && ev.CheckID() && signed(ev)
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	fault := c.authFault(ev, genuine, c.relay.program.authAge)
	c.authed = c.authed || fault == ""
	c.say(wire.Message{Type: wire.TypeOK, ID: id, Accepted: fault == "", Text: fault})
}

func (c *Conn) authFault(ev *nostr.Event, genuine bool, age time.Duration) string {
	relay, err := graspsync.ParseRelayURL(tagValue(ev, "relay"))
	_, known := c.challenges[tagValue(ev, "challenge")]
	switch {
	case !genuine:
		return faultEvent
	case ev.Kind != nostr.KindClientAuthentication:
		return faultKind
	case !known:
		return faultChallenge
	case err != nil || relay != c.relay.url:
		return faultEvent
	case age > 0 && time.Since(ev.CreatedAt.Time()).Abs() > age:
		return faultTime
	}
	return ""
}

func (c *Conn) negOpen(req wire.Request) {
	r := c.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.closed {
		return
	}
	off := r.behavior.off()
	if off && r.behavior.Software != SoftwareAny {
		c.refuseNeg(req.Sub) // a program without NIP-77 checks nothing else
		return
	}
	c.records = nil
	if no := firstOf(r.program.neg, c, req, 0); no != nil {
		c.turnDown(wire.TypeNegErr, req.Sub, no)
		return
	}
	if c.refuseNeg(req.Sub) || len(req.Filters) == 0 {
		return
	}
	items := c.found(req)
	c.negs[req.Sub] = &negSession{set: negentropy.NewSet(append(items, r.lies(req.Filters[0])...)), items: len(items)}
	c.negAnswer(req)
}

// found returns the records of a NEG-OPEN. The caller holds relay.mu.
func (c *Conn) found(req wire.Request) []negentropy.Item {
	if c.records == nil && len(req.Filters) > 0 && !c.relay.behavior.off() {
		c.records = c.relay.items(req.Filters[0])
	}
	return c.records
}

func (c *Conn) refuseNeg(sub string) bool {
	b := &c.relay.behavior
	switch b.Negentropy {
	case NegNotice:
		c.say(wire.Message{Type: wire.TypeNotice, Text: orText(b.NegText, c.relay.program.negOff)})
	case NegErr:
		c.say(wire.Message{Type: wire.TypeNegErr, Sub: sub, Text: orText(b.NegText, "error: negentropy disabled")})
	case NegError:
		m := wire.Message{Type: wire.TypeNegErr, Sub: sub, Text: orText(b.NegText, "negentropy is not supported here")}
		c.push(&answer{frames: []frame{{msg: m, negError: true}}, due: c.soon()})
	case NegClosed:
		c.say(wire.Message{Type: wire.TypeClosed, Sub: sub, Text: orText(b.NegText, "unsupported: NIP-77")})
	case NegSilent:
	default:
		return false
	}
	return true
}

func (c *Conn) negSend(req wire.Request) {
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	if c.closed {
		return
	}
	b := &c.relay.behavior
	s := c.negs[req.Sub]
	if s != nil && (b.NegTimeout > 0 && time.Since(s.last) > b.NegTimeout || b.NegRounds > 0 && s.rounds >= b.NegRounds) {
		delete(c.negs, req.Sub)
		s = nil
	}
	p := c.relay.program
	if !c.spend(rateNegs, b.NegRate) {
		c.turnDown(wire.TypeNegErr, req.Sub, &refusal{text: p.negRate, rate: true})
		return
	}
	if s == nil {
		c.turnDown(wire.TypeNegErr, req.Sub, &refusal{text: p.negLost})
		return
	}
	c.negAnswer(req)
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
	s.rounds++
	s.last = time.Now()
	s.inFlight = true
	c.push(&answer{
		frames: []frame{{
			msg:  wire.Message{Type: wire.TypeNegMsg, Sub: req.Sub, Payload: reply},
			sent: func() { s.inFlight = false },
		}},
		due: c.soon(),
	})
}

func (c *Conn) request(req wire.Request, size int) {
	r := c.relay
	scripted := r.scriptedRefusal(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.closed {
		return
	}
	no := firstOf(r.program.req, c, req, size)
	if no == nil {
		no = scripted
	}
	if no == nil {
		c.subscribe(req, size, nil)
		return
	}
	b := &r.behavior
	if b.RefuseByNotice && !no.notice {
		no.notice, no.text = true, "ERROR: "+no.text
	}
	if no.notice {
		c.turnDown(wire.TypeClosed, req.Sub, no)
		return
	}
	if b.EventsAfterClosed {
		c.subscribe(req, size, c.refused(wire.TypeClosed, req.Sub, no))
		return
	}
	c.drop(req.Sub, 0)
	c.turnDown(wire.TypeClosed, req.Sub, no)
	if no.after > 0 {
		c.follow(req.Sub, req.Filters[:no.after], size)
	}
}

func (c *Conn) follow(id string, fs []nostr.Filter, size int) *subscription {
	s := &subscription{id: id, filters: fs, opened: time.Now(), size: size}
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

// subscribe opens a subscription and queues first and then its stored events.
func (c *Conn) subscribe(req wire.Request, size int, first []frame) {
	r, b := c.relay, c.relay.behavior
	c.drop(req.Sub, 0) // a REQ with the same id replaces the subscription (NIP-01)
	s := c.follow(req.Sub, req.Filters, size)
	records, complete := r.stored(req.Filters)
	s.passes = b.Software == SoftwareRustNostr && s.asksIDs == len(records)
	a := &answer{sub: req.Sub, due: c.soon(), gap: b.Drip}
	a.frames = append(first, r.unasked(s, b.UnaskedEvents)...)
	a.more = c.stream(s, a, records, complete)
	c.push(a)
}

// stream returns the stored events of a subscription and then its EOSE.
func (c *Conn) stream(s *subscription, a *answer, records []*record, complete bool) func() (frame, bool) {
	r := c.relay
	b := r.behavior
	var ready []frame
	made, eose := 0, false
	return func() (frame, bool) {
		for len(ready) == 0 && len(records) > 0 {
			ready = r.serve(s.id, records[0])
			records = records[1:]
		}
		if len(ready) > 0 {
			f := ready[0]
			ready = ready[1:]
			return f, true
		}
		if b.EndlessEvents > 0 && len(s.filters) > 0 {
			a.gap = b.EndlessEvents
			made++
			return r.madeUp(s, made-1), true
		}
		if eose || b.NeverEOSE {
			return frame{}, false
		}
		eose = true
		if ended := r.program.ended; ended != nil {
			ready = ended(c, s)
		}
		m := wire.Message{Type: wire.TypeEOSE, Sub: s.id}
		if b.Hints {
			m.Hint = wire.HintMore
			if complete {
				m.Hint = wire.HintFinish
			}
		}
		return frame{msg: m, sent: func() { s.ended, s.follows = true, true }}, true
	}
}

func (c *Conn) unsubscribe(id string) {
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	c.drop(id, c.relay.behavior.LateEvents)
	if c.asking == id {
		c.asking = ""
	}
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

// violate is note for a caller that does not hold relay.mu.
func (c *Conn) violate(kind ViolationKind, detail, sub string) {
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	c.note(kind, detail, sub)
}

// note records a violation. The caller holds relay.mu.
func (c *Conn) note(kind ViolationKind, detail, sub string) {
	r := c.relay
	r.violations = remember(r.violations, Violation{At: time.Now(), Kind: kind, Conn: c.id, Sub: sub, Detail: detail})
}

func (c *Conn) inspect(req wire.Request, size int) {
	if most := or(c.info.MaxMessageLength, maxMessage); size > most {
		c.note(ViolationMessageSize, fmt.Sprintf("%d bytes, more than %d", size, most), req.Sub)
	}
	switch req.Type {
	case wire.TypeReq:
		c.inspectID(req.Sub, c.usedSubs)
		c.inspectReq(req)
	case wire.TypeNegOpen:
		c.inspectID(req.Sub, c.usedNegs)
		c.inspectNegOpen(req)
	case wire.TypeNegSend:
		if _, used := c.usedNegs[req.Sub]; !used {
			c.note(ViolationNegUnknown, "NEG-MSG", req.Sub)
		}
		if s := c.negs[req.Sub]; s != nil && s.inFlight {
			c.note(ViolationNegOverlap, fmt.Sprintf("after %d answers", s.rounds), req.Sub)
		}
	case wire.TypeAnswer:
		if len(c.challenges) == 0 || c.authed {
			c.note(ViolationAuth, "without a challenge, or again", "")
		}
	}
}

func (c *Conn) inspectID(id string, used map[string]struct{}) {
	if id == "" || len(id) > or(c.info.MaxSubIDLength, maxSubID) {
		c.note(ViolationSubID, fmt.Sprintf("%d bytes", len(id)), id)
	}
	if _, ok := used[id]; ok {
		c.note(ViolationReusedID, "used before", id)
	}
	used[id] = struct{}{}
	if !c.refusedAt.IsZero() && time.Since(c.refusedAt) < coolDown {
		c.note(ViolationCoolDown, fmt.Sprintf("%v after the refusal", time.Since(c.refusedAt)), id)
	}
}

func (c *Conn) inspectReq(req wire.Request) {
	if len(req.Filters) == 0 {
		c.note(ViolationNoFilters, "REQ", req.Sub)
	}
	if most := or(c.info.MaxFilters, maxFilters); len(req.Filters) > most {
		c.note(ViolationManyFilters, fmt.Sprintf("%d, more than %d", len(req.Filters), most), req.Sub)
	}
	if most := or(c.info.MaxSubscriptions, maxSubs); c.subs[req.Sub] == nil && len(c.subs)+1 > most {
		c.note(ViolationManySubs, fmt.Sprintf("more than %d", most), req.Sub)
	}
	historic := 0
	for _, f := range req.Filters {
		// A relay that refuses limit 0 is followed live since a moment ago. Clocks may differ by a day.
		live := f.LimitZero || f.Limit == 0 && f.Since != nil && time.Since(f.Since.Time()) < liveSince
		if !live {
			historic++
		}
		c.inspectFilter(f, req.Sub)
	}
	if historic > 0 && len(req.Filters) > 1 {
		c.note(ViolationHistoric, fmt.Sprintf("%d of %d filters", historic, len(req.Filters)), req.Sub)
	}
	if c.asking != "" && time.Since(c.askedAt) < openingTime {
		c.note(ViolationHurry, fmt.Sprintf("%v after %q", time.Since(c.askedAt), c.asking), req.Sub)
	}
	c.asking, c.askedAt = req.Sub, time.Now()
}

func (c *Conn) inspectNegOpen(req wire.Request) {
	if len(req.Filters) != 1 {
		c.note(ViolationManyFilters, fmt.Sprintf("%d in a NEG-OPEN", len(req.Filters)), req.Sub)
	}
	if most := or(c.info.MaxSubscriptions, maxSubs); c.negs[req.Sub] == nil && len(c.negs)+1 > most {
		c.note(ViolationManySubs, fmt.Sprintf("more than %d NEG sessions", most), req.Sub)
	}
	for _, f := range req.Filters {
		c.inspectFilter(f, req.Sub)
	}
}

func (c *Conn) inspectFilter(f nostr.Filter, sub string) {
	c.inspectList("ids", f.IDs, maxIDs, true, sub)
	c.inspectList("authors", f.Authors, filters.MaxValues, true, sub)
	if f.Kinds != nil && len(f.Kinds) == 0 {
		c.note(ViolationEmptyList, "kinds", sub)
	}
	if len(f.Tags) > maxTagNames {
		c.note(ViolationManyTagNames, fmt.Sprintf("%d, more than %d", len(f.Tags), maxTagNames), sub)
	}
	for _, name := range sortedKeys(f.Tags) {
		values := f.Tags[name]
		if values == nil {
			values = []string{} // encoded as an empty list
		}
		hex := name == "e" || name == "E" || name == "p" || name == "P"
		c.inspectList("#"+name, values, filters.MaxValues, hex, sub)
	}
}

func (c *Conn) inspectList(name string, values []string, most int, hex bool, sub string) {
	if values == nil {
		return
	}
	if len(values) == 0 {
		c.note(ViolationEmptyList, name, sub)
	}
	if len(values) > most {
		c.note(ViolationManyValues, fmt.Sprintf("%s: %d, more than %d", name, len(values), most), sub)
	}
	for _, v := range values {
		if _, err := graspsync.ParseEventID(v); hex && err != nil {
			c.note(ViolationValue, fmt.Sprintf("%s: %v", name, err), sub)
		} else if len(v) > maxValueLength {
			c.note(ViolationValue, fmt.Sprintf("%s: %d bytes, more than %d", name, len(v), maxValueLength), sub)
		}
	}
}

func (c *Conn) spend(what rate, perMinute int) bool {
	if perMinute == 0 {
		return true
	}
	m := c.meters[what]
	if m == nil {
		m = c.relay.program.meter()
		c.meters[what] = m
	}
	return m.take(time.Now(), perMinute)
}

// openSubs returns number and size of the other subscriptions, without those that end after their
// stored events.
func (c *Conn) openSubs(but string) (n, size int) {
	for id, s := range c.subs {
		if id != but && !s.passes {
			n++
			size += s.size
		}
	}
	return n, size
}

// challenge returns a challenge that the client may answer.
func (c *Conn) challenge() string {
	if !c.relay.program.challenges {
		for _, old := range sortedKeys(c.challenges) {
			return old
		}
	}
	if len(c.challenges) > mostChallenges {
		clear(c.challenges)
	}
	c.relay.challenges++
	text := fmt.Sprintf("challenge-%d", c.relay.challenges)
	c.challenges[text] = struct{}{}
	return text
}

// turnDown queues a refusal of type typ, or a NOTICE.
func (c *Conn) turnDown(typ wire.Type, sub string, no *refusal) {
	var frames []frame
	if no.challenge {
		frames = append(frames, frame{msg: wire.Message{Type: wire.TypeAuth, Text: c.challenge()}})
	}
	c.push(&answer{frames: append(frames, c.refused(typ, sub, no)...), due: c.soon()})
}

// refused returns the frames of a refusal. A refusal because of the rate starts the cool-down when
// it is sent.
func (c *Conn) refused(typ wire.Type, sub string, no *refusal) []frame {
	f := frame{msg: wire.Message{Type: typ, Sub: sub, Text: no.text}}
	switch {
	case no.notice:
		f.msg = wire.Message{Type: wire.TypeNotice, Text: no.text}
	case typ == wire.TypeNegErr:
		f.msg.Max = no.max
		f.negError = c.relay.program.negError
	}
	if no.rate {
		f.sent = func() {
			// A further refusal in that time concerns an earlier request.
			if c.refusedAt.IsZero() || time.Since(c.refusedAt) >= coolDown {
				c.refusedAt = time.Now()
			}
		}
	}
	frames := []frame{f}
	if no.eose {
		frames = append(frames, frame{msg: wire.Message{Type: wire.TypeEOSE, Sub: sub}})
	}
	return frames
}

func exceeds(n, limit int) bool { return limit > 0 && n > limit }

func signed(ev *nostr.Event) bool {
	if cheap(ev) {
		return true
	}
	ok, err := ev.CheckSignature()
	return err == nil && ok
}

func tagValue(ev *nostr.Event, name string) string {
	for _, tag := range ev.Tags {
		if len(tag) >= 2 && tag[0] == name {
			return tag[1]
		}
	}
	return ""
}
