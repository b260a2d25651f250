package main

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// proxy forwards TCP connections to a relay and counts bytes.
type proxy struct {
	listener net.Listener
	target   atomic.Pointer[string]
	in, out  atomic.Int64 // from and to the relay

	mu    sync.Mutex
	ended bool                  // guarded by mu
	conns map[net.Conn]struct{} // guarded by mu: both ends of all connections
	wg    sync.WaitGroup
}

// newProxy listens on a loopback address. Without a target, connections are closed immediately.
func newProxy() (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &proxy{listener: l, conns: make(map[net.Conn]struct{})}, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) run() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		target := p.target.Load()
		if target == nil {
			c.Close()
			continue
		}
		p.wg.Go(func() { p.pass(c, *target) })
	}
}

func (p *proxy) pass(client net.Conn, target string) {
	defer client.Close()
	relay, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer relay.Close()
	if !p.enter(client, relay) {
		return
	}
	defer p.leave(client, relay)
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(relay, client, &p.out) })
	wg.Go(func() { p.copy(client, relay, &p.in) })
	wg.Wait()
}

func (p *proxy) copy(to, from net.Conn, count *atomic.Int64) {
	defer to.Close()
	defer from.Close()
	_, _ = io.Copy(counter{to, count}, struct{ io.Reader }{from})
}

type counter struct {
	w     io.Writer
	count *atomic.Int64
}

func (c counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.count.Add(int64(n))
	return n, err
}

func (p *proxy) enter(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return !p.ended
}

func (p *proxy) leave(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

// cut ends all connections and waits.
func (p *proxy) cut() {
	p.mu.Lock()
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// use cuts all connections, sets another target and resets the counters.
func (p *proxy) use(target string) {
	p.target.Store(&target)
	p.cut()
	p.in.Store(0)
	p.out.Store(0)
}

func (p *proxy) close() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.listener.Close()
	p.cut()
}
