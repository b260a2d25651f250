package wstransport_test

import (
	"context"
	"testing"

	"github.com/coder/websocket"

	"github.com/graspsync/graspsync/sync/wstransport"
)

// BenchmarkReceive is what a message of common size costs from the socket to the
// caller, the sender in the same process included; "Read" is the websocket library
// alone.
func BenchmarkReceive(b *testing.B) {
	frame := []byte(`["NEG-MSG","n","` + string(make1200()) + `"]`)
	u := wsServer(b, nil, func(ctx context.Context, ws *websocket.Conn) {
		for ws.Write(ctx, websocket.MessageText, frame) == nil {
		}
	})
	b.Run("Receive", func(b *testing.B) {
		c := dial(b, newTransport(b, func(c *wstransport.Config) { c.NoCompression = true }), u)
		b.SetBytes(int64(len(frame)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Receive(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Read", func(b *testing.B) {
		ws, _, err := websocket.Dial(context.Background(), u.String(), nil)
		if err != nil {
			b.Fatal(err)
		}
		defer ws.CloseNow()
		b.SetBytes(int64(len(frame)))
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := ws.Read(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func make1200() []byte {
	digits := make([]byte, 1200)
	for i := range digits {
		digits[i] = "0123456789abcdef"[i%16]
	}
	return digits
}
