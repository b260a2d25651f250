// Command demo shows graspsync at its main job: a relay with an empty database
// catches up with four others that differ, follows them, and ends up with exactly
// the events it must have.
//
//	go run ./examples/demo [-serve] [-v]
//
// Everything runs in this process and talks over loopback websockets. It exits with
// 0 only if nothing is missing and nothing is foreign.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

func main() {
	serve := flag.Bool("serve", false, "leave everything running until interrupted")
	limit := flag.Duration("limit", 50*time.Second, "give up when the sync takes longer")
	verbose := flag.Bool("v", false, "log what the sync does to standard error")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *serve, *verbose, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, serve, verbose bool, limit time.Duration) error {
	start := time.Now()
	var us ourRelay
	if err := us.reserve(); err != nil {
		return err
	}
	others := make([]*peer, peers)
	addrs := make([]string, peers)
	names := make(map[string]string)
	for i := range others {
		p, err := newPeer(i)
		if err != nil {
			return err
		}
		others[i], addrs[i] = p, p.addr
		names[p.addr] = p.name
		fmt.Printf("relay %-8s ws://%s  %s\n", p.name, p.addr, peerTraits[i])
	}
	h := newHub(us.addr(), addrs)
	total := 0
	for i, p := range others {
		events := h.of(i)
		total += len(events)
		if err := p.load(events); err != nil {
			return err
		}
		defer p.server.Close()
		if i == charlie {
			continue // it is down
		}
		if err := p.listen(); err != nil {
			return err
		}
	}
	fmt.Printf("our relay      ws://%s  knows %s and nothing else\n", us.addr(), names[addrs[alpha]])
	fmt.Printf("hub            %d events, %d copies on the relays, %d of them must arrive (%.1f s to make)\n\n",
		len(h.drafts), total, len(h.expected()), time.Since(start).Seconds())

	if err := us.open(addrs[alpha], verbose); err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { us.run(running) })

	show := newProgress(os.Stdout, names, time.Now())
	if err := catchUp(ctx, &us, others, h, show, limit); err != nil {
		return err
	}
	took, err := publishLive(ctx, h, addrs, us.addr())
	if err != nil {
		return err
	}
	fmt.Println()
	show.table(us.sync.Status())
	fmt.Printf("\nlive: %d events published on the four relays reached a client of ours in %s (median), %s (slowest)\n",
		len(took), took[len(took)/2].Round(10*time.Microsecond), took[len(took)-1].Round(10*time.Microsecond))
	if err := compare(ctx, &us, h); err != nil {
		return err
	}
	fmt.Printf("done in %.1f s\n", time.Since(start).Seconds())
	if serve {
		fmt.Printf("\nserving on ws://%s until interrupted\n", us.addr())
		<-ctx.Done()
	}
	return nil
}

// catchUp waits until everything was fetched, and starts the relay that is down
// once our relay has noticed.
func catchUp(ctx context.Context, us *ourRelay, others []*peer, h *hub, show *progress, limit time.Duration) error {
	wanted := len(h.expected())
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	down := true
	for {
		select {
		case <-ctx.Done():
			show.table(us.sync.Status())
			return fmt.Errorf("not synced: %w", ctx.Err())
		case <-ticker.C:
		}
		s := us.sync.Status()
		for _, r := range s.Relays {
			if down && r.URL.Authority().String() == others[charlie].addr && r.FailedAttempts > 0 {
				if err := others[charlie].listen(); err != nil {
					return err
				}
				down = false
			}
		}
		synced := !down && s.Synced && len(s.Relays) == peers
		for _, r := range s.Relays {
			synced = synced && r.Synced
		}
		show.show(s, wanted, synced)
		if synced {
			return nil
		}
	}
}

// compare holds what our relay has against what it must have.
func compare(ctx context.Context, us *ourRelay, h *hub) error {
	got, err := us.content(ctx)
	if err != nil {
		return err
	}
	want := h.expected()
	missing, foreign := without(want, got), without(got, want)
	fmt.Printf("compared: %d events here, %d expected, %d missing, %d foreign\n", len(got), len(want), len(missing), len(foreign))
	h.describe("missing", missing)
	h.describe("foreign", foreign)
	if len(missing)+len(foreign) > 0 {
		return errors.New("the content is not what it must be")
	}
	return nil
}

// without returns what is in a and not in b.
func without(a, b map[string]bool) (ids []string) {
	for id := range a {
		if !b[id] {
			ids = append(ids, id)
		}
	}
	return ids
}
