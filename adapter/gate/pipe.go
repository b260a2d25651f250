package gate

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/coder/websocket"
)

// dial opens a websocket to the relay over a pipe in memory, with request r and the websocket headers
// of the dialer. If the relay refuses the websocket, dial returns its response.
func (g *Gate) dial(ctx context.Context, r *http.Request) (*websocket.Conn, *http.Response, error) {
	near, far := net.Pipe()
	serve := func(w http.ResponseWriter, dialed *http.Request) {
		r := r.Clone(r.Context())
		for _, name := range websocketHeaders {
			r.Header.Del(name)
			if v := dialed.Header.Get(name); v != "" {
				r.Header.Set(name, v)
			}
		}
		r.Body = http.NoBody
		g.next.ServeHTTP(w, r)
	}
	server := &http.Server{Handler: http.HandlerFunc(serve), ReadHeaderTimeout: answerBy, ErrorLog: slog.NewLogLogger(g.cfg.Logger.Handler(), slog.LevelError)}
	go func() { _ = server.Serve(&pipeListener{far}) }() // it ends after the only connection was accepted
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return &pipeConn{Conn: near}, nil
	}}
	in, resp, err := websocket.Dial(ctx, "ws://relay.invalid", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		_ = near.Close()
		return nil, resp, err
	}
	in.SetReadLimit(-1) // the relay is trusted
	return in, resp, nil
}

var websocketHeaders = []string{"Connection", "Upgrade", "Sec-WebSocket-Version", "Sec-WebSocket-Key", "Sec-WebSocket-Extensions", "Sec-WebSocket-Protocol"}

type pipeListener struct{ net.Conn } // accepts one connection

func (l *pipeListener) Accept() (net.Conn, error) {
	conn := l.Conn
	if l.Conn = nil; conn == nil {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (l *pipeListener) Close() error { return nil }

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// pipeConn is the gate's end of a pipe. Write does not block, because a relay that answers before it
// reads on would block the gate. The unanswered messages of a connection bound the queued bytes.
type pipeConn struct {
	net.Conn

	mu sync.Mutex
	// guarded by mu
	text     []byte
	flushing bool // flush runs, or has failed
}

func (p *pipeConn) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = append(p.text, b...)
	if !p.flushing {
		p.flushing = true
		go p.flush()
	}
	return len(b), nil
}

func (p *pipeConn) flush() {
	for {
		p.mu.Lock()
		text := p.text
		p.text, p.flushing = nil, len(text) > 0
		p.mu.Unlock()
		if len(text) == 0 {
			return
		}
		if _, err := p.Conn.Write(text); err != nil {
			return
		}
	}
}

// takenConn keeps the hijacked connection, because the websocket of a stalled client cannot be closed
// immediately.
type takenConn struct {
	http.ResponseWriter
	conn net.Conn
}

func (w *takenConn) Hijack() (conn net.Conn, rw *bufio.ReadWriter, err error) {
	w.conn, rw, err = http.NewResponseController(w.ResponseWriter).Hijack()
	return w.conn, rw, err //nolint:wrapcheck // the caller is the websocket library
}
