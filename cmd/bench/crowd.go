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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/relaytest/relayserver"
	"github.com/graspsync/graspsync/sync/wire"
)

// crowdProcess is the environment variable that makes this command a crowd.
const crowdProcess = "GRASPSYNC_BENCH_CROWD"

// crowd is many relays at one address with different paths. They are empty and run in a separate
// process, so that their cost is not counted.
type crowd struct {
	mu     sync.Mutex
	relays map[string]*relaytest.Relay // guarded by mu; by path
}

// relay returns the relay at a path.
func (c *crowd) relay(path string) *relaytest.Relay {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.relays[path]
	if r == nil {
		r = relaytest.New("wss://crowd.example"+path, relaytest.Behavior{Info: wire.Info{NIPs: []int{1, 11}}, Negentropy: relaytest.NegNotice})
		c.relays[path] = r
	}
	return r
}

// Commands for a crowd and its answers, one per line.
const (
	crowdPublish = "publish" // publish <microseconds between two>; then events, one per line, and an empty line
	crowdAsked   = "asked"   // answers with the number of all requests and of connections
)

func serveCrowd(in io.Reader, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c := &crowd{relays: make(map[string]*relaytest.Relay)}
	server := &http.Server{ReadHeaderTimeout: headTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		relayserver.New(c.relay(r.URL.Path)).ServeHTTP(w, r)
	})}
	go server.Serve(listener) // ends with the process
	defer server.Close()
	fmt.Fprintln(out, listener.Addr())
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		cmd, arg, _ := strings.Cut(lines.Text(), " ")
		switch cmd {
		case crowdAsked:
			asked, open := 0, 0
			c.mu.Lock()
			for _, r := range c.relays {
				asked += r.Traffic().MessagesReceived
				open += r.Open()
			}
			c.mu.Unlock()
			fmt.Fprintln(out, asked, open)
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

// publish publishes events at intervals. For each it reports the time in nanoseconds.
func (c *crowd) publish(events []publication, every time.Duration, out io.Writer) error {
	w := bufio.NewWriter(out)
	next := time.Now()
	for _, p := range events {
		time.Sleep(time.Until(next))
		at := time.Now()
		next = at.Add(every)
		for _, path := range p.paths {
			c.relay(path).Publish(&p.event)
		}
		fmt.Fprintln(w, p.event.ID, at.UnixNano())
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// crowdRemote controls the process of a crowd.
type crowdRemote struct {
	*child
	addr string
}

func startCrowd(ctx context.Context) (*crowdRemote, error) {
	p, err := startChild(ctx, crowdProcess, "1")
	if err != nil {
		return nil, err
	}
	c := &crowdRemote{child: p}
	if c.addr, err = c.line(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// path and url return the path and the URL of a relay.
func (*crowdRemote) path(relay int) string  { return fmt.Sprintf("/%d", relay) }
func (c *crowdRemote) url(relay int) string { return "ws://" + c.addr + c.path(relay) }

// asked returns the number of all requests and of connections.
func (c *crowdRemote) asked() (requests, connections int, err error) {
	fmt.Fprintln(c.in, crowdAsked)
	text, err := c.line()
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Sscan(text, &requests, &connections)
	return requests, connections, err
}

// publish publishes events at intervals and returns the times by event id.
func (c *crowdRemote) publish(events []publication, every time.Duration) (map[string]time.Time, error) {
	w := bufio.NewWriter(c.in)
	fmt.Fprintln(w, crowdPublish, every.Microseconds())
	for _, p := range events {
		fmt.Fprintln(w, p.line())
	}
	fmt.Fprintln(w)
	if err := w.Flush(); err != nil {
		return nil, err
	}
	at := make(map[string]time.Time)
	for {
		text, err := c.line()
		if err != nil || text == "" {
			return at, err
		}
		var id string
		var nanos int64
		if _, err := fmt.Sscan(text, &id, &nanos); err != nil {
			return nil, err
		}
		at[id] = time.Unix(0, nanos)
	}
}
