package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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

// conn is a client's connection with its connection to the relay.
type conn struct {
	g         *Gate
	who       limit.Stranger
	out, in   *websocket.Conn // to the client, to the relay
	rawOut    net.Conn        // below out
	queue     *queue
	inbox     chan inbound
	slots     chan struct{}   // one for each unanswered message
	reading   atomic.Bool     // the client's next message is awaited
	ctx       context.Context //nolint:containedctx // it is the connection's
	end       context.CancelCauseFunc
	requests  *openRequests
	closing   chan struct{}  // closed by Gate.Close: do not linger
	relayWork sync.WaitGroup // goroutines that wait for the relay

	useTap    bool              // the Gate keeps the subscriptions if the relay calls OnConnect
	tapReady  *bool             // cached result of isTapReady; nil: unknown
	connected chan struct{}     // closed by OnConnect
	ws        *khatru.WebSocket // set by OnConnect
	relayCtx  context.Context   //nolint:containedctx // it is the connection's, as the relay's hooks know it
}

type inbound struct {
	kind    websocket.MessageType
	message []byte
	release func() // releases its slot of bodies; called once
}

func (c *conn) serve() {
	var client sync.WaitGroup
	written := make(chan struct{})
	for _, run := range []func() error{c.fromClient, c.toRelay, c.checkAlive} {
		client.Go(func() { c.end(run()) })
	}
	client.Go(func() {
		defer close(written)
		c.end(c.toClient())
	})
	c.relayWork.Go(func() { c.end(c.fromRelay()) })
	<-c.ctx.Done()
	c.queue.close()
	c.hangUp(written)
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

// hangUp closes the client's connection with the reason, or without it when the time is up.
func (c *conn) hangUp(written <-chan struct{}) {
	why := context.Cause(c.ctx)
	for _, ours := range []struct {
		reason error
		count  string
		status websocket.StatusCode
		by     time.Duration
	}{
		{errSlow, hungUpSlow, websocket.StatusTryAgainLater, closeBy},
		{errRoom, "", websocket.StatusTryAgainLater, evictBy}, // it was counted, and occupies a file until then
		{errGone, "", websocket.StatusGoingAway, closeBy},
		{errQuiet, hungUpQuiet, 0, 0},
	} {
		if !errors.Is(why, ours.reason) { // a client's close reason is not logged
			continue
		}
		c.g.cfg.Logger.Debug("client disconnected", "client", c.who.ID, "reason", ours.reason)
		if ours.count != "" {
			c.g.count(ours.count)
		}
		if ours.status != 0 {
			defer time.AfterFunc(ours.by, func() { _ = c.rawOut.Close() }).Stop()
			<-written
			_ = c.out.Close(ours.status, ours.reason.Error())
			return
		}
	}
	_ = c.out.CloseNow()
}

// linger waits until the relay has answered a client that is gone, because its work still occupies
// slots.
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

func (c *conn) releaseAll() {
	subs, left := c.requests.forget()
	for _, s := range subs {
		c.release(s)
	}
	for _, p := range left {
		p.finish()
	}
}

// release is idempotent.
func (c *conn) release(s *sub) {
	c.g.live.remove(s)
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.viaTap {
		s.stop(nil)
	}
}

// fromClient also reads while earlier messages wait, to notice when the client disconnects.
func (c *conn) fromClient() error {
	for {
		m, err := c.read()
		if err != nil {
			return err
		}
		for !c.g.messages.Allow(c.who, 1) && c.ctx.Err() == nil {
			select {
			case <-time.After(messageWait):
			case <-c.ctx.Done():
			}
		}
		select {
		case c.inbox <- m:
		case <-c.ctx.Done():
			m.release()
			return context.Cause(c.ctx)
		}
	}
}

// read reads a message, whose parts must arrive within bodyBy. A large one needs a slot of bodies
// before its rest is read. Reading has no context, because the end of a context would close the
// connection without a reason.
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

func (c *conn) handleMessage(m inbound) error {
	if m.kind != websocket.MessageText {
		m.release()
		c.send(noticeMessage("invalid: messages are text"))
		return nil
	}
	r, answer := c.g.parse(m.message)
	if answer != nil {
		m.release()
		if r.name != "" && (r.label == labelReq || r.label == labelNegOpen) { // it was to replace the open subscription
			c.closeSub(c.requests.find(r))
		}
		c.send(answer)
		return nil
	}
	return c.handleRequest(r, m.release)
}

func (c *conn) handleRequest(r request, room func()) error {
	switch r.label {
	case labelClose, labelNegClose:
		room()
		c.closeSub(c.requests.find(r))
		return nil
	case labelEvent, labelAuth:
		p, err := c.admit(c.g.events, 1, room)
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

// authenticate answers an AUTH as khatru does, but accepts all names of Config.Identity.
func (c *conn) authenticate(e *nostr.Event) {
	reason := c.refusesAuth(e)
	if reason == "" {
		c.ws.AuthedPublicKey = e.PubKey
		if c.ws.Authed != nil { // hooks may wait for it
			close(c.ws.Authed)
			c.ws.Authed = nil
		}
	}
	c.send(okMessage(e.ID, reason == "", reason))
}

// refusesAuth returns why an event does not authenticate the client (NIP-42), or "".
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

// asks handles REQ, COUNT and NEG-OPEN.
func (c *conn) asks(r request, room func()) error {
	s := &sub{label: r.label, name: quoted(r.name), key: r.name, filters: max(1, len(r.filters))}
	c.closeSub(c.requests.find(r))
	switch r.label {
	case labelReq:
		for _, f := range r.filters {
			s.weight += weight(f)
		}
		s.weight = min(s.weight, c.g.cfg.fixed.MaxListening)
		if s.viaTap = c.isTapReady(); s.viaTap {
			s.sent = make(map[string]struct{})
			s.ctx, s.stop = context.WithCancelCause(asker.For(c.relayCtx, c.who, func() { c.end(errSlow) }))
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
	filters := s.filters
	if s.viaTap { // its filters are queried one after the other
		filters = 1
	}
	p, err := c.waitForRoom(filters, room)
	if err != nil {
		c.release(s)
		return err
	}
	if !c.requests.open(s, p) {
		p.finish()
		return nil
	}
	if s.viaTap {
		c.relayWork.Go(func() { c.answerREQ(withSubscription(s.ctx, strconv.FormatUint(s.number, 10)), s, p, r.filters) })
		return nil
	}
	return c.forward(r.as(s.number))
}

// admitSub registers a subscription, perhaps in place of others. It returns false if there is no
// room.
func (c *conn) admitSub(s *sub) bool {
	if s.label == labelCount {
		return true
	}
	if s.label == labelReq && c.requests.subscriptions() >= maxSubscriptions {
		return false
	}
	gone, ok := c.g.live.open(c, s)
	for _, o := range gone {
		o.Value.evict(o.Key)
	}
	return ok
}

func (c *conn) evict(s *sub) {
	if c.closeSub(s) {
		c.refuseSub(s)
	}
}

func (c *conn) refuseSub(s *sub) {
	what, reason := refusedListening, "rate-limited: too many subscriptions are open"
	if s.label == labelNegOpen {
		what, reason = refusedNegs, "rate-limited: too many negentropy subscriptions"
	}
	c.g.countRefusal(c.who.ID, what)
	c.send(request{label: s.label, name: s.key}.refusal(reason))
}

// isTapReady waits until the relay has called OnConnect and answers a ping, because then its hooks
// for the connection have returned. If the relay does neither, it keeps the subscriptions. Called
// by toRelay only.
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
		if c.ctx.Err() == nil { // else the client is gone
			c.g.tap.connectMissed()
		}
	}
	return reads
}

func (c *conn) onConnect(ctx context.Context, ws *khatru.WebSocket) {
	c.ws, c.relayCtx = ws, ctx
	close(c.connected)
	c.g.tap.connectSeen.Store(true)
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

func (c *conn) waitForRoom(n int, room func()) (*pending, error) {
	if err := c.queue.await(c.ctx, func(size int) bool { return size <= c.g.soft() }); err != nil {
		return nil, err
	}
	return c.admit(c.g.work, n, room)
}

// admit waits for a place of the connection and for n of the slots.
func (c *conn) admit(slots *limit.Slots, n int, room func()) (*pending, error) {
	select {
	case c.slots <- struct{}{}:
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
	place, err := slots.Acquire(c.ctx, c.who, min(int64(n), placesPart))
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

// forward sends a message to the relay. It does not block.
func (c *conn) forward(message []byte) error {
	return c.in.Write(context.Background(), websocket.MessageText, message)
}

// closeSub reports whether s was open. s may be nil.
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

func (c *conn) fromRelay() error {
	for {
		_, message, err := c.in.Read(context.Background())
		if err != nil {
			return errors.Join(errGone, err)
		}
		c.handleAnswer(bytes.TrimRight(message, "\n"))
	}
}

func (c *conn) handleAnswer(message []byte) {
	v := c.requests.applyAnswer(message)
	if v.begun != nil {
		v.begun.releaseShared() // the relay has read the store
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

// send queues a message.
func (c *conn) send(message []byte) { c.put(outgoing{text: message}, math.MaxInt) }

// put queues a message unless the queue has more than most bytes. It disconnects a client whose
// queue is too long.
func (c *conn) put(o outgoing, most int) (ok bool) {
	size, ok := c.queue.put(o, most)
	if size > c.g.cfg.fixed.MaxQueue {
		c.end(errSlow)
	}
	c.g.makeRoom()
	return ok
}

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
		_ = c.out.Write(ctx, websocket.MessageText, noticeMessage("closed: "+errSlow.Error())) // best effort
	}
	return why
}

// write splits a long message into frames, because pings would otherwise wait for all of it. A
// begun message is completed when the connection ends.
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

// checkAlive pings the client. While its messages wait for the relay its pong is not read, and only
// a failed write ends the connection.
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
			continue // a client that reads is alive, and a ping would wait for the queue
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
