package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	relaysync "github.com/graspsync/graspsync/sync"
)

// progress shows how far the sync is: bars on a terminal, lines elsewhere.
type progress struct {
	out   io.Writer
	names map[string]string // host:port -> name of the relay
	start time.Time
	bars  bool
	drawn int // lines to go up
	last  time.Time
}

func newProgress(out *os.File, names map[string]string, start time.Time) *progress {
	return &progress{out: out, names: names, start: start, bars: term.IsTerminal(int(out.Fd()))}
}

func (p *progress) name(r relaysync.RelayStatus) string {
	if n, ok := p.names[r.URL.HostPort().String()]; ok {
		return n
	}
	return r.URL.String()
}

func (p *progress) show(s relaysync.Status, wanted int, force bool) {
	if p.bars {
		p.draw(s, wanted)
		return
	}
	if now := time.Now(); force || now.Sub(p.last) >= 2*time.Second {
		p.last = now
		p.line(s, wanted)
	}
}

func (p *progress) line(s relaysync.Status, wanted int) {
	parts := make([]string, 0, len(s.Relays))
	for _, r := range s.Relays {
		parts = append(parts, fmt.Sprintf("%s %s %d/%d", p.name(r), r.Phase, r.Confirmed, r.Wanted))
	}
	fmt.Fprintf(p.out, "%5.1f s  %5d events stored by sync, %d must be here, %d repositories  [%s]\n",
		time.Since(p.start).Seconds(), s.Events.Stored, wanted, s.Repos, strings.Join(parts, ", "))
}

func (p *progress) draw(s relaysync.Status, wanted int) {
	if p.drawn > 0 {
		fmt.Fprintf(p.out, "\x1b[%dA", p.drawn)
	}
	p.drawn = len(s.Relays) + 1
	for _, r := range s.Relays {
		fmt.Fprintf(p.out, "\x1b[K%-8s %s %4d/%-4d %s\n", p.name(r), bar(r.Confirmed, r.Wanted), r.Confirmed, r.Wanted, r.Phase)
	}
	fmt.Fprintf(p.out, "\x1b[K%-8s %s %d events stored\n", "all", bar(int(s.Events.Stored), wanted), s.Events.Stored)
}

func bar(done, all int) string {
	const width = 30
	n := 0
	if all > 0 {
		n = min(width, width*done/all)
	}
	return "[" + strings.Repeat("#", n) + strings.Repeat(" ", width-n) + "]"
}

// table prints what each relay gave.
func (p *progress) table(s relaysync.Status) {
	fmt.Fprintln(p.out, "What each relay gave: new was not here yet, gaps are what is known to be missing.")
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "relay\tmethod\tevents\tnew\tkbytes\tgaps\tdials\tdrops\ttime\tstate\t")
	for _, r := range s.Relays {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f s\t%s\t\n", p.name(r), r.Method, r.Events, r.Stored,
			r.Bytes/1000, r.Missing+r.Seconds+r.Gaps, r.Attempts, r.Disconnects, r.SyncTime.Seconds(), r.Phase)
	}
	w.Flush()
}
