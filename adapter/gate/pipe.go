package gate

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// dial has a relay take a websocket over a pipe, as if a request came to it. The answer is the relay's
// if it takes none.
func dial(ctx context.Context, next http.Handler, r *http.Request) (*websocket.Conn, *http.Response, error) {
	in, resp, err := websocket.Dial(ctx, "ws://relay.invalid", &websocket.DialOptions{
		HTTPClient:      &http.Client{Transport: pipe{next, r}},
		CompressionMode: websocket.CompressionDisabled,
	})
	if err == nil {
		in.SetReadLimit(-1) // the relay is ours
	}
	return in, resp, err
}

// pipe has a handler answer a request as if it had come over a connection.
type pipe struct {
	next http.Handler
	as   *http.Request
}

// upgrade are the headers of a websocket.
var upgrade = []string{"Connection", "Upgrade", "Sec-WebSocket-Version", "Sec-WebSocket-Key", "Sec-WebSocket-Extensions", "Sec-WebSocket-Protocol"}

// RoundTrip implements [http.RoundTripper].
func (p pipe) RoundTrip(ours *http.Request) (*http.Response, error) {
	near, far := net.Pipe()
	r := p.as.Clone(p.as.Context())
	for _, name := range upgrade {
		r.Header.Del(name)
		if v := ours.Header.Get(name); v != "" {
			r.Header.Set(name, v)
		}
	}
	r.Body = http.NoBody
	deadline, _ := ours.Context().Deadline()
	_ = near.SetReadDeadline(deadline)
	w := &hijacked{conn: far, header: make(http.Header)}
	go w.serve(p.next, r)
	in := bufio.NewReader(near)
	resp, err := http.ReadResponse(in, ours)
	if err != nil {
		_ = near.Close()
		return nil, err
	}
	_ = near.SetReadDeadline(time.Time{})
	if resp.StatusCode == http.StatusSwitchingProtocols {
		b := &buffered{Conn: near, in: in, more: make(chan struct{}, 1), closed: make(chan struct{})}
		go b.flush()
		resp.Body = b
	}
	return resp, nil
}

// buffered is the gate's end of a pipe. Write never blocks, because whoever reads the pipe also writes to it: a
// relay that answers before it reads on would wait for a gate that waits for the relay. What waits is bounded by
// the messages that a connection may have without an answer.
type buffered struct {
	net.Conn
	in     *bufio.Reader // it may have read ahead
	more   chan struct{} // holds one: there is something to be written
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	text []byte // guarded by mu
}

// Read implements [io.Reader].
func (b *buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

// Write implements [io.Writer].
func (b *buffered) Write(p []byte) (int, error) {
	b.mu.Lock()
	b.text = append(b.text, p...)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

// Close implements [io.Closer]. What was not written is lost.
func (b *buffered) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Conn.Close()
}

// flush writes what there is until the pipe ends.
func (b *buffered) flush() {
	for {
		select {
		case <-b.more:
		case <-b.closed:
			return
		}
		b.mu.Lock()
		text := b.text
		b.text = nil
		b.mu.Unlock()
		if _, err := b.Conn.Write(text); err != nil {
			return
		}
	}
}

// hijacked is the [http.ResponseWriter] of a connection that can be taken over.
type hijacked struct {
	conn   net.Conn
	header http.Header
	taken  bool
	status int
	body   []byte
}

// serve has a request answered, and writes the answer if nobody has taken the connection over.
func (w *hijacked) serve(next http.Handler, r *http.Request) {
	defer func() {
		failed := recover() // as net/http does
		if w.taken {
			if failed != nil {
				_ = w.conn.Close()
			}
			return
		}
		if failed != nil {
			w.status, w.body = http.StatusInternalServerError, nil
		}
		_ = w.conn.SetWriteDeadline(time.Now().Add(answerBy))
		if w.status == 0 {
			w.status = http.StatusOK
		}
		resp := http.Response{
			StatusCode: w.status, ProtoMajor: 1, ProtoMinor: 1, Header: w.header, ContentLength: int64(len(w.body)), Body: io.NopCloser(bytes.NewReader(w.body)),
		}
		_ = resp.Write(w.conn)
		_ = w.conn.Close()
	}()
	next.ServeHTTP(w, r)
}

// Header implements [http.ResponseWriter].
func (w *hijacked) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *hijacked) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements [http.ResponseWriter].
func (w *hijacked) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, p...)
	return len(p), nil
}

// Hijack implements [http.Hijacker].
func (w *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.taken = true
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

// taking is the [http.ResponseWriter] of a client, and keeps the connection that is taken over: a
// websocket that is being closed can't be closed at once.
type taking struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements [http.Hijacker].
func (w *taking) Hijack() (conn net.Conn, rw *bufio.ReadWriter, err error) {
	w.conn, rw, err = http.NewResponseController(w.ResponseWriter).Hijack()
	return w.conn, rw, err //nolint:wrapcheck // it is who took it that gets it
}
