package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/dgraph-io/badger/v4"
	eventbadger "github.com/fiatjaf/eventstore/badger"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
)

const (
	onceEvery = 200 * time.Millisecond // interval of checks
	// onceQuiet is the number of batch windows without a change before the end, because received
	// events may name more relays after one window.
	onceQuiet = 2
	onceLeast = time.Second // minimum of that time
)

// once syncs until every reachable relay is caught up with, and git data is stored or did not arrive for
// -once-wait. It writes a report and serves nobody. complete is Synced of [relaysync.Status].
func once(ctx context.Context, opt options, log *slog.Logger, out io.Writer) (complete bool, err error) {
	if err := os.MkdirAll(opt.data, 0o700); err != nil {
		return false, fmt.Errorf("making the data folder: %w", err)
	}
	db, err := openDatabase(opt)
	if err != nil {
		return false, err
	}
	defer db.Close()
	records, err := state.Open(filepath.Join(opt.data, "state"), state.Config{Logger: log})
	if err != nil {
		return false, fmt.Errorf("opening the state: %w", err)
	}
	defer records.Close()
	op, err := openOperator(ctx, opt, log)
	if err != nil {
		return false, err
	}
	defer op.close()
	addr, err := netip.ParseAddrPort(opt.listen)
	if err != nil { // a host name, at which nothing listens
		addr = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	server, err := newServer(ctx, db, records, op, opt, net.TCPAddrFromAddrPort(addr), log)
	if err != nil {
		return false, err
	}
	defer server.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { _ = server.Run(ctx) })
	w := waiting{opt: opt, server: server}
	w.wait(ctx)
	return w.report(out), nil
}

// databaseRoom is the number of free bytes that are required to open the database. Badger maps a
// sparse file of this size for its newest events. A write to a block that the full disk cannot
// provide would end the process by a signal.
const databaseRoom = 128 << 20

// openDatabase opens the event database in the data folder.
func openDatabase(opt options) (*eventbadger.BadgerBackend, error) {
	free, err := disk.Free(opt.data)
	if err == nil && free < databaseRoom {
		err = fmt.Errorf("no room on the disk: %d MiB are free at %s, %d MiB are needed", free>>20, opt.data, databaseRoom>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	db := &eventbadger.BadgerBackend{
		Path: filepath.Join(opt.data, "events"),
		BadgerOptionsModifier: func(o badger.Options) badger.Options {
			return o.WithLogger(nil).WithSyncWrites(true)
		},
	}
	if err := db.Init(); err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	return db, nil
}

// waiting waits for the end of a sync.
type waiting struct {
	opt    options
	server *grasp.Server

	status relaysync.Status
	git    purgatory.Status
	cut    bool // interrupted
}

// seen is the values that must not change for a while.
type seen struct {
	relays, caughtUp, repos, roots int
	received, stored               uint64
	waits                          int
	inFlight                       int64
}

func (w *waiting) look(ctx context.Context) (s seen) {
	manager := w.server.Sync().Manager()
	var err error
	if w.status, err = manager.StatusNow(ctx); err != nil { // ctx has ended
		w.status = manager.Status()
	}
	w.git = w.server.Purgatory().Status()
	s = seen{
		relays: len(w.status.Relays), repos: w.status.Repos, roots: w.status.Roots, stored: w.stored(),
		waits: len(w.git.Waiting), inFlight: w.status.Events.InFlight, received: w.status.Events.Received,
	}
	for _, r := range w.status.Relays {
		if r.Synced || givenUp(r) {
			s.caughtUp++
		}
	}
	return s
}

// stored returns the number of events that this process has stored.
func (w *waiting) stored() (n uint64) {
	for _, v := range w.status.Events.Sources {
		n += v
	}
	return n
}

// givenUp reports whether a relay could not be reached and waits for its next attempt.
func givenUp(r relaysync.RelayStatus) bool {
	return r.Failures > 0 && r.Phase == "disconnected" && r.NextAttempt.After(time.Now())
}

// wait returns when the sync is complete or makes no more progress.
func (w *waiting) wait(ctx context.Context) {
	select {
	case <-w.server.Sync().Manager().Ready():
	case <-ctx.Done():
		w.cut = true
		return
	}
	quiet := max(onceLeast, onceQuiet*w.opt.batchWindow)
	tick := time.NewTicker(onceEvery)
	defer tick.Stop()
	last, since := seen{}, time.Now()
	for {
		select {
		case <-ctx.Done():
			w.cut = true
			w.look(ctx)
			return
		case <-tick.C:
		}
		now := w.look(ctx)
		if now != last {
			last, since = now, time.Now()
			continue
		}
		idle := time.Since(since)
		settled := !w.status.Unread && now.caughtUp == now.relays && now.inFlight == 0
		if settled && w.status.Git.Missing == 0 && now.waits == 0 && idle >= quiet {
			return
		}
		if settled && idle >= w.opt.onceWait || idle >= max(w.opt.onceWait, 10*time.Minute) {
			return
		}
	}
}

// report writes the report and returns whether everything obtainable is stored.
func (w *waiting) report(out io.Writer) (complete bool) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "relay\thow\treceived\tstored\tproblem")
	for _, r := range w.status.Relays {
		how, problem := "in part", r.LastError
		switch {
		case r.Synced && r.GapBatches > 0:
			how, problem = "gaps", "some of its events are unreachable"
		case r.Synced:
			how, problem = "caught up", ""
		case givenUp(r):
			how = "not reached"
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\n", r.URL, how, r.Events, r.Stored, named(graspsync.Printable(problem)))
	}
	_ = table.Flush() // errors are ignored, as those of the lines below
	fmt.Fprintf(out, "repositories: %d; patches, pull requests and issues: %d; stored events: %d\n", w.status.Repos, w.status.Roots, w.stored())
	for _, e := range w.git.Waiting {
		fmt.Fprintf(out, "held: %s %s of %s, %d objects missing\n", e.Class, e.ID, graspsync.Printable(fmt.Sprint(e.Repos)), e.Missing)
	}
	if w.status.Repos == 0 {
		fmt.Fprintln(out, "no repository is hosted, because no received announcement lists", w.opt.domain)
	}
	if len(w.status.Relays) == 0 {
		fmt.Fprintln(out, "no relay is followed, see -bootstrap and the blocked relays")
	}
	if n := w.git.Expired + w.git.Displaced; n > 0 {
		fmt.Fprintf(out, "expired: %d events whose git data never arrived\n", n)
	}
	for _, ref := range slices.SortedFunc(maps.Keys(w.server.Purgatory().Lacking()), graspsync.RepoRef.Compare) {
		fmt.Fprintln(out, "lacks git data:", graspsync.Printable(ref.String()))
	}
	_, text := explain.Headline(w.status)
	switch {
	case w.cut:
		fmt.Fprintln(out, "incomplete: interrupted")
	case w.status.Synced:
		fmt.Fprintln(out, "complete:", text)
	default:
		fmt.Fprintln(out, "incomplete:", text)
	}
	return !w.cut && w.status.Synced
}
