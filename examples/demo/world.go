package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// world is everything there is: the other relays, the git servers, and us.
type world struct {
	us       ourRelay
	relays   []*peer
	servers  []*gitServer
	hub      *hub
	dir      string
	workshop string // git data that is on no server
}

// newWorld makes all but our relay, and starts what is not down at first.
func newWorld(ctx context.Context, dir string, limit time.Duration) (w *world, err error) {
	w = &world{dir: dir, workshop: filepath.Join(dir, "workshop")}
	w.us.hold = holdFor(limit)
	if err := w.us.reserve(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	for i := range peers {
		p, err := newPeer(i)
		if err != nil {
			return w, err
		}
		w.relays = append(w.relays, p)
		fmt.Printf("relay %-9s ws://%s  %s\n", p.name, p.addr, peerTraits[i])
	}
	for i := range gitServers {
		s, err := newGitServer(ctx, i, dir)
		if err != nil {
			return w, err
		}
		w.servers = append(w.servers, s)
		fmt.Printf("git server %-4s http://%s  %s\n", s.name, s.addr, gitServerTraits[i])
	}
	if w.hub, err = newHub(ctx, w.us.addr(), w.addrs(), w.servers, w.workshop); err != nil {
		return w, err
	}
	for i, p := range w.relays {
		if err := p.load(w.hub.of(i)); err != nil {
			return w, err
		}
		if i == charlie {
			continue // it is down
		}
		if err := p.listen(); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (w *world) close() {
	for _, p := range w.relays {
		p.server.Close()
	}
	for _, s := range w.servers {
		s.server.Close()
	}
	w.us.listener.Close()
}

// addrs returns host and port of the other relays.
func (w *world) addrs() (addrs []string) {
	for _, p := range w.relays {
		addrs = append(addrs, p.addr)
	}
	return addrs
}

// names returns what the other relays are called, by host and port.
func (w *world) names() map[string]string {
	names := make(map[string]string)
	for _, p := range w.relays {
		names[p.addr] = p.name
	}
	return names
}

// clone clones all repositories that we must serve, as anybody could, and holds their
// refs against what the events say. It returns how many refs there are.
func (w *world) clone(ctx context.Context) (refs int, err error) {
	repos := w.hub.served()
	err = inParallel(repos, func(r *repo) error {
		dir := filepath.Join(w.dir, "clones", r.path)
		if _, err := runGit(ctx, ".", nil, "clone", "--quiet", "--mirror", w.us.url(r.path), dir); err != nil {
			return err
		}
		text, err := runGit(ctx, dir, nil, "for-each-ref", "--format=%(refname) %(objectname)")
		if err != nil {
			return err
		}
		got := make(map[string]string)
		for line := range strings.Lines(text) {
			ref, id, _ := strings.Cut(strings.TrimSpace(line), " ")
			got[ref] = id
		}
		return r.check(got)
	})
	for _, r := range repos {
		refs += len(r.refs())
	}
	return refs, err
}

// expire waits until what waits in vain has expired.
func (w *world) expire(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.us.hold+10*time.Second)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		waiting := 0
		for _, e := range w.us.server.Purgatory().Status().Waiting {
			if !e.Soft {
				waiting++
			}
		}
		if waiting == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d events still wait: %w", waiting, ctx.Err())
		case <-ticker.C:
		}
	}
}
