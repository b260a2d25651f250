package gate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// conn is a client's connection and the one that the relay has for it.
type conn struct {
	g       *Gate
	client  string
	out, in *websocket.Conn // the client's, the relay's
	queue   *queue
	drained chan struct{}   // holds one: less waits to be written
	slots   chan struct{}   // of messages that have no answer
	reading atomic.Bool     // the client's next message is waited for
	ctx     context.Context //nolint:containedctx // it is the connection's
	end     context.CancelCauseFunc

	mu sync.Mutex
	// guarded by mu
	number  uint64
	subs    map[string]*sub // by name: REQ
	negs    map[string]*sub // NEG-OPEN
	byOurs  map[uint64]*sub
	events  []*pending // EVENT and AUTH that have no answer, the oldest first
	waiting map[*pending]struct{}
}

// sub is what a client has a name for.
type sub struct {
	label   string
	number  uint64
	name    []byte // as it is written
	key     string
	filters int
	done    bool       // the relay has answered: stored events have come
	closed  bool       // the client wants no more of it
	pending []*pending // what has no answer, the oldest first
	timer   *time.Timer
	leave   sync.Once // its room is given back
}

// pending is a message that has no answer yet, and what it takes up.
type pending struct {
	once    sync.Once
	release func()
	timer   *time.Timer
}

func (p *pending) over() {
	p.once.Do(func() {
		p.timer.Stop()
		p.release()
	})
}

// websocket serves a client that wants one.
func (g *Gate) websocket(w http.ResponseWriter, r *http.Request) {
	ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
	c := &conn{
		g: g, client: g.cfg.Client(r), queue: newQueue(), drained: make(chan struct{}, 1), slots: make(chan struct{}, placesOf),
		ctx: ctx, end: end, subs: make(map[string]*sub), negs: make(map[string]*sub), byOurs: make(map[uint64]*sub),
		waiting: make(map[*pending]struct{}),
	}
	defer end(nil)
	if !g.enter(c) {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "too many connections", http.StatusServiceUnavailable)
		return
	}
	defer g.leave(c)
	in, resp, err := g.dial(ctx, r) //nolint:bodyclose // a pipe that has ended
	if err != nil {
		refuse(w, resp)
		return
	}
	c.in = in
	defer func() { _ = in.CloseNow() }()
	c.out, err = websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // it has been answered
	}
	c.out.SetReadLimit(g.cfg.MaxMessage)
	c.serve()
}

