package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/internal/cputime"
)

// relayProcess is the environment variable that makes this command a relay. Its value is "nip77 " or
// "pages ", and the file of its events.
const relayProcess = "GRASPSYNC_BENCH_RELAY"

const (
	maxPage     = 500 // events per answer
	unlimited   = 1 << 30
	maxLine     = 1 << 20
	headTimeout = 5 * time.Second
)

// usage is the traffic and the cost of a relay.
type usage struct {
	In, Out int64         // bytes on the connections, from and to the relay
	CPU     time.Duration // of the process of the relay, without its start
}

// serveRelay serves a relay. spec is its kind and the file of its events. It prints the address of
// the relay, and a usage for each line of in.
func serveRelay(spec string, in io.Reader, out io.Writer) error {
	kind, path, _ := strings.Cut(spec, " ")
	var records []*nostr.Event
	for line, err := range linesOf(path) {
		if err != nil {
			return err
		}
		ev := &nostr.Event{}
		if err := ev.UnmarshalJSON([]byte(string(line))); err != nil {
			return err
		}
		records = append(records, ev)
	}
	relay := newKhatru(newArchive(records), kind == "nip77")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	conns := &countedListener{Listener: l}
	server := &http.Server{ReadHeaderTimeout: headTimeout, Handler: relay}
	go func() { _ = server.Serve(conns) }() // ends with the process
	runtime.GC()
	began := cputime.Used()
	fmt.Fprintln(out, l.Addr())
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if err := json.NewEncoder(out).Encode(usage{conns.in.Load(), conns.out.Load(), cputime.Used() - began}); err != nil {
			return err
		}
	}
	return nil
}

func newKhatru(a *archive, nip77 bool) *khatru.Relay {
	relay := khatru.NewRelay()
	relay.Log = log.New(io.Discard, "", 0)
	relay.Negentropy = nip77
	relay.QueryEvents = append(relay.QueryEvents, func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
		most := maxPage
		if f.Limit > 0 {
			most = min(most, f.Limit)
		}
		if eventstore.IsNegentropySession(ctx) {
			most = unlimited
		}
		found := a.query(f, most)
		ch := make(chan *nostr.Event, len(found))
		for _, i := range found {
			ch <- a.records[i]
		}
		close(ch)
		return ch, nil
	})
	return relay
}

// countedListener counts the bytes of its connections.
type countedListener struct {
	net.Listener
	in, out atomic.Int64 // from and to the relay
}

// Accept implements [net.Listener].
func (l *countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return countedConn{conn, l}, err
}

type countedConn struct {
	net.Conn
	of *countedListener
}

// Read implements [net.Conn].
func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.of.out.Add(int64(n))
	return n, err
}

// Write implements [net.Conn].
func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.of.in.Add(int64(n))
	return n, err
}

// child is another process of this command with a role, so that its CPU time is not counted as
// ours. Only one goroutine uses it.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startChild starts the role of an environment variable.
func startChild(ctx context.Context, role, value string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env, cmd.Stderr = append(os.Environ(), role+"="+value), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &child{cmd: cmd, in: in, out: bufio.NewScanner(out)}, cmd.Start()
}

// line returns the next line that the process prints.
func (c *child) line() (string, error) {
	if !c.out.Scan() {
		return "", errors.Join(errors.New("the other process has ended"), c.out.Err())
	}
	return c.out.Text(), nil
}

// close ends the process, which ends with its input.
func (c *child) close() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }

// usage returns the usage of a relay.
func (c *child) usage() (u usage, err error) {
	fmt.Fprintln(c.in)
	line, err := c.line()
	if err == nil {
		err = json.Unmarshal([]byte(line), &u)
	}
	return u, err
}
