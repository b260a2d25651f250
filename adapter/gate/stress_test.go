package gate_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A hundred clients at once, of which some are slow, some go away in the middle of something, and some
// mean harm: who means well gets each answer and each event, once, and nothing is left of anybody. Under the race detector it is a
// quarter of them, because a client gives up when it has not answered a ping for five seconds.
func TestManyClients(t *testing.T) {
	part := 1
	if racetest.Enabled {
		part = 4
	}
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		goleak.VerifyNone(t, before, goleak.IgnoreTopFunction("github.com/fiatjaf/khatru.(*expirationManager).start"))
	})
	s := serveApart(t, gate.Config{Client: who, MaxQueues: 32 << 20}.With(gate.Fixed{MaxQueue: 2 << 20}))
	ids := s.stored(storedKind, 30, 10_000)
	author := relaytest.NewKey("somebody").Hex()
	query := fmt.Sprintf(`{"kinds":[%d],"authors":[%q]}`, storedKind, author)
	base := liveHeap()

	followers, each := 16/part, 8
	var ready, followed sync.WaitGroup
	ready.Add(followers)
	done := make(chan struct{}) // those who mean well are done
	var well, harm sync.WaitGroup
	followed.Add(followers)
	for i := range followers {
		well.Go(func() { s.follows(i, each, followers*each, &ready, &followed) })
	}
	ready.Wait() // from here on nobody begins or ends to follow
	for i := range 30 / part {
		well.Go(func() { s.asks(fmt.Sprint("asks", i), query, ids, 2, 0) })
	}
	for i := range 8 / part {
		well.Go(func() { s.asks(fmt.Sprint("slow", i), query, ids, 1, 20*time.Millisecond) })
	}
	for i := range 15 / part {
		harm.Go(func() { s.leaves(i, query, done) })
	}
	for i, does := range []func(string, string, <-chan struct{}){s.neverReads, s.writesGarbage, s.neverEnds, s.neverBegins, s.asksAndAsks} {
		for range 6 / part {
			harm.Go(func() { does(fmt.Sprint("hostile", i), query, done) })
		}
	}
	well.Wait()
	close(done)
	harm.Wait()
	for _, name := range []string{"gate_connections", "gate_clients", "gate_queued_bytes"} {
		require.Eventually(t, func() bool { return s.metric(name, "") == 0 }, patience, 10*time.Millisecond, name)
	}
	for _, of := range []string{"listening", "reconciliations"} {
		require.Eventually(t, func() bool { return s.metric("gate_slots_in_use", of) == 0 }, patience, 10*time.Millisecond, of)
	}
	require.Zero(t, s.metric("gate_waiting", "work"))
	require.Eventually(t, func() bool { return liveHeap() < base+16<<20 }, patience, 100*time.Millisecond)
}

