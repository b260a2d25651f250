package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/asker"
	"github.com/graspsync/graspsync/limit"
)

// conn is a client's connection and the one that the relay has for it.
type conn struct {
	g         *Gate
	who       limit.Stranger
	out, in   *websocket.Conn // the client's, the relay's
	rawOut    net.Conn        // below the client's
	queue     *queue
	inbox     chan inbound
	slots     chan struct{}   // of messages that have no answer
	reading   atomic.Bool     // the client's next message is waited for
	ctx       context.Context //nolint:containedctx // it is the connection's
	end       context.CancelCauseFunc
	requests  *openRequests
	closing   chan struct{}  // closed: there is no time to linger
	relayWork sync.WaitGroup // who waits for the relay

	useTap    bool              // subscriptions are the gate's, if the relay tells of the connection
	tapReady  *bool             // whether the relay has told of it, and reads; nil: that was not asked for
	connected chan struct{}     // closed: the relay has told of the connection
	ws        *khatru.WebSocket // what it is there
	relayCtx  context.Context   //nolint:containedctx // it is the connection's, as the relay's hooks know it
}

// inbound is a message of the client that has not been looked at.
type inbound struct {
	kind    websocket.MessageType
	message []byte
	release func() // gives back what it takes up, once
}

func (c *conn) serve() {
	var client sync.WaitGroup
	said := make(chan struct{})
	for _, run := range []func() error{c.fromClient, c.toRelay, c.checkAlive} {
		client.Go(func() { c.end(run()) })
	}
	client.Go(func() {
		defer close(said)
		c.end(c.toClient())
	})
	c.relayWork.Go(func() { c.end(c.fromRelay()) })
	<-c.ctx.Done()
	c.queue.close()
	c.hangUp(said)
	client.Wait()
	for len(c.inbox) > 0 {
		m := <-c.inbox
		m.release()
	}
	c.g.leave(c)
	c.linger()
	c.relayWork.Wait()
	c.releaseAll()
}

// hangUp ends the client's connection, and says why.
func (c *conn) hangUp(written <-chan struct{}) {
	why := context.Cause(c.ctx)
	for _, ours := range []error{errSlow, errQuiet, errRoom} {
		if errors.Is(why, ours) { // what a client says of its going is its own
			c.g.cfg.Logger.Debug("a client was hung up", "client", c.who.ID, "why", ours)
		}
	}
	switch {
	case errors.Is(why, errSlow):
		c.g.count(hungUpSlow)
		c.closeWithReason(written, websocket.StatusTryAgainLater, errSlow, closeBy)
	case errors.Is(why, errQuiet):
		c.g.count(hungUpQuiet)
		_ = c.out.CloseNow()
	case errors.Is(why, errRoom):
		c.closeWithReason(written, websocket.StatusTryAgainLater, errRoom, evictBy) // it takes up a file until then
	case errors.Is(why, errGone):
		c.closeWithReason(written, websocket.StatusGoingAway, errGone, closeBy)
	default:
		_ = c.out.CloseNow()
	}
}

// bye closes the client's connection and says why, if that can be done soon.
func (c *conn) closeWithReason(said <-chan struct{}, status websocket.StatusCode, why error, by time.Duration) {
	defer time.AfterFunc(by, func() { _ = c.rawOut.Close() }).Stop()
	<-said
	_ = c.out.Close(status, why.Error())
}

// linger waits until the relay has answered what it was asked for, which nobody hears: what that takes
// up is not for others before.
func (c *conn) linger() {
	late := time.NewTimer(lingerBy)
	defer late.Stop()
	select {
	case <-c.requests.end():
	case <-late.C:
	case <-c.closing:
	}
	_ = c.in.CloseNow()
}

// over gives back what the connection had.
func (c *conn) releaseAll() {
	subs, left := c.requests.forget()
	for _, s := range subs {
		c.release(s)
	}
	for _, p := range left {
		p.finish()
	}
}

