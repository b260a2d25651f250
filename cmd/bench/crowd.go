package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
)

// crowdProcess is the environment variable that makes this command a crowd.
const crowdProcess = "GRASPSYNC_BENCH_CROWD"

// crowd is many relays at one address with different paths. They store nothing: every REQ gets EOSE
// immediately, and published events are sent live. They run in a separate process, so that their
// cost is not counted.
type crowd struct {
	mu     sync.Mutex
	relays map[string]*crowdRelay // guarded by mu; by path
	asked  int                    // guarded by mu: requests and closes since the last report
}

// crowdRelay is the only connection of a relay in a crowd.
type crowdRelay struct {
	ws *websocket.Conn

	mu   sync.Mutex
	subs map[string][]json.RawMessage // guarded by mu; filters as received
	live map[string]*filters.Matcher  // guarded by mu; compiled on first publication
}

// Commands for a crowd and its answers, one per line.
const (
	crowdPublish = "publish" // publish <microseconds between two>; then events, one per line, and an empty line
	crowdAsked   = "asked"   // answers with the requests since the last time and the number of connections
)

func serveCrowd(in io.Reader, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c := &crowd{relays: make(map[string]*crowdRelay)}
	server := &http.Server{Handler: c, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(listener) // ends with the process
	defer server.Close()
	fmt.Fprintln(out, listener.Addr())
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		cmd, arg, _ := strings.Cut(lines.Text(), " ")
		switch cmd {
		case crowdAsked:
			c.mu.Lock()
			fmt.Fprintln(out, c.asked, len(c.relays))
			c.asked = 0
			c.mu.Unlock()
		case crowdPublish:
			every, err := strconv.Atoi(arg)
			if err != nil {
				return err
			}
			var events []publication
			for lines.Scan() && lines.Text() != "" {
				p, err := parsePublication(lines.Text())
				if err != nil {
					return err
				}
				events = append(events, p)
			}
			if err := c.publish(events, time.Duration(every)*time.Microsecond, out); err != nil {
				return err
			}
		default:
			return fmt.Errorf("unknown command %q", cmd)
		}
	}
	return lines.Err()
}

// publication is an event and the paths of the relays that publish it.
type publication struct {
	paths []string
	event nostr.Event
}

func (p publication) line() string { return strings.Join(p.paths, ",") + "\t" + p.event.String() }

func parsePublication(line string) (p publication, err error) {
	paths, event, _ := strings.Cut(line, "\t")
	p.paths = strings.Split(paths, ",")
	return p, json.Unmarshal([]byte(event), &p.event)
}

// publish publishes events at intervals. For each it reports the time and the delay in nanoseconds,
// and the number of relays with a matching subscription.
func (c *crowd) publish(events []publication, every time.Duration, out io.Writer) error {
	w := bufio.NewWriter(out)
	next := time.Now()
	for _, p := range events {
		time.Sleep(time.Until(next))
		at, to := time.Now(), 0
		late := at.Sub(next)
		if next = next.Add(every); late > every { // do not send missed events in a burst
			next = at.Add(every)
		}
		for _, path := range p.paths {
			c.mu.Lock()
			r := c.relays[path]
			c.mu.Unlock()
			if r != nil && r.send(&p.event) {
				to++
			}
		}
		fmt.Fprintln(w, p.event.ID, at.UnixNano(), late.Nanoseconds(), to)
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// send sends an event to the first matching subscription and reports whether there is one.
func (r *crowdRelay) send(ev *nostr.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sub, raw := range r.subs {
		m := r.live[sub]
		if m == nil {
			fs := make([]nostr.Filter, len(raw))
			for i := range raw {
				if json.Unmarshal(raw[i], &fs[i]) != nil {
					return false
				}
			}
			m = filters.Compile(fs)
			r.live[sub] = m
		}
		if m.Match(ev) {
			return r.answer("EVENT", sub, ev) == nil
		}
	}
	return false
}

func (r *crowdRelay) answer(parts ...any) error {
	text, err := json.Marshal(parts)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return r.ws.Write(ctx, websocket.MessageText, text)
}

// ServeHTTP implements [http.Handler].
func (c *crowd) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Upgrade") == "" {
		fmt.Fprint(w, `{"name":"one of a crowd","supported_nips":[1,11]}`)
		return
	}
	ws, err := websocket.Accept(w, req, nil)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	ws.SetReadLimit(1 << 20)
	r := &crowdRelay{ws: ws, subs: make(map[string][]json.RawMessage), live: make(map[string]*filters.Matcher)}
	c.mu.Lock()
	c.relays[req.URL.Path] = r
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.relays, req.URL.Path)
		c.mu.Unlock()
	}()
	for {
		_, text, err := ws.Read(req.Context())
		if err != nil {
			return
		}
		c.mu.Lock()
		c.asked++
		c.mu.Unlock()
		if r.take(text) != nil {
			return
		}
	}
}

// take processes a message of a client. Subscriptions without stored events stay live.
func (r *crowdRelay) take(text []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	var label, sub string
	if len(parts) < 2 || json.Unmarshal(parts[0], &label) != nil || json.Unmarshal(parts[1], &sub) != nil {
		return errors.New("malformed request")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch label {
	case "CLOSE":
		delete(r.subs, sub)
		delete(r.live, sub)
	case "REQ":
		r.subs[sub] = parts[2:]
		delete(r.live, sub)
		return r.answer("EOSE", sub)
	case "NEG-OPEN":
		return r.answer("NOTICE", "ERROR: bad msg: unknown cmd")
	}
	return nil
}

// crowdRemote controls the process of a crowd. Only one goroutine uses it.
type crowdRemote struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	addr string
}

func startCrowd(ctx context.Context) (*crowdRemote, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), crowdProcess+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &crowdRemote{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	if c.addr, err = c.line(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *crowdRemote) line() (string, error) {
	if !c.out.Scan() {
		return "", errors.Join(errors.New("the process of the relays has ended"), c.out.Err())
	}
	return c.out.Text(), nil
}

func (c *crowdRemote) close() {
	c.in.Close()
	_ = c.cmd.Wait() // the process has ended in any case
}

// path and url return the path and the URL of a relay.
func (*crowdRemote) path(relay int) string  { return fmt.Sprintf("/%d", relay) }
func (c *crowdRemote) url(relay int) string { return "ws://" + c.addr + c.path(relay) }

// asked returns the number of requests since the last call and of connections.
func (c *crowdRemote) asked() (requests, connections int, err error) {
	fmt.Fprintln(c.in, crowdAsked)
	text, err := c.line()
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Sscan(text, &requests, &connections)
	return requests, connections, err
}

// published is the time at which an event was published, and the number of relays with a matching
// subscription.
type published struct {
	at   time.Time
	late time.Duration // delay of the sender
	on   int
}

// publish publishes events at intervals and returns the results by event id.
func (c *crowdRemote) publish(events []publication, every time.Duration) (map[string]published, error) {
	w := bufio.NewWriter(c.in)
	fmt.Fprintln(w, crowdPublish, every.Microseconds())
	for _, p := range events {
		fmt.Fprintln(w, p.line())
	}
	fmt.Fprintln(w)
	if err := w.Flush(); err != nil {
		return nil, err
	}
	at := make(map[string]published)
	for {
		text, err := c.line()
		if err != nil || text == "" {
			return at, err
		}
		var id string
		var nanos int64
		var p published
		if _, err := fmt.Sscan(text, &id, &nanos, (*int64)(&p.late), &p.on); err != nil {
			return nil, err
		}
		p.at = time.Unix(0, nanos)
		at[id] = p
	}
}
