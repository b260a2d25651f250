package sync_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// choosy is a Transport that refuses some relays and counts the requests to others. All other
// methods are those of the embedded Transport, including [relaysync.Transport.Export]. Its
// connections do the same.
type choosy struct {
	relaysync.Transport
	avoid    string // a domain
	requests atomic.Int64
}

type countedConn struct {
	relaysync.Conn
	requests *atomic.Int64
}

// Dial implements [relaysync.Transport].
func (t *choosy) Dial(ctx context.Context, relay graspsync.RelayURL) (relaysync.Conn, error) {
	if host := relay.HostPort().Host; host == t.avoid || strings.HasSuffix(host, "."+t.avoid) {
		return nil, fmt.Errorf("%w: %s", relaysync.ErrForbidden, host)
	}
	conn, err := t.Transport.Dial(ctx, relay)
	if err != nil {
		return nil, err
	}
	return &countedConn{conn, &t.requests}, nil
}

// Send implements [relaysync.Conn].
func (c *countedConn) Send(ctx context.Context, r wire.Request) error {
	c.requests.Add(1)
	return c.Conn.Send(ctx, r)
}

// A Transport around the one for websockets.
func ExampleTransport() {
	dialer, err := egress.NewDialer(egress.Config{})
	if err != nil {
		panic(err)
	}
	websockets, err := wstransport.New(wstransport.Config{Dialer: dialer})
	if err != nil {
		panic(err)
	}
	transport := &choosy{Transport: websockets, avoid: "example"}
	relay, err := graspsync.ParseRelayURL("wss://relay.example")
	if err != nil {
		panic(err)
	}
	_, err = transport.Dial(context.Background(), relay)
	fmt.Println(err)
	fmt.Println(len(transport.Export()) == len(websockets.Export()))
	// Output:
	// relay not allowed: relay.example
	// true
}