// giveUp gives back the room of a subscription. It may be called again.
func (c *conn) release(s *sub) {
	c.g.live.remove(s)
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.viaTap {
		s.stop(nil)
	}
}

// fromClient reads what the client writes, and ahead of what waits for the relay: who goes away
// while something of theirs waits is noticed.
func (c *conn) fromClient() error {
	for {
		m, err := c.read()
		if err != nil {
			return err
		}
		select {
		case c.inbox <- m:
		case <-c.ctx.Done():
			m.release()
			return context.Cause(c.ctx)
		}
	}
}

// read reads a message. One that is not small has room for it before it is read on, and all of it
// comes in a while. What ends the connection closes it, and so ends this: a context would leave no
// time to say why.
func (c *conn) read() (m inbound, err error) {
	m.release = func() {}
	c.reading.Store(true)
	kind, in, err := c.out.Reader(context.Background())
	c.reading.Store(false)
	if err != nil {
		return m, err
	}
	m.kind = kind
	late := time.AfterFunc(bodyBy, func() { c.end(errQuiet) })
	defer func() { late.Stop() }()
	m.message, err = io.ReadAll(io.LimitReader(in, smallBody))
	if err != nil || len(m.message) < smallBody {
		return m, err
	}
	late.Stop()
	room, err := c.g.bodies.Acquire(c.ctx, c.who, c.g.cfg.MaxMessage)
	if err != nil {
		return m, err
	}
	m.release = room.Release
	late = time.AfterFunc(bodyBy, func() { c.end(errQuiet) })
	rest, err := io.ReadAll(in)
	if err != nil {
		m.release()
	}
	m.message = append(m.message, rest...)
	return m, err
}

