package main

import (
	"bufio"
	"crypto/sha1" // RFC 6455 has it so
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip77"
	"github.com/nbd-wtf/go-nostr/nip77/negentropy"
	"github.com/nbd-wtf/go-nostr/nip77/negentropy/storage/vector"
)

// canned is a relay that does not limit the client: its events are stored as bytes, and its own
// websocket sends many of them in one write. It answers REQ with at most a page, and NIP-77. It never
// sends live events.
type canned struct {
	archive  *archive
	nip77    bool
	listener net.Listener
	server   *http.Server
	in, out  atomic.Int64 // bytes from and to the relay

	mu      sync.Mutex
	traffic traffic               // guarded by mu
	last    time.Time             // guarded by mu: time of the last answer
	conns   map[net.Conn]struct{} // guarded by mu
}

// traffic is the number and size of messages by label.
type traffic map[string]said

type said struct{ Messages, Bytes int64 }

func (t traffic) add(label string, s said) {
	sum := t[label]
	sum.Messages += s.Messages
	sum.Bytes += s.Bytes
	t[label] = sum
}

// labelLive is the label of a REQ for live events only.
const labelLive = "REQ live"

// startCanned starts the i-th relay, at a separate address if the system has enough.
func startCanned(a *archive, i int, nip77 bool) (*canned, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:0", i+1))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, err
	}
	c := &canned{archive: a, nip77: nip77, listener: l, traffic: make(traffic), conns: make(map[net.Conn]struct{})}
	c.server = &http.Server{Handler: c, ReadHeaderTimeout: headTimeout}
	go func() { _ = c.server.Serve(countedListener{l, c}) }()
	return c, nil
}

func (c *canned) addr() string { return c.listener.Addr().String() }

func (c *canned) close() {
	c.server.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		conn.Close()
	}
}

// addTraffic adds the traffic to t and returns the time of the last message.
func (c *canned) addTraffic(t traffic) (last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for label, s := range c.traffic {
		t.add(label, s)
	}
	return c.last
}

func (c *canned) count(said traffic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for label, s := range said {
		c.traffic.add(label, s)
	}
	c.last = time.Now()
}

type countedListener struct {
	net.Listener
	relay *canned
}

func (l countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{conn, l.relay}, nil
}

type countedConn struct {
	net.Conn
	relay *canned
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.relay.out.Add(int64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.relay.in.Add(int64(n))
	return n, err
}

// ServeHTTP serves the NIP-11 document or a websocket.
func (c *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Sec-WebSocket-Key")
	if key == "" {
		w.Header().Set("Content-Type", "application/nostr+json")
		nips := "1,11"
		if c.nip77 {
			nips += ",77"
		}
		fmt.Fprintf(w, `{"name":"canned","supported_nips":[%s]}`, nips)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	c.mu.Lock()
	c.conns[conn] = struct{}{}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.conns, conn)
	}()
	proof := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	t := &cannedConn{relay: c, r: rw.Reader, w: bufio.NewWriterSize(conn, 64<<10), sessions: make(map[string]*negentropy.Negentropy)}
	fmt.Fprintf(t.w, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(proof[:]))
	_ = t.run() // the error ends the connection
}

// cannedConn is one client of a canned relay. Only one goroutine uses it.
type cannedConn struct {
	relay    *canned
	r        *bufio.Reader
	w        *bufio.Writer
	sessions map[string]*negentropy.Negentropy
	said     traffic // of the current answer
}

// Websocket opcodes.
const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10
	opFinal = 0x80
)

// run answers messages one after the other.
func (c *cannedConn) run() error {
	for {
		if err := c.w.Flush(); err != nil {
			return err
		}
		op, payload, err := c.read()
		if err != nil {
			return err
		}
		switch op {
		case opText:
			c.said = make(traffic)
			c.answer(string(payload))
			c.relay.count(c.said)
		case opPing:
			c.write(opPong, string(payload))
		case opClose:
			c.write(opClose, string(payload))
			return c.w.Flush()
		}
	}
}

var errFrame = errors.New("a frame that no client of ours sends")

