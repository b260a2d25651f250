package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
)

// relayProcess in the environment makes the test binary the relay.
const relayProcess = "GRASPSYNC_BENCH_RELAY"

func TestMain(m *testing.M) {
	if os.Getenv(relayProcess) != "" {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "relay of the benchmark:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// What the relay process is told, a line each.
const (
	cmdLoad  = "load"  // events follow, a line each, up to an empty one
	cmdNIP77 = "nip77" // cut connections, count anew, and be a relay with NIP-77
	cmdPages = "pages" // the same without NIP-77
	cmdUsage = "usage" // answer with the bytes from and to the relay and CPU time since
)

const (
	answerOK    = "ok"
	maxPage     = 500 // events in one answer
	unlimited   = 1 << 30
	maxLine     = 1 << 20
	headTimeout = 5 * time.Second
)

// serve is the relay process: khatru with and without NIP-77 and a proxy in front of
// one of them. The first answer is the proxy's address; it ends with its input.
func serve(in io.Reader, out io.Writer) error {
	p, err := newProxy()
	if err != nil {
		return err
	}
	defer p.close()
	go p.run()
	fmt.Fprintln(out, p.addr())

	var relays map[string]string
	var used time.Duration
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		answer := answerOK
		switch cmd := lines.Text(); cmd {
		case cmdLoad:
			events, err := readEvents(lines)
			if err != nil {
				return err
			}
			a := newArchive(events)
			relays = make(map[string]string)
			for _, name := range []string{cmdNIP77, cmdPages} {
				addr, err := startRelay(a, name == cmdNIP77)
				if err != nil {
					return err
				}
				relays[name] = addr
			}
		case cmdNIP77, cmdPages:
			p.use(relays[cmd])
			runtime.GC()
			used = cpuTime()
		case cmdUsage:
			answer = fmt.Sprint(p.in.Load(), p.out.Load(), int64(cpuTime()-used))
		default:
			return fmt.Errorf("unknown command %q", cmd)
		}
		fmt.Fprintln(out, answer)
	}
	return lines.Err()
}

func readEvents(lines *bufio.Scanner) (events []*nostr.Event, err error) {
	for lines.Scan() {
		text := strings.Clone(lines.Text()) // events keep parts of it
		if text == "" {
			return events, nil
		}
		ev := &nostr.Event{}
		if err := ev.UnmarshalJSON([]byte(text)); err != nil {
			return nil, err
		}
		events = append(events, ev)
	}
	return nil, io.ErrUnexpectedEOF
}

func startRelay(a *archive, nip77 bool) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
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
		for _, ev := range found {
			ch <- ev
		}
		close(ch)
		return ch, nil
	})
	server := &http.Server{Handler: relay, ReadHeaderTimeout: headTimeout}
	go server.Serve(l) // ends with the process
	return l.Addr().String(), nil
}