// toRelay hands on what was read, one message after the other.
func (c *conn) toRelay() error {
	for {
		var m inbound
		select {
		case m = <-c.inbox:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
		c.g.touch(c)
		if err := c.handleMessage(m); err != nil {
			m.release()
			return err
		}
	}
}

// look deals with a message.
func (c *conn) handleMessage(m inbound) error {
	if m.kind != websocket.MessageText {
		m.release()
		c.send(noticeMessage("invalid: messages are text"))
		return nil
	}
	r, answer := c.g.parse(m.message)
	if answer != nil {
		m.release()
		if r.name != "" && (r.label == labelReq || r.label == labelNegOpen) { // it was to take the place of one that is open
			c.closeSub(c.requests.find(r))
		}
		c.send(answer)
		return nil
	}
	return c.handleRequest(r, m.release)
}

// take hands a message on to the relay when that has time for it.
func (c *conn) handleRequest(r request, room func()) error {
	switch r.label {
	case labelClose, labelNegClose:
		room()
		c.closeSub(c.requests.find(r))
		return nil
	case labelEvent, labelAuth:
		p, err := c.admit(1, room)
		if err != nil {
			return err
		}
		if r.label == labelAuth && !c.g.cfg.Identity.IsZero() && c.isTapReady() {
			c.authenticate(r.event)
			p.finish()
			return nil
		}
		c.requests.addEvent(p)
		return c.forward(r.as(0))
	case labelNegMsg:
		return c.continueNeg(r, room)
	}
	return c.asks(r, room)
}

// authenticate answers an AUTH as khatru does, which knows the relay by one name and can't know it by more.
func (c *conn) authenticate(e *nostr.Event) {
	reason := c.refusesAuth(e)
	if reason == "" {
		c.ws.AuthedPublicKey = e.PubKey
		if c.ws.Authed != nil { // hooks may wait for that
			close(c.ws.Authed)
			c.ws.Authed = nil
		}
	}
	c.send(okMessage(e.ID, reason == "", reason))
}

// refusesAuth returns why an event does not authenticate the client (NIP-42), and "" if it does.
func (c *conn) refusesAuth(e *nostr.Event) string {
	relay, challenge := e.Tags.Find("relay"), e.Tags.Find("challenge")
	off := time.Since(e.CreatedAt.Time()).Round(time.Second).Abs()
	switch {
	case e.Kind != nostr.KindClientAuthentication:
		return fmt.Sprintf("invalid: kind: %d is not %d", e.Kind, nostr.KindClientAuthentication)
	case challenge == nil:
		return "invalid: the challenge tag is missing"
	case challenge[1] != c.ws.Challenge:
		return "invalid: challenge: not the challenge of this connection"
	case relay == nil:
		return "invalid: the relay tag is missing"
	case off > authSpan:
		return fmt.Sprintf("invalid: created_at: %s from our clock, more than %s", off, authSpan)
	}
	switch u, err := graspsync.ParseRelayURL(relay[1]); {
	case err != nil:
		return "invalid: relay: " + err.Error()
	case !c.g.cfg.Identity.IsServedAt(u.URL()):
		return "invalid: relay: not an address of this relay, which is " + c.g.cfg.Identity.String()
	case !e.CheckID():
		return "invalid: id: not the hash of the event"
	}
	if ok, err := e.CheckSignature(); !ok || err != nil {
		return "invalid: sig: not a signature of the event by its pubkey"
	}
	return ""
}

// asks hands on what wants an answer from what is stored.
func (c *conn) asks(r request, room func()) error {
	s := &sub{label: r.label, name: quoted(r.name), key: r.name, filters: max(1, len(r.filters)), abandoned: make(chan struct{})}
	c.closeSub(c.requests.find(r))
	switch r.label {
	case labelReq:
		s.sent = newSentEvents()
		for _, f := range r.filters {
			s.weight += weight(f)
		}
		s.weight = min(s.weight, c.g.cfg.fixed.MaxListening)
		if s.viaTap = c.isTapReady(); s.viaTap {
			s.ctx, s.stop = context.WithCancelCause(asker.For(c.relayCtx, c.who))
		}
	case labelNegOpen:
		s.weight = 1
		s.timer = time.AfterFunc(answerBy, func() { c.closeSub(s) })
	}
	if !c.admitSub(s) {
		c.release(s)
		c.refuseSub(s)
		room()
		return nil
	}
	p, err := c.waitForRoom(s.filters, room)
	if err != nil {
		c.release(s)
		return err
	}
	if !c.requests.open(s, p) {
		p.finish()
		return nil
	}
	if s.viaTap {
		c.startAnswer(s, r.filters)
		return nil
	}
	return c.forward(r.as(s.number))
}

// opens adds a subscription or a reconciliation to those that are open, and closes those that yield to it. It reports
// false if there is no room for it.
func (c *conn) admitSub(s *sub) bool {
	if s.label == labelCount {
		return true
	}
	if s.label == labelReq && c.requests.subscriptions() >= c.g.cfg.fixed.MaxSubscriptions {
		return false
	}
	gone, ok := c.g.live.open(c, s)
	for _, o := range gone {
		o.Value.evict(o.Key)
	}
	return ok
}

// yields ends a subscription or a reconciliation because others need its room.
func (c *conn) evict(s *sub) {
	if c.closeSub(s) {
		c.refuseSub(s)
	}
}

// refuse tells the client that there is no room for a subscription or a reconciliation.
func (c *conn) refuseSub(s *sub) {
	what, reason := refusedListening, "rate-limited: too many subscriptions are open"
	if s.label == labelNegOpen {
		what, reason = refusedNegs, "rate-limited: too many negentropy subscriptions"
	}
	c.g.countRefusal(c.who.ID, what)
	c.send(request{label: s.label, name: s.key}.refusal(reason))
}

// isOwn waits until the relay has told of the connection and reads from it: then all hooks that it has for those that are new
// are over. One that does neither has the subscriptions. It is called by toRelay alone.
func (c *conn) isTapReady() bool {
	if !c.useTap || c.tapReady != nil {
		return c.useTap && *c.tapReady
	}
	ctx, cancel := context.WithTimeout(c.ctx, closeBy)
	defer cancel()
	reads := false
	c.tapReady = &reads
	select {
	case <-c.connected:
		reads = c.in.Ping(ctx) == nil
	case <-ctx.Done():
		if c.ctx.Err() == nil { // else it is the client that went
			c.g.tap.connectMissed()
		}
	}
	return reads
}

// enter is called when the relay has the connection.
func (c *conn) onConnect(ctx context.Context, ws *khatru.WebSocket) {
	c.ws, c.relayCtx = ws, ctx
	close(c.connected)
	c.g.tap.connectSeen.Store(true)
}

// ask has what is stored looked for, and what is published heard of.
func (c *conn) startAnswer(s *sub, filters []nostr.Filter) {
	c.relayWork.Go(func() { c.answerREQ(withSubscription(s.ctx, strconv.FormatUint(s.number, 10)), s, filters) })
}

func (c *conn) continueNeg(r request, room func()) error {
	p, err := c.waitForRoom(1, room)
	if err != nil {
		return err
	}
	s := c.requests.continueNeg(r, p)
	if s == nil {
		p.finish()
		c.send(r.refusal("closed: no reconciliation has this name"))
		return nil
	}
	return c.forward(r.as(s.number))
}

// ready waits until the client has read what it has asked for before, and then for the relay.
func (c *conn) waitForRoom(n int, room func()) (*pending, error) {
	for {
		less := c.queue.shrunk()
		if !c.isFull(c.requests.unreadBytes()) {
			return c.admit(n, room)
		}
		select {
		case <-less:
		case <-c.ctx.Done():
			return nil, context.Cause(c.ctx)
		}
	}
}

// full reports whether the client has enough to read, with what is coming: a part of its queue, and
// where all queues are half full anything at all.
func (c *conn) isFull(coming int) bool {
	n, _ := c.queue.size()
	n += coming
	return n > c.g.softLimit || n > 0 && c.g.queued.Load() > int64(c.g.cfg.MaxQueues/2)
}

// pace has an event that is stored wait until the client has read most of what came before. The relay has done what it had to
// do for it, so the answer takes up nothing that others need.
func (c *conn) pace(ctx context.Context, number uint64, size int) {
	for {
		less := c.queue.shrunk()
		ok, s, p := c.requests.admitStored(number, size, func(coming int) bool { return !c.isFull(coming) })
		if ok {
			return
		}
		p.timer.Stop()
		p.releaseShared()
		select {
		case <-less:
		case <-s.abandoned:
		case <-ctx.Done():
			return
		case <-c.ctx.Done():
			return
		}
		p.timer.Reset(answerBy)
	}
}

// admit waits until the relay has time for a message.
func (c *conn) admit(n int, room func()) (*pending, error) {
	select {
	case c.slots <- struct{}{}:
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
	place, err := c.g.work.Acquire(c.ctx, c.who, min(int64(n), placesPart))
	if err != nil {
		<-c.slots
		return nil, err
	}
	p := &pending{}
	p.shared = func() {
		room()
		place.Release()
	}
	p.slot = func() {
		<-c.slots
		c.requests.answered(p)
	}
	c.requests.add(p)
	return p, nil
}

// forward hands a message on to the relay. It does not block.
func (c *conn) forward(message []byte) error {
	return c.in.Write(context.Background(), websocket.MessageText, message)
}

// closes ends a subscription that there may be, and reports whether it was open.
func (c *conn) closeSub(s *sub) bool {
	if s == nil {
		return false
	}
	open, tell := c.requests.close(s)
	c.release(s)
	c.queue.wakeWaiters()
	if tell {
		c.closeAtRelay(s)
	}
	return open
}

// ended tells the relay that a subscription is over that it has open.
func (c *conn) closeAtRelay(s *sub) {
	c.release(s)
	for _, p := range c.requests.takePending(s) {
		p.finish()
	}
	if s.viaTap {
		return
	}
	label := labelClose
	if s.label == labelNegOpen {
		label = labelNegClose
	}
	if err := c.forward(encodeMessage(label, nameOf(s.number))); err != nil {
		c.end(err)
	}
}

// fromRelay reads what the relay writes, at once, and goes on when the client has gone.
func (c *conn) fromRelay() error {
	for {
		_, message, err := c.in.Read(context.Background())
		if err != nil {
			return errors.Join(errGone, err)
		}
		c.handleAnswer(bytes.TrimRight(message, "\n"))
	}
}

// heard deals with a message of the relay.
func (c *conn) handleAnswer(message []byte) {
	v := c.requests.applyAnswer(message)
	if v.send == nil || v.s != nil {
		c.queue.wakeWaiters() // what is not said, and what has not come, makes room
	}
	if v.p != nil {
		v.p.finish()
	}
	switch {
	case v.close:
		c.closeAtRelay(v.s)
	case v.ended:
		c.release(v.s)
	}
	if v.send != nil {
		c.send(v.send)
	}
}

// say has a message written to the client. Who does not read what there is loses the connection,
// nobody waits for them.
func (c *conn) send(message []byte) { c.put(outgoing{text: message}) }

func (c *conn) put(o outgoing) {
	size, ok := c.queue.put(o)
	if !ok {
		return
	}
	if size > c.g.cfg.fixed.MaxQueue {
		c.end(errSlow)
	}
	c.g.makeRoom()
}

// toClient writes what is to be said, and why there is no more of it.
func (c *conn) toClient() error {
	for c.ctx.Err() == nil {
		next, ok := c.queue.get()
		if !ok {
			select {
			case <-c.queue.more:
			case <-c.ctx.Done():
			}
			continue
		}
		var err error
		for message := range next.messages() {
			if err = c.write(message); err != nil || c.ctx.Err() != nil {
				break
			}
		}
		c.queue.written(next)
		if err != nil {
			return err
		}
	}
	why := context.Cause(c.ctx)
	if errors.Is(why, errSlow) {
		ctx, cancel := context.WithTimeout(context.Background(), closeBy)
		defer cancel()
		_ = c.out.Write(ctx, websocket.MessageText, noticeMessage("closed: "+errSlow.Error())) // the connection is over
	}
	return why
}

// write writes a message, a long one in frames: pings and their answers are written between them,
// which would not wait for all of it. When the connection ends there is time for what is begun.
func (c *conn) write(message []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeBy+time.Duration(len(message)>>14)*time.Second)
	defer cancel()
	err := func() error {
		if len(message) <= frame {
			return c.out.Write(ctx, websocket.MessageText, message)
		}
		w, err := c.out.Writer(ctx, websocket.MessageText)
		for len(message) > 0 && err == nil && c.ctx.Err() == nil {
			n := min(len(message), frame)
			_, err = w.Write(message[:n])
			message = message[n:]
		}
		if err != nil {
			return err
		}
		if len(message) > 0 {
			return context.Cause(c.ctx)
		}
		return w.Close()
	}()
	if err != nil && ctx.Err() != nil && c.ctx.Err() == nil {
		return errSlow
	}
	return err
}

// signs has the client give signs of life. Who is not read, since what they have said waits for the
// relay, is written to: if there is nobody any more that fails.
func (c *conn) checkAlive() error {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
		if n, _ := c.queue.size(); n > 0 {
			continue // reading is one, and a ping would have to wait for what is read
		}
		by := pongBy
		if !c.reading.Load() {
			by = pingBy
		}
		ctx, cancel := context.WithTimeout(c.ctx, by)
		err := c.out.Ping(ctx)
		late := ctx.Err() != nil
		cancel()
		if err != nil && c.ctx.Err() == nil && (!late || by == pongBy && c.reading.Load()) {
			return errQuiet
		}
	}
}
