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
	relayWork sync.WaitGroup // goroutines that wait for the relay

	viaTap    bool              // the Gate keeps the subscriptions
	connected chan struct{}     // closed by the relay's OnConnect
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
	for _, run := range []func() error{c.fromClient, c.toRelay, c.checkAlive, c.toClient} {
		client.Go(func() { c.end(run()) })
	}
	c.relayWork.Go(func() { c.end(c.fromRelay()) })
	<-c.ctx.Done()
	c.queue.close()
	c.hangUp()
	client.Wait()
	for len(c.inbox) > 0 {
		m := <-c.inbox
		m.release()
	}
	c.g.leave(c)
	c.requests.end()
	for len(c.slots) > 0 && c.g.open.Err() == nil { // the relay's work for a client that is gone still occupies slots
		select {
		case <-time.After(evictBy):
		case <-c.g.open.Done():
		}
	}
	_ = c.in.CloseNow()
	c.relayWork.Wait()
	for _, s := range c.requests.forget() {
		c.release(s)
	}
}

// hangUp closes the connection with the reason, or without it when the time is up.
func (c *conn) hangUp() {
	var why *hangUp
	if !errors.As(context.Cause(c.ctx), &why) { // a client's close reason is not logged
		_ = c.out.CloseNow()
		return
	}
	c.g.cfg.Logger.Debug("client disconnected", "client", c.who.ID, "reason", why)
	c.g.count(why.label)
	defer time.AfterFunc(why.by, func() { _ = c.rawOut.Close() }).Stop()
	_ = c.out.Close(why.status, why.reason)
}

// release is idempotent.
func (c *conn) release(s *sub) {
	c.g.live.remove(s)
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.stop != nil {
		s.stop()
	}
}

// fromClient also reads while earlier messages wait, to notice a disconnect.
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

// read reads a message, whose parts must arrive within bodyBy. The rest of a large one needs a slot of
// bodies. A context would close the connection without a reason.
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
	defer late.Stop()
	if m.message, err = io.ReadAll(io.LimitReader(in, smallBody)); err != nil || len(m.message) < smallBody {
		return m, err
	}
	late.Stop()
	room, err := c.g.bodies.Acquire(c.ctx, c.who, c.g.cfg.MaxMessage)
	if err != nil {
		return m, err
	}
	late.Reset(bodyBy)
	m.release = room.Release
	rest, err := io.ReadAll(in)
	if err != nil {
		m.release()
	}
	m.message = append(m.message, rest...)
	return m, err
}

func (c *conn) toRelay() error {
	if c.viaTap {
		if err := c.awaitHooks(); err != nil {
			return err
		}
	}
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
		if r.name != nil && (r.label == labelReq || r.label == labelNegOpen) { // it was to replace the open subscription
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
		if r.label == labelAuth && !c.g.cfg.Identity.IsZero() && c.viaTap {
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

// authenticate answers AUTH (NIP-42) as khatru does, but accepts all names of Config.Identity.
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

// refusesAuth returns why an event does not authenticate the client, or "".
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

func (c *conn) asks(r request, room func()) error {
	s := &sub{label: r.label, name: r.name}
	units, filters := 1, max(1, len(r.filters))
	var ctx context.Context
	c.closeSub(c.requests.find(r))
	switch r.label {
	case labelReq:
		units = 0
		for _, f := range r.filters {
			units += weight(f)
		}
		if c.viaTap {
			filters = 1
			ctx, s.stop = context.WithCancel(asker.For(c.relayCtx, c.who, func() { c.end(errSlow) }))
		}
	case labelNegOpen:
		s.timer = time.AfterFunc(answerBy, func() { c.closeSub(s) })
	}
	if !c.admitSub(s, units) {
		c.release(s)
		c.refuseSub(s)
		room()
		return nil
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
	if s.stop != nil {
		c.relayWork.Go(func() { c.answerREQ(withSubscription(ctx, strconv.FormatUint(s.number, 10)), s, p, r.filters) })
		return nil
	}
	return c.forward(r.as(s.number))
}

// admitSub registers a subscription, perhaps in place of others, and returns false without room.
func (c *conn) admitSub(s *sub, units int) bool {
	if s.label == labelCount {
		return true
	}
	if s.label == labelReq && c.requests.subscriptions() >= maxSubscriptions {
		return false
	}
	gone, ok := c.g.live.open(c, s, min(units, c.g.cfg.fixed.MaxListening))
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
	c.send(request{label: s.label, name: s.name}.refusal(reason))
}

// awaitHooks waits until the relay has called OnConnect and answers a ping, after its hooks.
func (c *conn) awaitHooks() error {
	ctx, cancel := context.WithTimeoutCause(c.ctx, closeBy, errGone)
	defer cancel()
	select {
	case <-c.connected:
		return c.in.Ping(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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

func (c *conn) isPaced() bool { return c.queue.size() <= c.g.soft() }

func (c *conn) waitForRoom(n int, room func()) (*pending, error) {
	if err := c.queue.await(c.ctx, c.isPaced); err != nil {
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
	p := &pending{releaseShared: sync.OnceFunc(func() {
		room()
		place.Release()
	})}
	p.finish = sync.OnceFunc(func() {
		p.timer.Stop()
		p.releaseShared()
		<-c.slots
	})
	p.timer = time.AfterFunc(answerBy, func() { p.finish() }) // for a relay that does not answer
	return p, nil
}

// forward does not block.
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
	c.queue.wake() // its stored events wait
	if tell {
		c.closeAtRelay(s)
	}
	return open
}

func (c *conn) closeAtRelay(s *sub) {
	if s.stop != nil {
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
	for _, p := range v.answered {
		p.finish()
	}
	if v.gone != nil {
		c.release(v.gone)
	}
	if v.close != nil {
		c.closeAtRelay(v.close)
	}
	if v.send != nil {
		c.send(v.send)
	}
}

func (c *conn) send(message []byte) { c.put(outgoing{text: message}, math.MaxInt) }

// put queues a message unless the queue has more than most bytes. It disconnects beyond MaxQueue.
func (c *conn) put(o outgoing, most int) (ok bool) {
	size, ok := c.queue.put(o, most)
	if size > c.g.cfg.fixed.MaxQueue {
		c.end(errSlow)
	}
	c.g.makeRoom()
	return ok
}

func (c *conn) toClient() error {
	for {
		var next outgoing
		if err := c.queue.await(c.ctx, func() (ok bool) {
			next, ok = c.queue.get()
			return ok
		}); err != nil {
			return err
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
}

// write completes a begun message when the connection ends.
func (c *conn) write(message []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeBy+time.Duration(len(message)>>14)*time.Second)
	defer cancel()
	err := c.out.Write(ctx, websocket.MessageText, message)
	if err != nil && ctx.Err() != nil {
		return errSlow
	}
	return err
}

// checkAlive pings the client, unless its messages wait for the relay, because its pong is not read
// then, or its queue, for which the ping would wait.
func (c *conn) checkAlive() error {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
		if !c.reading.Load() || c.queue.size() > 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(c.ctx, pongBy)
		err := c.out.Ping(ctx)
		cancel()
		if err != nil && c.reading.Load() {
			return errQuiet
		}
	}
}