// liveHeap returns the bytes on the heap that are in use.
func liveHeap() int64 {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

// follows gets what all who follow publish, and the answer to what it publishes itself.
func (s *server) follows(i, each, all int, ready, done *sync.WaitGroup) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	c, err := s.connect(ctx, fmt.Sprint("follows", i))
	if err == nil {
		defer func() { _ = c.CloseNow() }()
	}
	defer func() { // nobody ends to follow while something is published
		done.Done()
		done.Wait()
	}()
	if err == nil {
		err = c.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `["REQ","live",{"kinds":[%d],"limit":0}]`, liveKind))
	}
	if err == nil {
		_, _, err = c.Read(ctx) // EOSE
	}
	ready.Done()
	if err != nil {
		s.t.Error("follows", i, err)
		return
	}
	ready.Wait()
	var writing sync.WaitGroup
	writing.Go(func() {
		key := relaytest.NewKey(fmt.Sprint("follows", i))
		for n := range each {
			text, _ := json.Marshal([]any{"EVENT", key.Event(nostr.Now(), liveKind, fmt.Sprint(n))})
			if err := c.Write(ctx, websocket.MessageText, text); err != nil {
				s.t.Error("publishes", i, n, err)
			}
		}
		_ = c.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `["REQ","end",{"kinds":[%d],"limit":1}]`, storedKind)) // it is missed otherwise
	})
	defer writing.Wait()
	seen, oks, ended := make(map[string]bool), make(map[string]bool), false
	for len(seen) < all || len(oks) < each || !ended {
		_, m, err := c.Read(ctx)
		if err != nil {
			s.t.Error("follows", i, "has", len(seen), len(oks), ended, err)
			return
		}
		var parts []json.RawMessage
		var e struct{ ID string }
		_ = json.Unmarshal(m, &parts) // it shows
		switch label := string(parts[0]); {
		case label == `"OK"` && string(parts[2]) == "true" && !oks[string(parts[1])]:
			oks[string(parts[1])] = true
		case label == `"EVENT"` && string(parts[1]) == `"live"` && json.Unmarshal(parts[2], &e) == nil && !seen[e.ID]:
			seen[e.ID] = true
		case label == `"EOSE"`:
			ended = true
		case string(parts[1]) != `"end"`:
			s.t.Errorf("follows %d: %.200s", i, m)
		}
	}
}

// asks publishes something, asks for what is stored, and gets it all, so often; it takes its time.
func (s *server) asks(name, query string, ids map[string]bool, times int, pause time.Duration) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	c, err := s.connect(ctx, name)
	if err != nil {
		s.t.Error(name, err)
		return
	}
	defer func() { _ = c.CloseNow() }()
	key := relaytest.NewKey(name)
	for n := range times {
		ev := key.Event(nostr.Now(), storedKind, fmt.Sprint(n))
		text, _ := json.Marshal([]any{"EVENT", ev})
		for _, m := range []string{string(text), fmt.Sprintf(`["REQ","x",%s]`, query), `["REQ","y",{"kinds":[2],"limit":1}]`, `["CLOSE","y"]`} {
			if err := c.Write(ctx, websocket.MessageText, []byte(m)); err != nil {
				s.t.Error(name, err)
				return
			}
		}
		seen, oks, ended := make(map[string]bool), 0, false
		for !ended || oks == 0 {
			_, m, err := c.Read(ctx)
			if err != nil {
				s.t.Error(name, n, len(seen), oks, err)
				return
			}
			switch {
			case strings.HasPrefix(string(m), `["OK"`):
				oks++
				if string(m) != fmt.Sprintf(`["OK",%q,true,""]`, ev.ID) {
					s.t.Error(name, string(m))
				}
			case strings.HasPrefix(string(m), `["EVENT","x"`):
				id := string(m[strings.Index(string(m), `"id":"`)+6:][:64])
				if seen[id] || !ids[id] {
					s.t.Error(name, "twice, or not asked for", id)
				}
				seen[id] = true
				time.Sleep(pause)
			case string(m) == `["EOSE","x"]`:
				ended = true
			}
		}
		if len(seen) != len(ids) || oks != 1 {
			s.t.Error(name, n, "has", len(seen), oks)
		}
		if err := c.Write(ctx, websocket.MessageText, []byte(`["CLOSE","x"]`)); err != nil {
			s.t.Error(name, err)
		}
	}
}

func (s *server) connect(ctx context.Context, name string) (*websocket.Conn, error) {
	c, _, err := websocket.Dial(ctx, s.url, &websocket.DialOptions{HTTPHeader: http.Header{"Who": {name}}})
	if err == nil {
		c.SetReadLimit(-1)
	}
	return c, err
}

