package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// front is a proxy before a server. It counts messages, and writes them to the folder FRONT_LOG if
// that is set.
type front struct {
	mu    sync.Mutex
	said  traffic
	to    string // address of the server
	proxy http.Handler
	ended context.Context
	log   io.Writer // log of all messages; may be nil
}

// traffic is the traffic of a front. Bytes of websockets are those of messages.
type traffic struct {
	asked, answered map[string]int // messages by type
	refusals        map[string]int // by text, with x for numbers
	bytesIn         int64          // from clients
	bytesOut        int64
	gitRequests     int
	gitFailed       map[int]int // by HTTP status
	gitBytes        int64       // in answers
	connections     int
}

// opens starts a front at an address.
func opens(t *testing.T, at, to string) *front {
	t.Helper()
	f := &front{to: to, ended: t.Context(), said: traffic{
		asked: make(map[string]int), answered: make(map[string]int), refusals: make(map[string]int), gitFailed: make(map[int]int),
	}}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: to})
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) } // the server has ended
	f.proxy = proxy
	if dir := os.Getenv("FRONT_LOG"); dir != "" {
		file, err := os.Create(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "_")+"_"+strings.ReplaceAll(at, ":", "_")))
		require.NoError(t, err)
		t.Cleanup(func() { _ = file.Close() })
		f.log = file
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at)
	require.NoError(t, err)
	site := &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = site.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = site.Close()
		<-done
	})
	return f
}

// ServeHTTP implements [http.Handler].
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		f.talk(w, r)
		return
	}
	if !strings.Contains(r.URL.Path, ".git/") {
		f.proxy.ServeHTTP(w, r)
		return
	}
	counted := &counted{ResponseWriter: w, status: http.StatusOK}
	f.proxy.ServeHTTP(counted, r)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said.gitRequests++
	f.said.gitBytes += counted.bytes
	if counted.status != http.StatusOK {
		f.said.gitFailed[counted.status]++
	}
}

type counted struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// WriteHeader implements [http.ResponseWriter].
func (c *counted) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (c *counted) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return c.ResponseWriter.Write(p)
}

// Flush implements [http.Flusher].
func (c *counted) Flush() { _ = http.NewResponseController(c.ResponseWriter).Flush() }

// talk forwards messages until one side ends.
func (f *front) talk(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(f.ended)
	defer cancel()
	server, resp, err := websocket.Dial(ctx, "ws://"+f.to+r.URL.Path, nil)
	if err != nil {
		if resp == nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(resp.StatusCode)
		return
	}
	defer server.CloseNow()
	client, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer client.CloseNow()
	f.mu.Lock()
	f.said.connections++
	number := f.said.connections
	f.mu.Unlock()
	var wg sync.WaitGroup
	pass := func(from, to *websocket.Conn, sign string, count func([]byte)) {
		defer cancel()
		from.SetReadLimit(-1)
		for {
			kind, message, err := from.Read(ctx)
			if err != nil {
				return
			}
			count(message)
			f.write(number, sign, message)
			if to.Write(ctx, kind, message) != nil {
				return
			}
		}
	}
	wg.Go(func() { pass(client, server, ">", f.ask) })
	wg.Go(func() { pass(server, client, "<", f.answer) })
	wg.Wait()
}

// write logs a message. It shortens answers.
func (f *front) write(conn int, sign string, message []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.log != nil {
		if sign == "<" {
			message = message[:min(len(message), 500)]
		}
		fmt.Fprintf(f.log, "%s %d %s %s\n", time.Now().Format("15:04:05.000"), conn, sign, message)
	}
}

func (f *front) ask(message []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said.asked[label(message)]++
	f.said.bytesIn += int64(len(message))
}

// number matches the varying part of a refusal.
var number = regexp.MustCompile(`[0-9a-f]{16,}|[0-9]+`)

