package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/internal/cputime"
)

// relayProcess is the environment variable that makes this command the process of a relay.
const relayProcess = "GRASPSYNC_BENCH_RELAY"

// order is a command for the process of a relay, one per line, as are its answers.
type order struct {
	Do       string
	Path     string   // load: file
	Forged   int      // load: number of additional events with the signature of another author
	Software software // be
}

const (
	doLoad  = "load"
	doBe    = "be"    // cut connections, reset counters, become this relay, and answer with its address
	doUsage = "usage" // answer with a usage
)

type software string

const (
	khatruNIP77 software = "khatru-nip77"
	khatruPages software = "khatru-pages" // without NIP-77
	cannedNIP77 software = "canned-nip77"
	cannedPages software = "canned-pages"
)

const (
	maxPage     = 500 // events per answer
	unlimited   = 1 << 30
	maxLine     = 1 << 20
	headTimeout = 5 * time.Second
)

// usage is the traffic and the cost of a relay.
type usage struct {
	In, Out int64         // bytes on the connections, from and to the relay
	CPU     time.Duration // of the process of the relay
	Traffic traffic       // of a canned relay
	Last    time.Time     // time of the last answer of a canned relay
}

// process contains the current relay of a separate process.
type process struct {
	archive *archive
	server  *http.Server
	conns   *countedListener
	canned  *canned       // the relay, if it is a canned one
	used    time.Duration // CPU time at its start
}

// serve executes orders from its input until it ends.
func serve(in io.Reader, out io.Writer) error {
	p := &process{}
	lines := bufio.NewScanner(in)
	answers := json.NewEncoder(out)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		answer, err := p.do(o)
		if err != nil {
			return fmt.Errorf("%s: %w", o.Do, err)
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (p *process) do(o order) (answer any, err error) {
	switch o.Do {
	case doLoad:
		return nil, p.load(o.Path, o.Forged)
	case doBe:
		return p.be(o.Software)
	case doUsage:
		return p.usage(), nil
	}
	return nil, errors.New("unknown order")
}

func (p *process) usage() usage {
	u := usage{In: p.conns.in.Load(), Out: p.conns.out.Load(), CPU: cputime.Used() - p.used}
	if p.canned != nil {
		u.Traffic, u.Last = p.canned.sum()
	}
	return u
}

// load reads events and adds forged events with the signature of another author.
func (p *process) load(path string, forged int) error {
	var records []record
	for line, err := range linesOf(path) {
		if err != nil {
			return err
		}
		text, ev := string(line), &nostr.Event{}
		if err := ev.UnmarshalJSON([]byte(text)); err != nil {
			return err
		}
		records = append(records, record{ev, text})
	}
	for _, r := range records[len(records)-forged:] {
		ev := *r.event
		ev.Content += "!"
		ev.ID = ev.GetID()
		records = append(records, record{&ev, ev.String()})
	}
	p.archive = newArchive(records)
	return nil
}

func (p *process) be(s software) (address string, err error) {
	if p.server != nil {
		p.server.Close()
		p.conns.cut()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	p.conns, p.canned = &countedListener{Listener: l, open: make(map[net.Conn]struct{})}, nil
	p.server = &http.Server{ReadHeaderTimeout: headTimeout}
	switch s {
	case khatruNIP77, khatruPages:
		p.server.Handler = newKhatru(p.archive, s == khatruNIP77)
	default:
		p.canned = &canned{archive: p.archive, nip77: s == cannedNIP77, traffic: make(traffic)}
		p.conns.buffered = true
		p.server.Handler = p.canned
	}
	go func() { _ = p.server.Serve(p.conns) }()
	runtime.GC()
	p.used = cputime.Used()
	return l.Addr().String(), nil
}

func newKhatru(a *archive, nip77 bool) *khatru.Relay {
	relay := khatru.NewRelay()
	relay.Log = log.New(io.Discard, "", 0)
	relay.Negentropy = nip77
	relay.QueryEvents = append(relay.QueryEvents, func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
		most := maxPage
		if f.Limit > 0 {
			most = min(most, f.Limit)
		}
		if eventstore.IsNegentropySession(ctx) {
			most = unlimited
		}
		found := a.query(f, most)
		ch := make(chan *nostr.Event, len(found))
		for _, i := range found {
			ch <- a.records[i].event
		}
		close(ch)
		return ch, nil
	})
	return relay
}

// countedListener counts the bytes of its connections.
type countedListener struct {
	net.Listener
	buffered bool         // collects writes until the next read
	in, out  atomic.Int64 // from and to the relay

	mu   sync.Mutex
	open map[net.Conn]struct{} // guarded by mu
}

// Accept implements [net.Listener].
func (l *countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[conn] = struct{}{}
	return &countedConn{Conn: conn, of: l, w: bufio.NewWriterSize(conn, 64<<10)}, nil
}

// cut closes all connections.
func (l *countedListener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.open {
		conn.Close()
	}
}

type countedConn struct {
	net.Conn
	of *countedListener
	mu sync.Mutex
	w  *bufio.Writer // guarded by mu
}

// Read implements [net.Conn].
func (c *countedConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	err := c.w.Flush()
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	c.of.out.Add(int64(n))
	return n, err
}

// Write implements [net.Conn].
func (c *countedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.w.Write(b)
	c.of.in.Add(int64(n))
	if err == nil && !c.of.buffered {
		err = c.w.Flush()
	}
	return n, err
}

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c.Conn)
	c.of.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.w.Flush(), c.Conn.Close())
}