// refuse hands on how the relay has refused a websocket.
func refuse(w http.ResponseWriter, resp *http.Response) {
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

func (c *conn) serve() {
	var wg sync.WaitGroup
	for _, run := range []func() error{c.fromClient, c.fromRelay, c.toClient, c.signs} {
		wg.Go(func() { c.end(run()) })
	}
	<-c.ctx.Done()
	why := context.Cause(c.ctx)
	for _, ours := range []error{errSlow, errQuiet, errRoom} {
		if errors.Is(why, ours) { // what a client says of its going is its own
			c.g.cfg.Logger.Debug("a client was hung up", "client", c.client, "why", ours)
		}
	}
	switch {
	case errors.Is(why, errSlow):
		c.g.count("slow")
		_ = c.out.Close(websocket.StatusTryAgainLater, why.Error())
	case errors.Is(why, errQuiet):
		c.g.count("quiet")
		_ = c.out.CloseNow()
	case errors.Is(why, errRoom):
		_ = c.out.Close(websocket.StatusTryAgainLater, why.Error())
	case errors.Is(why, errGone):
		_ = c.out.Close(websocket.StatusGoingAway, why.Error())
	default:
		_ = c.out.CloseNow()
	}
	_ = c.in.CloseNow()
	c.queue.close()
	wg.Wait()
	c.over()
}

// over gives back what the connection had. The relay may still be at what it was asked for.
func (c *conn) over() {
	c.g.queued.Add(-int64(c.queue.size()))
	c.mu.Lock()
	left := make([]*pending, 0, len(c.waiting))
	for p := range c.waiting {
		left = append(left, p)
	}
	var all []*sub
	for _, s := range c.byOurs {
		all = append(all, s)
	}
	clear(c.byOurs)
	c.mu.Unlock()
	for _, s := range all {
		c.giveUp(s)
	}
	time.AfterFunc(goneFor, func() {
		for _, p := range left {
			p.over()
		}
	})
}

// giveUp gives back the room of a subscription.
func (c *conn) giveUp(s *sub) {
	s.leave.Do(func() {
		switch s.label {
		case labelReq:
			c.g.listening.leave(c.client, s.filters)
		case labelNegOpen:
			s.timer.Stop()
			c.g.negs.leave(c.client, 1)
		}
	})
}

// fromClient reads what the client writes.
func (c *conn) fromClient() error {
	for {
		kind, message, room, err := c.read()
		if err != nil {
			return err
		}
		if kind != websocket.MessageText {
			c.say(notice("invalid: messages are text"))
			room()
			continue
		}
		r, answer := c.g.parse(message)
		if answer != nil {
			c.say(answer)
			room()
			continue
		}
		if err := c.take(r, room); err != nil {
			room()
			return err
		}
	}
}

// read reads a message. One that is not small has room for it before it is read on, which room
// gives back, and all of it comes in a while.
func (c *conn) read() (kind websocket.MessageType, message []byte, room func(), err error) {
	room = func() {}
	c.reading.Store(true)
	kind, in, err := c.out.Reader(c.ctx)
	c.reading.Store(false)
	if err != nil {
		return kind, nil, room, err
	}
	late := time.AfterFunc(bodyBy, func() { c.end(errQuiet) })
	defer func() { late.Stop() }()
	message, err = io.ReadAll(io.LimitReader(in, smallBody))
	if err != nil || len(message) < smallBody {
		return kind, message, room, err
	}
	late.Stop()
	size := int(c.g.cfg.MaxMessage)
	if err := c.g.bodies.enter(c.ctx, c.client, size); err != nil {
		return kind, nil, room, err
	}
	var once sync.Once
	room = func() { once.Do(func() { c.g.bodies.leave(c.client, size) }) }
	late = time.AfterFunc(bodyBy, func() { c.end(errQuiet) })
	rest, err := io.ReadAll(in)
	if err != nil {
		room()
	}
	return kind, append(message, rest...), room, err
}

// take hands a message on to the relay when that has time for it.
func (c *conn) take(r request, room func()) error {
	switch r.label {
	case labelClose:
		room()
		return c.closes(c.named(c.subs, r.name))
	case labelNegClose:
		room()
		return c.closes(c.named(c.negs, r.name))
	case labelEvent, labelAuth:
		p, err := c.admit(1, room)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.events = append(c.events, p)
		c.mu.Unlock()
		return c.forward(r.as(0))
	case labelNegMsg:
		return c.negMessage(r, room)
	}
	return c.asks(r, room)
}

// asks hands on what wants an answer from what is stored.
func (c *conn) asks(r request, room func()) error {
	s := &sub{label: r.label, name: quoted(r.name), key: r.name, filters: len(r.parts)}
	table := c.subs
	switch r.label {
	case labelReq:
		if err := c.closes(c.named(c.subs, r.name)); err != nil {
			return err
		}
		if !c.g.listening.try(c.client, s.filters) {
			c.say(r.refusal("rate-limited: too many subscriptions are open"))
			room()
			return nil
		}
	case labelNegOpen:
		if err := c.closes(c.named(c.negs, r.name)); err != nil {
			return err
		}
		s.filters = 1
		if table = c.negs; c.many(table) >= negOf || !c.g.negs.try(c.client, 1) {
			c.say(r.refusal("rate-limited: too many negentropy subscriptions"))
			room()
			return nil
		}
		s.timer = time.AfterFunc(answerBy, func() { _ = c.closes(s) })
	case labelCount:
		table = nil
	}
	p, err := c.ready(s.filters, room)
	if err != nil {
		c.giveUp(s)
		return err
	}
	c.mu.Lock()
	c.number++
	s.number, s.pending = c.number, []*pending{p}
	c.byOurs[s.number] = s
	if table != nil {
		table[s.key] = s
	}
	c.mu.Unlock()
	return c.forward(r.as(s.number))
}

func (c *conn) negMessage(r request, room func()) error {
	p, err := c.ready(1, room)
	if err != nil {
		return err
	}
	c.mu.Lock()
	s := c.negs[r.name]
	if s != nil {
		s.pending = append(s.pending, p)
		s.timer.Reset(answerBy) // it is in use
	}
	c.mu.Unlock()
	if s == nil {
		p.over()
		c.say(r.refusal("closed: no reconciliation has this name"))
		return nil
	}
	return c.forward(r.as(s.number))
}

// ready waits until the client has read what it has asked for before, and then for the relay.
func (c *conn) ready(n int, room func()) (*pending, error) {
	for c.queue.size() > softQueue {
		select {
		case <-c.drained:
		case <-c.ctx.Done():
			return nil, context.Cause(c.ctx)
		}
	}
	return c.admit(n, room)
}

// admit waits until the relay has time for a message.
func (c *conn) admit(n int, room func()) (*pending, error) {
	select {
	case c.slots <- struct{}{}:
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
	if err := c.g.work.enter(c.ctx, c.client, n); err != nil {
		<-c.slots
		return nil, err
	}
	p := &pending{}
	p.release = func() {
		room()
		c.g.work.leave(c.client, n)
		<-c.slots
		c.mu.Lock()
		delete(c.waiting, p)
		c.mu.Unlock()
	}
	c.mu.Lock()
	c.waiting[p] = struct{}{}
	p.timer = time.AfterFunc(answerBy, p.over) // the relay owes one answer to each, but who knows
	c.mu.Unlock()
	return p, nil
}

func (c *conn) forward(message []byte) error {
	ctx, cancel := context.WithTimeout(c.ctx, answerBy)
	defer cancel()
	return c.in.Write(ctx, websocket.MessageText, message)
}

func (c *conn) named(table map[string]*sub, name string) *sub {
	c.mu.Lock()
	defer c.mu.Unlock()
	return table[name]
}

func (c *conn) many(table map[string]*sub) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(table)
}

// closes ends a subscription that there may be. The relay is told once it has answered: what closes
// and what opens may be dealt with in any order.
func (c *conn) closes(s *sub) error {
	if s == nil {
		return nil
	}
	c.mu.Lock()
	if s.closed {
		c.mu.Unlock()
		return nil
	}
	s.closed = true
	c.unname(s)
	done := s.done && len(s.pending) == 0
	if done {
		delete(c.byOurs, s.number)
	}
	c.mu.Unlock()
	if !done {
		return nil
	}
	return c.ended(s)
}

// unname forgets the name of a subscription. It is called with mu held.
func (c *conn) unname(s *sub) {
	for _, table := range []map[string]*sub{c.subs, c.negs} {
		if table[s.key] == s {
			delete(table, s.key)
		}
	}
}

// ended tells the relay that a subscription is over that it has open.
func (c *conn) ended(s *sub) error {
	c.giveUp(s)
	c.mu.Lock()
	left := s.pending
	s.pending = nil
	c.mu.Unlock()
	for _, p := range left {
		p.over()
	}
	label := labelClose
	if s.label == labelNegOpen {
		label = labelNegClose
	}
	return c.forward(write(label, nameOf(s.number)))
}

// fromRelay reads what the relay writes, at once.
func (c *conn) fromRelay() error {
	for {
		_, message, err := c.in.Read(c.ctx)
		if err != nil {
			return errors.Join(errGone, err)
		}
		message, err = c.answered(bytes.TrimRight(message, "\n"))
		if err != nil {
			return err
		}
		if message != nil {
			c.say(message)
		}
	}
}

// answered notes an answer of the relay, and returns what the client gets of it.
func (c *conn) answered(message []byte) ([]byte, error) {
	a := readAnswer(message)
	c.mu.Lock()
	if a.number == 0 {
		var p *pending
		if len(c.events) > 0 && (a.label == labelOK || bytes.HasPrefix(message, failedToParse)) {
			p, c.events = c.events[0], c.events[1:]
		}
		c.mu.Unlock()
		if p != nil {
			p.over()
		}
		return message, nil
	}
	s := c.byOurs[a.number]
	if s == nil {
		c.mu.Unlock()
		return nil, nil //nolint:nilnil // of what the client has closed it hears nothing
	}
	if a.label == labelEvent {
		closed := s.closed
		c.mu.Unlock()
		if closed {
			return nil, nil //nolint:nilnil // as above
		}
		return a.as(s.name), nil
	}
	var p *pending
	if len(s.pending) > 0 {
		p, s.pending = s.pending[0], s.pending[1:]
	}
	s.done = true
	closed, over := s.closed, a.label == labelClosed || a.label == labelCount || a.label == labelNegErr
	if over {
		c.unname(s)
	}
	if over || closed {
		delete(c.byOurs, a.number)
	}
	if s.label == labelNegOpen && !over && !closed {
		s.timer.Reset(negKept)
	}
	c.mu.Unlock()
	if p != nil {
		p.over()
	}
	var err error
	switch {
	case closed && !over, a.label == labelClosed: // khatru keeps the filters before the one that it refuses
		err = c.ended(s)
	case over:
		c.giveUp(s)
	}
	if closed {
		return nil, err
	}
	return a.as(s.name), err
}

// say has a message written to the client. Who does not read what there is loses the connection,
// nobody waits for them.
func (c *conn) say(message []byte) {
	if !c.queue.put(message) {
		return
	}
	all := c.g.queued.Add(int64(len(message)))
	if n := c.queue.size(); n > c.g.cfg.MaxQueue || n > softQueue && all > int64(c.g.cfg.MaxQueues) {
		c.end(errSlow)
	}
}

// toClient writes what is to be said.
func (c *conn) toClient() error {
	for {
		message, ok := c.queue.get()
		if !ok {
			select {
			case <-c.queue.more:
				continue
			case <-c.ctx.Done():
				return context.Cause(c.ctx)
			}
		}
		ctx, cancel := context.WithTimeout(c.ctx, writeBy+time.Duration(len(message)>>14)*time.Second)
		err := c.out.Write(ctx, websocket.MessageText, message)
		late := ctx.Err() != nil && c.ctx.Err() == nil
		cancel()
		c.queue.written(message)
		c.g.queued.Add(-int64(len(message)))
		select {
		case c.drained <- struct{}{}:
		default:
		}
		switch {
		case late:
			return errSlow
		case err != nil:
			return err
		}
	}
}

// signs has the client give signs of life. What it writes is not read while it has to wait, and
// neither are these.
func (c *conn) signs() error {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
		if !c.reading.Load() {
			continue
		}
		ctx, cancel := context.WithTimeout(c.ctx, pongBy)
		err := c.out.Ping(ctx)
		cancel()
		if err != nil && c.ctx.Err() == nil && c.reading.Load() {
			return errQuiet
		}
	}
}
