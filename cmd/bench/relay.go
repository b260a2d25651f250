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
	"runtime"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/internal/cputime"
)

// relayProcess is the environment variable that makes this command the process of the relays.
const relayProcess = "GRASPSYNC_BENCH_RELAY"

// order is a command for the process of the relays, one per line, as are its answers.
type order struct {
	Do       string
	Path     string   // load: file
	Forged   int      // load: number of additional events with the signature of another author
	Software software // be
	Relays   int      // be: number of relays
}

const (
	doLoad  = "load"
	doBe    = "be"    // cut connections, reset counters, become these relays, and answer with their addresses
	doUsage = "usage" // answer with a usage
)

type software string

const (
	khatruNIP77 software = "khatru-nip77"
	khatruPages software = "khatru-pages" // without NIP-77
	cannedNIP77 software = "canned-nip77"
	cannedPages software = "canned-pages"
)

const (
	maxPage     = 500 // events per answer
	unlimited   = 1 << 30
	maxLine     = 1 << 20
	headTimeout = 5 * time.Second
)

// usage is the traffic and the cost of the relays since the last doBe.
type usage struct {
	In, Out int64         // bytes on the connections, from and to the relays
	CPU     time.Duration // of the process of the relays
	Traffic traffic       // of canned relays
	Last    time.Time     // time of the last answer of canned relays
}

// process contains the relays of a separate process: khatru behind a proxy that counts bytes, and
// canned relays.
type process struct {
	proxy   *proxy
	archive *archive
	khatru  map[software]string // addresses
	canned  []*canned
	used    time.Duration // CPU time at the last doBe
}

// serve executes orders from its input until it ends.
func serve(in io.Reader, out io.Writer) error {
	proxy, err := newProxy()
	if err != nil {
		return err
	}
	defer proxy.close()
	go proxy.run()
	p := &process{proxy: proxy}
	lines := bufio.NewScanner(in)
	answers := json.NewEncoder(out)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		answer, err := p.do(o)
		if err != nil {
			return fmt.Errorf("%s: %w", o.Do, err)
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (p *process) do(o order) (answer any, err error) {
	switch o.Do {
	case doLoad:
		return nil, p.load(o.Path, o.Forged)
	case doBe:
		return p.be(o.Software, o.Relays)
	case doUsage:
		return p.usage(), nil
	}
	return nil, errors.New("unknown order")
}

func (p *process) usage() usage {
	u := usage{In: p.proxy.in.Load(), Out: p.proxy.out.Load(), CPU: cputime.Used() - p.used, Traffic: make(traffic)}
	for _, c := range p.canned {
		u.In += c.in.Load()
		u.Out += c.out.Load()
		if last := c.addTraffic(u.Traffic); last.After(u.Last) {
			u.Last = last
		}
	}
	return u
}

// load reads events and adds forged events with the signature of another author.
func (p *process) load(path string, forged int) error {
	var records []record
	for line, err := range linesOf(path) {
		if err != nil {
			return err
		}
		text, ev := string(line), &nostr.Event{}
		if err := ev.UnmarshalJSON([]byte(text)); err != nil {
			return err
		}
		records = append(records, record{ev, text})
	}
	for _, r := range records[len(records)-forged:] {
		ev := *r.event
		ev.Content += "!"
		ev.ID = ev.GetID()
		records = append(records, record{&ev, ev.String()})
	}
	p.archive = newArchive(records)
	p.khatru = make(map[software]string)
	for _, s := range []software{khatruNIP77, khatruPages} {
		addr, err := startKhatru(p.archive, s == khatruNIP77)
		if err != nil {
			return err
		}
		p.khatru[s] = addr
	}
	return nil
}

func (p *process) be(s software, n int) (addresses []string, err error) {
	for _, c := range p.canned {
		c.close()
	}
	p.canned = nil
	p.proxy.use(p.khatru[s])
	if p.khatru[s] != "" {
		addresses = []string{p.proxy.addr()}
	} else {
		for i := range n {
			c, err := startCanned(p.archive, i, s == cannedNIP77)
			if err != nil {
				return nil, err
			}
			p.canned = append(p.canned, c)
			addresses = append(addresses, c.addr())
		}
	}
	runtime.GC()
	p.used = cputime.Used()
	return addresses, nil
}

func startKhatru(a *archive, nip77 bool) (addr string, err error) {
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
		for _, i := range found {
			ch <- a.records[i].event
		}
		close(ch)
		return ch, nil
	})
	server := &http.Server{Handler: relay, ReadHeaderTimeout: headTimeout}
	go func() { _ = server.Serve(l) }()
	return l.Addr().String(), nil
}
