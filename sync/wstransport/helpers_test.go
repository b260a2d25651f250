package wstransport_test

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// patience is the maximum time until something that should happen immediately.
const patience = time.Minute

// loopback lets tests dial their own servers.
func loopback() egress.Config {
	return egress.Config{
		Allow:          []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
		AllowPlaintext: true,
	}
}

func newDialer(t testing.TB, c egress.Config) *egress.Dialer {
	t.Helper()
	d, err := egress.NewDialer(c)
	require.NoError(t, err)
	return d
}

// newTransport returns a Transport that may dial loopback addresses.
func newTransport(t testing.TB, changes ...func(*wstransport.Config)) *wstransport.Transport {
	t.Helper()
	c := wstransport.Config{Dialer: newDialer(t, loopback())}
	for _, change := range changes {
		change(&c)
	}
	transport, err := wstransport.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { transport.Idle(t) }) // once all of its connections are closed
	return transport
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func dial(t testing.TB, transport *wstransport.Transport, u graspsync.RelayURL) relaysync.Conn {
	t.Helper()
	c, err := transport.Dial(testContext(t), u)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func receive(t testing.TB, c relaysync.Conn) wire.Message {
	t.Helper()
	m, err := c.Receive(testContext(t))
	require.NoError(t, err)
	return m
}

// receiveError expects the connection to have ended.
func receiveError(t testing.TB, c relaysync.Conn) error {
	t.Helper()
	_, err := c.Receive(testContext(t))
	require.ErrorIs(t, err, relaysync.ErrClosed)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "it did not end")
	_, again := c.Receive(testContext(t))
	require.Equal(t, err, again, "the first error stays")
	require.Equal(t, err, c.Send(testContext(t), closeRequest), "the first error stays")
	return err
}

var (
	closeRequest = wire.Request{Type: wire.TypeClose, Sub: "x"}
)

func relayURL(t testing.TB, s string) graspsync.RelayURL {
	t.Helper()
	u, err := graspsync.ParseRelayURL(s)
	require.NoError(t, err)
	return u
}

// httpServer serves handler on a loopback address.
func httpServer(t testing.TB, handler http.HandlerFunc) graspsync.RelayURL {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return relayURL(t, strings.Replace(s.URL, "http://", "ws://", 1))
}

// wsServer serves websockets. ctx ends with the test.
func wsServer(t testing.TB, options *websocket.AcceptOptions, serve func(ctx context.Context, ws *websocket.Conn)) graspsync.RelayURL {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	u := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			http.NotFound(w, r)
			return
		}
		ws, err := websocket.Accept(w, r, options)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		serve(ctx, ws)
	})
	t.Cleanup(cancel)
	return u
}

// peer is the relay's end of a connection, without a websocket library.
type peer struct {
	net.Conn
	r *bufio.Reader
}

// rawServer completes upgrades by hand and leaves the rest to serve. NIP-11 gets a
// 404. The connection is closed when serve returns, or when the test ends.
func rawServer(t testing.TB, serve func(p peer)) graspsync.RelayURL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		open    []net.Conn
	)
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			running.Go(func() {
				defer c.Close()
				p := peer{c, bufio.NewReader(c)}
				if p.upgrade() {
					serve(p)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return relayURL(t, "ws://"+l.Addr().String())
}

func (p peer) upgrade() bool {
	r, err := http.ReadRequest(p.r)
	if err != nil {
		return false
	}
	if r.Header.Get("Upgrade") == "" {
		fmt.Fprint(p, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return false
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(p, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	return true
}

const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opPing         = 9
	opPong         = 10
	fin            = 0x80
)

// header returns the header of a frame that claims to have size bytes.
func header(first byte, size uint64) []byte {
	switch {
	case size < 126:
		return []byte{first, byte(size)}
	case size < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{first, 126}, uint16(size))
	}
	return binary.BigEndian.AppendUint64([]byte{first, 127}, size)
}

func (p peer) frame(first byte, payload string) error {
	_, err := p.Write(append(header(first, uint64(len(payload))), payload...))
	return err
}

// read reads a frame of the client, which must be masked.
func (p peer) read() (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return 0, nil, err
	}
	if head[1]&0x80 == 0 || head[0]&0x70 != 0 {
		return 0, nil, fmt.Errorf("frame of a client is unmasked or has flags: %x", head)
	}
	size := uint64(head[1] & 0x7f)
	if size >= 126 {
		length := make([]byte, map[uint64]int{126: 2, 127: 8}[size])
		if _, err := io.ReadFull(p.r, length); err != nil {
			return 0, nil, err
		}
		size = 0
		for _, b := range length {
			size = size<<8 | uint64(b)
		}
	}
	var key [4]byte
	if _, err := io.ReadFull(p.r, key[:]); err != nil {
		return 0, nil, err
	}
	payload = make([]byte, size)
	if _, err := io.ReadFull(p.r, payload); err != nil {
		return 0, nil, err
	}
	for i := range payload {
		payload[i] ^= key[i%4]
	}
	return head[0] & 0x0f, payload, nil
}

// wait blocks until the connection is closed.
func (p peer) wait() { _, _ = io.Copy(io.Discard, p.r) }
