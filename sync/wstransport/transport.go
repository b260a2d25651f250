package wstransport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/limit"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

const userAgent = "graspsync"

// Transport opens websocket connections to relays. It needs no closing and may be used
// concurrently.
type Transport struct {
	cfg         Config       // set by New, read-only
	readBudget  *limit.Slots // bytes of large messages that are being read
	buffers     buffers
	provenAfter time.Duration // provenAfter except in tests
	panics      atomic.Uint64
}

var _ relaysync.Transport = (*Transport)(nil)

// Panics returns the number of connections that ended by a panic, which is always a bug.
func (t *Transport) Panics() uint64 { return t.panics.Load() }

// New returns a Transport. The error names every invalid field of c.
func New(c Config) (*Transport, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("wstransport config: %w", err)
	}
	c = c.withDefaults()
	return &Transport{
		cfg: c, readBudget: limit.NewSlots(c.ReadBudget, messagesPerHost*readLimit), buffers: make(buffers, maxUnusedBuffers), provenAfter: provenAfter,
	}, nil
}

// Dial connects to a relay. The error wraps [relaysync.ErrForbidden] if the dialer refuses the
// address or plaintext, and [relaysync.ErrNotDialed] if its budget does or this host has no route.
// It wraps a [*StatusError] if the relay answered without upgrading. Redirects are not followed. If
// the relay answers 404 or a redirect, it is dialed again with the trailing slash added or removed.
func (t *Transport) Dial(ctx context.Context, relay graspsync.RelayURL) (relaysync.Conn, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, dialTimeout)
		defer cancel()
	}
	u, err := graspsync.ParseURL(relay.URL().AsWritten(), graspsync.RelaySchemes)
	if err != nil {
		return nil, fmt.Errorf("dialing relay: %w", err)
	}
	conn, err := t.dial(ctx, u)
	var status *StatusError
	if u.Path != "" && (errors.Is(err, egress.ErrRedirect) || errors.As(err, &status) && status.Status == http.StatusNotFound) {
		conn, err = t.dial(ctx, u.ToggleSlash()) // the announcement may have the wrong spelling
	}
	if err != nil {
		if errors.Is(err, egress.ErrAddress) || errors.Is(err, egress.ErrPlaintext) {
			err = fmt.Errorf("%w: %w", relaysync.ErrForbidden, err)
		}
		if isLocalFailure(err) {
			err = fmt.Errorf("%w: %w", relaysync.ErrNotDialed, err)
		}
		return nil, printable(err) // it names the address
	}
	return conn, nil
}

func isLocalFailure(err error) bool {
	return slices.ContainsFunc([]error{
		egress.ErrBudget, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.EADDRNOTAVAIL, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS,
	}, func(local error) bool { return errors.Is(err, local) })
}

func (t *Transport) dial(ctx context.Context, u graspsync.URL) (*conn, error) {
	if err := t.cfg.Dialer.Check(u); err != nil {
		return nil, err
	}
	client := t.cfg.Dialer.HTTPClient(0)
	s := newLiveness()
	upgrade := &upgradeTransport{next: client.Transport, limiter: &s.emptyLimiter}
	client.Transport = upgrade
	// Idle connections are not needed after the upgrade or its failure.
	defer client.CloseIdleConnections()
	var remote netip.Addr
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if at, err := netip.ParseAddrPort(got.Conn.RemoteAddr().String()); err == nil {
			remote = at.Addr()
		}
	}})
	ws, resp, err := websocket.Dial(ctx, u.AsWritten(), t.dialOptions(client, s)) //nolint:bodyclose // the library closes it
	if err != nil {
		var request *url.Error
		switch {
		case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
			err = statusError(resp)
		case errors.As(err, &request):
			err = shortCause(request.Err) // without three prefixes of the libraries
		}
		return nil, err
	}
	ws.SetReadLimit(readLimit)
	return t.start(ws, upgrade.raw, remote, u, s), nil
}

// shortCause returns the part of a network error that does not repeat the URL, which is logged too.
func shortCause(err error) error {
	var name *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &name):
		short := *name
		short.Server = ""
		return &short
	case errors.As(err, &op):
		return op.Err
	}
	return err
}

func (t *Transport) dialOptions(client *http.Client, s *liveness) *websocket.DialOptions {
	return &websocket.DialOptions{
		HTTPClient: client,
		HTTPHeader: http.Header{"User-Agent": {userAgent}},
		// A relay may compress with a window across messages. Ours would take 1.2 MB per
		// connection.
		CompressionMode:      websocket.CompressionContextTakeover,
		CompressionThreshold: math.MaxInt,
		OnPingReceived:       func(context.Context, []byte) bool { return s.onControlFrame() },
		OnPongReceived:       func(context.Context, []byte) { s.onControlFrame() },
	}
}

type upgradeTransport struct {
	next    http.RoundTripper
	limiter *emptyLimiter // below the websocket
	raw     io.Writer
}

// RoundTrip implements [http.RoundTripper].
func (u *upgradeTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := u.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		if conn, ok := resp.Body.(io.ReadWriteCloser); ok {
			u.limiter.ReadWriteCloser = conn
			u.raw, resp.Body = conn, u.limiter
		}
	}
	return resp, err
}

// CloseIdleConnections implements the method that [http.Client.CloseIdleConnections] calls.
func (u *upgradeTransport) CloseIdleConnections() {
	if c, ok := u.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// start makes a connection from a websocket and starts its goroutines. The websocket reports to s
// already.
func (t *Transport) start(ws *websocket.Conn, raw io.Writer, remote netip.Addr, u graspsync.URL, s *liveness) *conn {
	ctx, cancel := context.WithCancel(context.Background())
	c := &conn{
		t:        t,
		relay:    u.String(),
		host:     u.HostPort.Host,
		ws:       ws,
		raw:      raw,
		remote:   remote,
		ctx:      ctx,
		cancel:   cancel,
		requests: make(chan struct{}, 1),
		messages: make(chan wire.Message),
		ended:    make(chan struct{}),
		writing:  make(chan struct{}, 1),
		infoDone: make(chan struct{}),
		liveness: s,
	}
	c.goRecover(c.read)
	c.goRecover(func() { c.fetchInfo(ctx, u) })
	c.goRecover(func() { c.keepAlive(u) })
	return c
}

func (t *Transport) getInfo(ctx context.Context, u graspsync.URL) (wire.Info, error) {
	if u.Plaintext() {
		u.Scheme = "http"
	} else {
		u.Scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.AsWritten(), nil)
	if err != nil {
		return wire.Info{}, fmt.Errorf("asking for a NIP-11 document: %w", err)
	}
	req.Header.Set("Accept", "application/nostr+json")
	req.Header.Set("User-Agent", userAgent)
	client := t.cfg.Dialer.HTTPClient(infoTimeout)
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return wire.Info{}, fmt.Errorf("asking for a NIP-11 document: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing was written
	if resp.StatusCode != http.StatusOK {
		return wire.Info{}, fmt.Errorf("asking for a NIP-11 document: status %d", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, wire.MaxInfo))
	if err != nil && len(data) == 0 {
		return wire.Info{}, fmt.Errorf("reading a NIP-11 document: %w", err)
	}
	return wire.ParseInfo(data), nil
}
