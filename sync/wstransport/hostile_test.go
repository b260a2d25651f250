package wstransport_test

import (
	"bytes"
	"compress/flate"
	"context"
	"io"
	"reflect"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// allocated returns the bytes that f allocated, all goroutines together.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// liveHeap returns the bytes on the heap that are in use. HeapAlloc counts also what became garbage since
// the collection.
func liveHeap() int64 {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

// quick sets short timeouts.
func quick(c *wstransport.Config) {
	c.Fixed().PingInterval, c.Fixed().PingTimeout = 20*time.Millisecond, time.Second
}

func TestHostileGiantFrames(t *testing.T) {
	megabyte := strings.Repeat("x", 1<<20)
	t.Run("endless", func(t *testing.T) {
		// Made once: how often the peer writes until it learns that we went is
		// not ours, and would be counted with what we allocate.
		part := []byte(megabyte)
		u := rawServer(t, func(p peer) {
			_, err := p.Write(header(fin|opText, 1<<62))
			for err == nil {
				_, err = p.Write(part)
			}
		})
		c := dial(t, newTransport(t), u)
		used := allocated(func() { assert.ErrorContains(t, receiveError(t, c), "read limited") })
		assert.Less(t, used, uint64(16<<20))
	})
	t.Run("announced only", func(t *testing.T) {
		u := rawServer(t, func(p peer) {
			_, _ = p.Write(header(fin|opText, 1<<40))
			p.wait()
		})
		c := dial(t, newTransport(t, quick), u)
		used := allocated(func() { assert.ErrorContains(t, receiveError(t, c), "silent") })
		assert.Less(t, used, uint64(2<<20), "memory for what was only announced")
	})
	t.Run("negative", func(t *testing.T) {
		u := rawServer(t, func(p peer) {
			_, _ = p.Write(header(fin|opText, 1<<63))
			p.wait()
		})
		receiveError(t, dial(t, newTransport(t, quick), u))
	})
	t.Run("in many parts", func(t *testing.T) {
		u := rawServer(t, func(p peer) {
			err := p.frame(opText, megabyte)
			for err == nil {
				err = p.frame(opContinuation, megabyte)
			}
		})
		assert.ErrorContains(t, receiveError(t, dial(t, newTransport(t), u)), "read limited")
	})
	t.Run("the largest that is allowed", func(t *testing.T) {
		const size = 2<<20 + 4<<10
		const start, end = `["NEG-MSG","n","`, `"]`
		frame := start + strings.Repeat("0", size-len(start)-len(end)) + end
		u := rawServer(t, func(p peer) {
			_ = p.frame(fin|opText, frame)
			_ = p.frame(fin|opText, frame+" ")
			p.wait()
		})
		c := dial(t, newTransport(t), u)
		m := receive(t, c)
		assert.Equal(t, size, m.Size)
		assert.Len(t, m.Payload, (size-len(start)-len(end))/2)
		assert.ErrorContains(t, receiveError(t, c), "read limited")
	})
}

// frame2 writes bytes that are part of a frame that was announced before.
func (p peer) frame2(payload string) error {
	_, err := io.WriteString(p, payload)
	return err
}

// A few hundred kilobytes that inflate to half a gigabyte.
func TestHostileCompressionBomb(t *testing.T) {
	u := wsServer(t, &websocket.AcceptOptions{CompressionMode: websocket.CompressionContextTakeover}, func(ctx context.Context, ws *websocket.Conn) {
		w, err := ws.Writer(ctx, websocket.MessageText)
		if err != nil {
			return
		}
		zeros := make([]byte, 1<<20)
		for range 512 {
			if _, err := w.Write(zeros); err != nil {
				return
			}
		}
		_ = w.Close()
	})
	c := dial(t, newTransport(t), u)
	assert.ErrorContains(t, receiveError(t, c), "read limited")
}

func TestHostileProtocolErrors(t *testing.T) {
	for name, bytes := range map[string]string{
		"noise":                "\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8 this is not a websocket",
		"http":                 "HTTP/1.1 200 OK\r\n\r\n",
		"unknown opcode":       "\x83\x00",
		"reserved bits":        "\xf1\x00",
		"compressed unasked":   "\xc1\x01x",
		"continuation first":   "\x80\x00",
		"message in a message": "\x01\x01x\x81\x01y",
		"long ping":            "\x89\x7e\x01\x00" + strings.Repeat("x", 256),
		"ping in parts":        "\x09\x00\x80\x00",
		"bad close":            "\x88\x01x",
		"bad close code":       "\x88\x02\x00\x00",
		"half a frame":         "\x81\x05ab",
		"nothing":              "",
	} {
		t.Run(name, func(t *testing.T) {
			u := rawServer(t, func(p peer) { _ = p.frame2(bytes) })
			err := receiveError(t, dial(t, newTransport(t), u))
			assert.Less(t, len(err.Error()), 400)
		})
	}
}

func TestMalformedAreDroppedAndCounted(t *testing.T) {
	u := rawServer(t, func(p peer) {
		for i := range 5 { // never a hundred in a row
			for range 40 {
				_ = p.frame(fin|opText, `["EVENT","`)
				_ = p.frame(fin|opBinary, "\x00\xff")
			}
			_ = p.frame(fin|opText, `["NOTICE","`+string(rune('0'+i))+`"]`)
		}
		for range 100 {
			_ = p.frame(fin|opText, "{}")
		}
		_ = p.frame(fin|opText, `["NOTICE","too late"]`)
		p.wait()
	})
	c := dial(t, newTransport(t), u)
	for i := range 5 {
		assert.Equal(t, string(rune('0'+i)), receive(t, c).Text)
	}
	assert.ErrorContains(t, receiveError(t, c), "malformed")
	assert.Equal(t, uint64(5*40*(10+2)+100*2), c.Traffic().DroppedBytes)
}

// The relay keeps the connection open and sends nothing, not even an answer to a ping.
func TestHostileSilence(t *testing.T) {
	u := rawServer(t, func(p peer) { p.wait() })
	assert.ErrorContains(t, receiveError(t, dial(t, newTransport(t, quick), u)), "silent")

	// Nor does it help that nobody asks for a message: nothing came that could be
	// waiting.
	c := dial(t, newTransport(t, quick), u)
	require.Eventually(t, func() bool { return c.Send(testContext(t), closeRequest) != nil }, patience, 5*time.Millisecond)
	assert.ErrorContains(t, receiveError(t, c), "silent")
}

// The relay sends frames of a message that never ends, and answers no ping.
func TestHostileDrip(t *testing.T) {
	for name, serve := range map[string]func(p peer) error{
		"byte by byte":        func(p peer) error { return p.frame2("x") },
		"empty continuations": func(p peer) error { return p.frame(opContinuation, "") },
	} {
		t.Run(name, func(t *testing.T) {
			u := rawServer(t, func(p peer) {
				err := p.frame2("\x01\x00")
				if name == "byte by byte" {
					_, err = p.Write(header(opContinuation, 1<<20))
				}
				tick := time.NewTicker(time.Millisecond)
				defer tick.Stop()
				for err == nil {
					<-tick.C
					err = serve(p)
				}
			})
			// At a byte per millisecond, no 16 KiB come within a second.
			assert.ErrorContains(t, receiveError(t, dial(t, newTransport(t, quick), u)), "silent")
		})
	}
}

// Frames without payload and compressed blocks without text never reach Receive. A relay that sent
// only these used a processor without limit.
func TestHostileEmptyFrames(t *testing.T) {
	const notice = `["NOTICE","x"]`
	nothing := map[string]func(p peer) error{
		"no end": func(p peer) error { return p.frame(opText, "[") },
		"now and then a message": func(p peer) error {
			if err := p.frame(fin|opContinuation, notice[1:]); err != nil {
				return err
			}
			return p.frame(opText, "[")
		},
	}
	for name, again := range nothing {
		t.Run(name, func(t *testing.T) {
			u := rawServer(t, func(p peer) {
				go p.wait()
				err := p.frame(opText, "[")
				for i := 0; err == nil; i++ {
					if i%10_000 == 9999 && name != "no end" {
						err = again(p)
						continue
					}
					err = p.frame(opContinuation, "")
				}
			})
			c := dial(t, newTransport(t), u)
			var err error
			for range 1000 {
				if _, err = c.Receive(testContext(t)); err != nil {
					break
				}
			}
			require.ErrorIs(t, err, relaysync.ErrClosed)
			assert.ErrorContains(t, err, "nothing in them")
		})
	}
	t.Run("compressed", func(t *testing.T) {
		var deflated bytes.Buffer
		w, err := flate.NewWriter(&deflated, flate.BestSpeed)
		require.NoError(t, err)
		require.NoError(t, w.Flush()) // an empty block
		empty := strings.Repeat(deflated.String(), 1000)
		u := wsServer(t, &websocket.AcceptOptions{CompressionMode: websocket.CompressionContextTakeover}, func(ctx context.Context, ws *websocket.Conn) {
			raw := reflect.ValueOf(ws).Elem().FieldByName("rwc")
			conn := *(*io.ReadWriteCloser)(raw.Addr().UnsafePointer())
			_, err := conn.Write(append(header(opText|0x40, uint64(len(empty))), empty...))
			for err == nil && ctx.Err() == nil {
				_, err = conn.Write(append(header(opContinuation, uint64(len(empty))), empty...))
			}
		})
		assert.ErrorContains(t, receiveError(t, dial(t, newTransport(t), u)), "nothing in them")
	})
}

// The relay stops reading, so a write would block forever.
func TestHostileStopsReading(t *testing.T) {
	release := make(chan struct{})
	u := rawServer(t, func(peer) { <-release })
	defer close(release)
	transport := newTransport(t, func(c *wstransport.Config) { c.Fixed().WriteTimeout = 100 * time.Millisecond })
	c := dial(t, transport, u)
	big := wire.Request{Type: wire.TypePublish, Event: &nostr.Event{Content: strings.Repeat("x", 400_000)}}
	var err error
	for range 1000 {
		if err = c.Send(testContext(t), big); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, relaysync.ErrClosed)
	assert.ErrorContains(t, err, "does not read")
	assert.Equal(t, err, receiveError(t, c))
}

// A relay that reads one byte at a time must not block Send for longer than WriteTimeout.
func TestHostileReadsSlowly(t *testing.T) {
	u := rawServer(t, func(p peer) {
		one := make([]byte, 1)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			<-tick.C
			if _, err := p.Read(one); err != nil {
				return
			}
		}
	})
	transport := newTransport(t, func(c *wstransport.Config) { c.Fixed().WriteTimeout = 100 * time.Millisecond })
	c := dial(t, transport, u)
	big := wire.Request{Type: wire.TypePublish, Event: &nostr.Event{Content: strings.Repeat("x", 400_000)}}
	var err error
	for range 1000 {
		if err = c.Send(testContext(t), big); err != nil {
			break
		}
	}
	assert.ErrorContains(t, err, "does not read")
}

// A newer relay may send unknown messages, but only a limited number of bytes.
func TestUnknownLabels(t *testing.T) {
	unknown := `["HELLO","` + strings.Repeat("x", 1000) + `"]`
	u := rawServer(t, func(p peer) {
		for range 200 {
			_ = p.frame(fin|opText, unknown)
		}
		_ = p.frame(fin|opText, `["NOTICE","a"]`)
		for p.frame(fin|opText, unknown) == nil {
		}
	})
	c := dial(t, newTransport(t), u)
	assert.Equal(t, "a", receive(t, c).Text)
	assert.ErrorContains(t, receiveError(t, c), "malformed")
	assert.Less(t, c.Traffic().DroppedBytes, uint64(9<<20))
}

// Pings never reach Receive, and each costs processor time.
func TestHostilePingFlood(t *testing.T) {
	for _, op := range []byte{opPing, opPong} {
		u := rawServer(t, func(p peer) {
			go p.wait() // read our pongs
			for p.frame(fin|op, "x") == nil {
			}
		})
		assert.ErrorContains(t, receiveError(t, dial(t, newTransport(t), u)), "pings without end")
	}
}