// leaves goes away in the middle of an answer, again and again.
func (s *server) leaves(i int, query string, done <-chan struct{}) {
	for n := 0; n < 20; n++ {
		select {
		case <-done:
			return
		default:
		}
		c, err := s.connect(s.t.Context(), fmt.Sprint("leaves", i))
		if err != nil {
			s.t.Error("leaves", i, err)
			return
		}
		for q := range 3 {
			_ = c.Write(s.t.Context(), websocket.MessageText, fmt.Appendf(nil, `["REQ","%d",%s]`, q, query)) // as far as it comes
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
		for range mathrand.IntN(20) {
			if _, _, err := c.Read(ctx); err != nil {
				s.t.Error("leaves", i, err)
			}
		}
		cancel()
		_ = c.CloseNow()
		time.Sleep(50 * time.Millisecond)
	}
}

// raw is a connection on which a websocket was begun.
func (s *server) raw(name string) net.Conn {
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "ws://"))
	if err != nil {
		s.t.Error(err)
		return nil
	}
	_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nWho: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", name)
	return c
}

// neverReads asks for much and reads none of it.
func (s *server) neverReads(name, query string, done <-chan struct{}) {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	c, err := s.connect(ctx, name)
	if err != nil {
		s.t.Error(name, err)
		return
	}
	var stop atomic.Bool
	go func() {
		<-done
		stop.Store(true)
		_ = c.CloseNow()
	}()
	for i := 0; !stop.Load() && err == nil; i++ {
		err = c.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `["REQ","%d",%s,%s,%s]`, i, query, query, query))
	}
	<-done
}

// writesGarbage writes what is no message, and what is no websocket.
func (s *server) writesGarbage(name, _ string, done <-chan struct{}) {
	c, err := s.connect(s.t.Context(), name)
	if err != nil {
		s.t.Error(name, err)
		return
	}
	for _, m := range []string{`,""`, `[]`, `{}`, `["REQ"]`, `["EVENT",{"id":1}]`, `["REQ","x",{"kinds":{}}]`, strings.Repeat("[", 10_000), "\xff\x00"} {
		_ = c.Write(s.t.Context(), websocket.MessageText, []byte(m)) // it may be hung up
	}
	_ = c.CloseNow()
	for {
		select {
		case <-done:
			return
		default:
		}
		c := s.raw(name)
		if c == nil {
			return
		}
		_, _ = io.CopyN(c, rand.Reader, 10_000)
		_ = c.Close()
		time.Sleep(200 * time.Millisecond)
	}
}

// neverEnds begins a message of 100,000 bytes.
func (s *server) neverEnds(name, _ string, done <-chan struct{}) {
	c := s.raw(name)
	if c == nil {
		return
	}
	defer func() { _ = c.Close() }()
	_, _ = c.Write(append([]byte{0x81, 0xff, 0, 0, 0, 0, 0, 1, 0x86, 0xa0, 0, 0, 0, 0}, strings.Repeat("x", 50_000)...))
	<-done
}

// neverBegins has a connection, or half a request for one, and no more.
func (s *server) neverBegins(name, _ string, done <-chan struct{}) {
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "ws://"))
	if err != nil {
		s.t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nWho: %s\r\nUpgr", name)
	other := s.raw(name)
	<-done
	_ = other.Close()
}

// asksAndAsks opens what it can and closes it at once.
func (s *server) asksAndAsks(name, query string, done <-chan struct{}) {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	c, err := s.connect(ctx, name)
	if err != nil {
		s.t.Error(name, err)
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if _, _, err := c.Read(ctx); err != nil {
				return
			}
		}
	})
	for i := 0; ; i++ {
		select {
		case <-done:
			_ = c.CloseNow()
			wg.Wait()
			return
		default:
		}
		for _, m := range []string{`["REQ","x",%s]`, `["NEG-OPEN","x",%s,"6100000200"]`, `["REQ","x",%s]`, `["NEG-CLOSE","x"]`, `["CLOSE","x"]`} {
			if strings.Contains(m, "%s") {
				m = fmt.Sprintf(m, query)
			}
			if err := c.Write(ctx, websocket.MessageText, []byte(m)); err != nil && !errors.Is(err, net.ErrClosed) {
				s.t.Error(name, err)
				return
			}
		}
		time.Sleep(25 * time.Millisecond)
	}
}
