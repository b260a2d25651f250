// Command demo shows graspsync at its main job: a relay with an empty database
// catches up with four others that differ, follows them, and ends up with exactly
// the events it must have.
//
//	go run ./examples/demo [-serve] [-v]
//
// It ends up with the git data of their repositories as well, from two git servers:
// events are served only once their data is here.
//
// Everything runs in this process, git apart, and talks over loopback. It exits with 0
// only if nothing is missing and nothing is foreign, and git clone of our repositories
// gives what the events say.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

func main() {
	serve := flag.Bool("serve", false, "leave everything running until interrupted")
	limit := flag.Duration("limit", 100*time.Second, "give up when the sync takes longer; two fifths of it are how long events wait for git data")
	verbose := flag.Bool("v", false, "log what the sync does to standard error")
	flag.Parse()
	if !*verbose {
		log.SetOutput(io.Discard) // the database has something to say at each start
	}
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
	dir, err := os.MkdirTemp("", "graspsync-demo-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	w, err := newWorld(ctx, dir, limit)
	if err != nil {
		return err
	}
	defer w.close()
	fmt.Printf("our relay       ws://%s  knows %s and nothing else\n", w.us.addr(), peerNames[alpha])
	fmt.Printf("hub             %d events, %d of them must arrive, %d repositories with git data (%.1f s to make)\n\n",
		len(w.hub.drafts), len(w.hub.expected()), len(w.hub.repos), time.Since(start).Seconds())

	waits := newWaits(&w.us, w.hub, w.servers, w.workshop)
	if err := w.us.open(ctx, dir, w.relays[alpha].addr, verbose, waits.observe(ctx)); err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { w.us.run(running) })

	show := newProgress(os.Stdout, w.names(), time.Now())
	if err := catchUp(ctx, w, show, waits, limit); err != nil {
		waits.table(os.Stdout)
		return errors.Join(err, waits.end())
	}
	took, err := publishLive(ctx, w.hub, w.addrs(), w.us.addr())
	if err != nil {
		return err
	}
	clones := time.Now()
	refs, err := w.clone(ctx)
	if err != nil {
		return err
	}
	cloned := time.Since(clones)
	if err := w.expire(ctx); err != nil {
		return err
	}
	fmt.Println()
	show.table(w.us.server.Sync().Status())
	fmt.Println()
	waits.table(os.Stdout)
	fmt.Printf("\nlive: %d events published on the four relays reached a client of ours in %s (median), %s (slowest)\n",
		len(took), took[len(took)/2].Round(10*time.Microsecond), took[len(took)-1].Round(10*time.Microsecond))
	fmt.Printf("git clone of ours: %d repositories, %d refs, all as the newest states and pull requests say (%.1f s)\n",
		len(w.hub.served()), refs, cloned.Seconds())
	if err := errors.Join(waits.end(), compare(ctx, &w.us, w.hub)); err != nil {
		return err
	}
	fmt.Printf("done in %.1f s\n", time.Since(start).Seconds())
	if serve {
		fmt.Printf("\nserving on ws://%s until interrupted\n", w.us.addr())
		<-ctx.Done()
	}
	return nil
}

// catchUp waits until everything was fetched, and starts the relay that is down
// once our relay has noticed.
func catchUp(ctx context.Context, w *world, show *progress, waits *waits, limit time.Duration) error {
	wanted := w.hub.expected()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	down := true
	for {
		select {
		case <-ctx.Done():
			show.table(w.us.server.Sync().Status())
			return errors.Join(fmt.Errorf("not synced: %w", ctx.Err()), compare(context.WithoutCancel(ctx), &w.us, w.hub))
		case <-ticker.C:
		}
		if err := waits.tooLate(); err != nil {
			return err
		}
		s := w.us.server.Sync().Status()
		for _, r := range s.Relays {
			if down && r.URL.HostPort().String() == w.relays[charlie].addr && r.FailedAttempts > 0 {
				if err := w.relays[charlie].listen(); err != nil {
					return err
				}
				down = false
			}
		}
		synced := !down && s.Synced && len(s.Relays) == peers
		for _, r := range s.Relays {
			synced = synced && r.Synced
		}
		if synced { // as far as is known: what waits for git data may tell of more
			got, err := w.us.content(ctx)
			if err != nil && ctx.Err() == nil {
				return err
			}
			synced = len(without(wanted, got)) == 0
		}
		show.show(s, len(wanted), synced)
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
