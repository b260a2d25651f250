package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/graspsync/graspsync/purgatory"
)

// waits is told what waits for git data and what becomes of it. It plays the parts of
// others: of a server on which a commit appears late, and of an owner who pushes.
type waits struct {
	hub      *hub
	us       *ourRelay
	servers  []*gitServer
	workshop string
	others   sync.WaitGroup

	mu sync.Mutex
	// guarded by mu
	held   map[int]int // by kind
	ended  map[int]map[purgatory.Fate]int
	asked  map[string]*asked // by host:port
	acted  map[*repo]bool
	failed error // of what others did
}

// asked is what a git server was asked for.
type asked struct{ requests, unanswered, objects, bytes int }

func newWaits(us *ourRelay, h *hub, servers []*gitServer, workshop string) *waits {
	return &waits{
		hub: h, us: us, servers: servers, workshop: workshop, held: make(map[int]int), acted: make(map[*repo]bool),
		ended: make(map[int]map[purgatory.Fate]int), asked: make(map[string]*asked),
	}
}

// observe is told by purgatory.
func (w *waits) observe(ctx context.Context) func(purgatory.Observation) {
	return func(o purgatory.Observation) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch o := o.(type) {
		case purgatory.Began:
			if o.Event == nil {
				return
			}
			w.held[o.Event.Kind]++
			for _, r := range w.hub.repos {
				if r.story == pushed && r.state.event.ID == o.Event.ID {
					w.act(r, func() error { return w.push(ctx, r) })
				}
			}
		case purgatory.Ended:
			if o.Event == nil {
				return
			}
			if w.ended[o.Event.Kind] == nil {
				w.ended[o.Event.Kind] = make(map[purgatory.Fate]int)
			}
			w.ended[o.Event.Kind][o.Fate]++
		case purgatory.Fetched:
			host := o.URL.HostPort.String()
			if w.asked[host] == nil {
				w.asked[host] = &asked{}
			}
			a := w.asked[host]
			a.requests++
			a.objects += o.Wanted - o.Missing
			a.bytes += int(o.Bytes)
			if o.Err != nil {
				a.unanswered++
			}
		case purgatory.Incomplete:
			for _, r := range w.hub.repos {
				if r.story == late && r.name == o.Repo.Identifier {
					w.act(r, func() error { return r.complete(ctx, w.servers[r.home]) })
				}
			}
		}
	}
}

// act does what somebody else does, once for a repository. It is called with mu held.
func (w *waits) act(r *repo, do func() error) {
	if w.acted[r] {
		return
	}
	w.acted[r] = true
	w.others.Go(func() {
		if err := do(); err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.failed = err
		}
	})
}

// push is what an owner does who has published a state, and contributors who will
// publish pull requests.
func (w *waits) push(ctx context.Context, r *repo) error {
	until := time.Now().Add(w.us.hold)
	args := []string{"push", "--quiet", w.us.url(r.path), "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*"}
	for _, p := range r.pulls {
		args = append(args, fmt.Sprintf("refs/pull/%d/head:%s", p.number, p.ref()))
	}
	// Its state waits. The repository is made as soon as the announcement does.
	for {
		_, err := runGit(ctx, filepath.Join(w.workshop, r.path), nil, args...)
		if err == nil || time.Now().After(until) {
			return err
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// end waits for what others do and says what went wrong with it.
func (w *waits) end() error {
	w.others.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// tooLate says if events expired whose data was there to be had.
func (w *waits) tooLate() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.ended[kindRepo][purgatory.Expired]; n > 1 {
		return fmt.Errorf("%d repositories expired after %s: this machine needs more time, see -limit", n, w.us.hold)
	}
	return nil
}

// table prints what became of what waited, and what the git servers gave.
func (w *waits) table(out io.Writer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintln(out, "The data of one repository and of two pull requests is nowhere: they expire, its states as well.")
	tab := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "waited for git data\theld\treleased\treplaced\tdeleted\texpired\twaiting\t")
	for _, kind := range []int{kindRepo, kindState, kindPR} {
		e := w.ended[kind]
		left := w.held[kind]
		for _, n := range e {
			left -= n
		}
		name := map[int]string{kindRepo: "announcements", kindState: "states", kindPR: "pull requests"}[kind]
		fmt.Fprintf(tab, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, w.held[kind], e[purgatory.Released], e[purgatory.Replaced],
			e[purgatory.Deleted], e[purgatory.Expired], left)
	}
	tab.Flush()
	fmt.Fprintln(out)
	fmt.Fprintln(tab, "git server\trequests\tfailed\tfetched objects\tkbytes\t")
	for _, s := range w.servers {
		a := w.asked[s.addr]
		if a == nil {
			a = &asked{}
		}
		fmt.Fprintf(tab, "%s\t%d\t%d\t%d\t%d\t\n", s.name, a.requests, a.unanswered, a.objects, a.bytes/1000)
	}
	tab.Flush()
}