func (f *front) answer(message []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := label(message)
	f.said.answered[name]++
	f.said.bytesOut += int64(len(message))
	if name != "CLOSED" && name != "NEG-ERR" && name != "NOTICE" && name != "OK" {
		return
	}
	var parts []any
	if json.Unmarshal(message, &parts) != nil || len(parts) < 2 || name == "OK" && len(parts) > 2 && parts[2] == true {
		return
	}
	if name == "CLOSED" && parts[len(parts)-1] == "" {
		return // some relays answer CLOSE so
	}
	f.said.refusals[name+" "+number.ReplaceAllString(fmt.Sprint(parts[len(parts)-1]), "x")]++
}

// label returns the type of a message.
func label(message []byte) string {
	_, rest, _ := bytes.Cut(message, []byte(`"`))
	name, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(name)
}

// traffic returns the traffic until now.
func (f *front) traffic() traffic {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.said
	out.asked, out.answered, out.refusals, out.gitFailed =
		maps.Clone(out.asked), maps.Clone(out.answered), maps.Clone(out.refusals), maps.Clone(out.gitFailed)
	return out
}

// refused returns the number of refusals.
func (s traffic) refused() (n int) {
	for _, times := range s.refusals {
		n += times
	}
	return n
}

// String returns the traffic in some lines.
func (s traffic) String() string {
	var out strings.Builder
	show := func(name string, counts map[string]int) {
		fmt.Fprintf(&out, "\n  %s:", name)
		for _, k := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&out, " %s %d", k, counts[k])
		}
	}
	fmt.Fprintf(&out, "%d connections, %d kB asked, %d kB answered, %d refusals; git: %d requests, %d kB, failed %v",
		s.connections, s.bytesIn/1000, s.bytesOut/1000, s.refused(), s.gitRequests, s.gitBytes/1000, s.gitFailed)
	show("asked", s.asked)
	show("answered", s.answered)
	for _, text := range slices.Sorted(maps.Keys(s.refusals)) {
		fmt.Fprintf(&out, "\n  %dx %.200s", s.refusals[text], text)
	}
	return out.String()
}

// A front forwards messages and counts them.
func TestFront(t *testing.T) {
	behind := address(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", behind)
	require.NoError(t, err)
	answers := []string{
		`["EVENT","a",{}]`, `["EOSE","a"]`, `["CLOSED","a","rate-limited: 12 is too much"]`, `["NEG-ERR","a","blocked: no"]`,
		`["CLOSED","a",""]`, `["NOTICE","slow down"]`, `["OK","00","true"]`, `["OK","00",true,""]`, `["OK","00",false,"invalid: no"]`, `["CLOSED","b","rate-limited: 7 is too much"]`,
	}
	site := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, "later")
			return
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		_, _, _ = conn.Read(r.Context())
		for _, a := range answers {
			_ = conn.Write(r.Context(), websocket.MessageText, []byte(a))
		}
		_ = conn.Close(websocket.StatusNormalClosure, "")
	})}
	go func() { _ = site.Serve(listener) }()
	defer site.Close()
	at := address(t)
	f := opens(t, at, behind)
	conn, _, err := websocket.Dial(t.Context(), "ws://"+at, nil)
	require.NoError(t, err)
	defer conn.CloseNow()
	require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte(`["REQ","a",{}]`)))
	for _, want := range answers {
		_, got, err := conn.Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	resp, err := http.Get("http://" + at + "/npub1/x.git/info/refs") // our own server
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	http.DefaultClient.CloseIdleConnections()
	s := f.traffic()
	require.Equal(t, map[string]int{"REQ": 1}, s.asked)
	require.Equal(t, map[string]int{
		"CLOSED rate-limited: x is too much": 2, "NEG-ERR blocked: no": 1, "NOTICE slow down": 1, "OK true": 1, "OK invalid: no": 1,
	}, s.refusals)
	require.Equal(t, 6, s.refused())
	require.EqualValues(t, 14, s.bytesIn)
	require.Equal(t, 1, s.gitRequests)
	require.EqualValues(t, 5, s.gitBytes)
	require.Equal(t, map[int]int{http.StatusTooManyRequests: 1}, s.gitFailed)
}