func (c *cannedConn) read() (op byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return 0, nil, err
	}
	size := uint64(head[1] &^ 0x80)
	if head[0]&opFinal == 0 || head[1]&0x80 == 0 {
		return 0, nil, errFrame
	}
	var more [8]byte
	switch size {
	case 126:
		if _, err := io.ReadFull(c.r, more[6:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(more[:])
	case 127:
		if _, err := io.ReadFull(c.r, more[:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(more[:])
	}
	if size > maxFrame {
		return 0, nil, errFrame
	}
	var mask [4]byte
	if _, err := io.ReadFull(c.r, mask[:]); err != nil {
		return 0, nil, err
	}
	payload = make([]byte, size)
	if _, err := io.ReadFull(c.r, payload); err != nil {
		return 0, nil, err
	}
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return head[0] &^ opFinal, payload, nil
}

const maxFrame = 4 << 20

// write writes a frame of several parts. Errors are returned by the next Flush.
func (c *cannedConn) write(op byte, parts ...string) {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	head := append(c.w.AvailableBuffer(), opFinal|op)
	switch {
	case size < 126:
		head = append(head, byte(size))
	case size < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, 126), uint16(size))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 127), uint64(size))
	}
	c.w.Write(head)
	for _, p := range parts {
		_, _ = c.w.WriteString(p)
	}
}

func (c *cannedConn) send(label string, parts ...string) {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	c.said.add(label, said{1, int64(size)})
	c.write(opText, parts...)
}

func (c *cannedConn) sendEnvelope(e nostr.Envelope) { c.send(e.Label(), e.String()) }

func (c *cannedConn) answer(text string) {
	envelope, err := nostr.NewMessageParser().ParseMessage(text)
	if errors.Is(err, nostr.UnknownLabel) && c.relay.nip77 {
		if envelope = nip77.ParseNegMessage(text); envelope != nil {
			err = nil
		}
	}
	if err != nil {
		notice := nostr.NoticeEnvelope("failed to parse envelope: " + err.Error())
		c.sendEnvelope(&notice)
		return
	}
	label := envelope.Label()
	if req, ok := envelope.(*nostr.ReqEnvelope); ok && !slices.ContainsFunc(req.Filters, func(f nostr.Filter) bool { return !f.LimitZero }) {
		label = labelLive
	}
	c.said.add(label, said{1, int64(len(text))})
	switch e := envelope.(type) {
	case *nostr.ReqEnvelope:
		c.request(e)
	case *nip77.OpenEnvelope:
		v := vector.New()
		for _, i := range slices.Backward(c.relay.archive.query(e.Filter, unlimited)) {
			v.Insert(c.relay.archive.records[i].event.CreatedAt, c.relay.archive.records[i].event.ID)
		}
		v.Seal()
		c.sessions[e.SubscriptionID] = negentropy.New(v, khatruFrame)
		c.reconcile(e.SubscriptionID, e.Message)
	case *nip77.MessageEnvelope:
		c.reconcile(e.SubscriptionID, e.Message)
	case *nip77.CloseEnvelope:
		delete(c.sessions, e.SubscriptionID)
	}
}

const khatruFrame = 1 << 20 // maximum size of a khatru answer

func (c *cannedConn) request(e *nostr.ReqEnvelope) {
	var places []int
	for _, f := range e.Filters {
		most := maxPage
		switch {
		case f.LimitZero:
			most = 0
		case f.Limit > 0:
			most = min(most, f.Limit)
		}
		places = append(places, c.relay.archive.query(f, most)...)
	}
	if len(e.Filters) > 1 {
		slices.Sort(places)
		places = slices.Compact(places)
	}
	head := `["EVENT","` + e.SubscriptionID + `",`
	for _, i := range places {
		c.send("EVENT", head, c.relay.archive.records[i].text, `]`)
	}
	c.send("EOSE", `["EOSE","`+e.SubscriptionID+`"]`)
}

func (c *cannedConn) reconcile(id, message string) {
	session, ok := c.sessions[id]
	if !ok {
		c.sendEnvelope(&nip77.ErrorEnvelope{SubscriptionID: id, Reason: "closed: no such session"})
		return
	}
	out, err := session.Reconcile(message)
	if err != nil {
		c.sendEnvelope(&nip77.ErrorEnvelope{SubscriptionID: id, Reason: "error: " + err.Error()})
		return
	}
	c.sendEnvelope(&nip77.MessageEnvelope{SubscriptionID: id, Message: out})
}
