package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
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
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/state/filestate"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/wstransport"
)

const (
	onceEvery = 200 * time.Millisecond // it is looked how far it is
	// onceQuiet is how many batch windows nothing must have changed for: what came may lead to
	// more relays, after one.
	onceQuiet  = 2
	onceLeast  = time.Second     // the same, at least
	lacksEvery = 2 * time.Second // repositories are asked what they lack
)

// once syncs until every relay that can be reached is caught up with, and git data is here or was
// hunted for in vain for -once-wait, and says what came. It serves nobody. complete: nothing is
// missing.
func once(ctx context.Context, opt options, log *slog.Logger, out io.Writer) (complete bool, err error) {
	at, remove, err := databaseOf(opt)
	if err != nil {
		return false, fmt.Errorf("making the data folder: %w", err)
	}
	defer remove()
	db := openDatabase(at)
	if err := db.Init(); err != nil {
		return false, fmt.Errorf("opening the database: %w", err)
	}
	defer db.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := syncsOnce
	if opt.dryRun {
		start = triesOnce
	}
	s, err := start(ctx, db, opt, log)
	if err != nil {
		return false, err
	}
	defer s.close()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = s.run(ctx) })
	w := waiting{opt: opt, subject: s}
	w.wait(ctx)
	return w.report(out), nil
}

// databaseOf makes the data folder. A dry run of a server that has stored nothing yet makes none, but
// one for its database that remove takes away.
func databaseOf(opt options) (at options, remove func(), err error) {
	if opt.dryRun && !exists(filepath.Join(opt.data, "events")) {
		opt.data, err = os.MkdirTemp("", "graspserver-dry-run-")
		return opt, func() { _ = os.RemoveAll(opt.data) }, err
	}
	return opt, func() {}, os.MkdirAll(opt.data, 0o700)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// lacksOf says which repositories lack git data, a line for each.
func lacksOf(server *grasp.Server) func(context.Context) ([]string, error) {
	return func(ctx context.Context) (out []string, err error) {
		for l, err := range server.Lacking(ctx) {
			if err != nil {
				return out, err
			}
			out = append(out, fmt.Sprintf("%s lacks %d objects of its newest state %s", graspsync.Printable(l.Ref.String()), l.Missing, l.State))
		}
		return out, nil
	}
}

// oneShot is what is run once.
type oneShot struct {
	run    func(context.Context) error
	status func() relaysync.Status
	waits  func() purgatory.Status
	ready  <-chan struct{}
	stored func() int
	lacks  func(context.Context) ([]string, error)
	close  func()
}

// syncsOnce is the server itself.
func syncsOnce(ctx context.Context, db *eventbadger.BadgerBackend, opt options, log *slog.Logger) (*oneShot, error) {
	records, err := filestate.Open(filepath.Join(opt.data, "state"), filestate.Config{Logger: log})
	if err != nil {
		return nil, fmt.Errorf("opening the state: %w", err)
	}
	op, err := openOperator(ctx, records, opt, log)
	if err != nil {
		_ = records.Close() // nothing was written
		return nil, err
	}
	addr, err := netip.ParseAddrPort(opt.listen)
	if err != nil { // it has a name, and nobody listens there
		addr = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	server, err := newServer(ctx, db, records, op, opt, net.TCPAddrFromAddrPort(addr), log)
	if err != nil {
		_ = op.close() // nothing was written
		_ = records.Close()
		return nil, err
	}
	stored := func() int {
		n := uint64(0)
		for _, v := range server.Sync().Status().Events.Sources {
			n += v
		}
		return int(min(n, 1<<31)) //nolint:gosec // a number to be shown
	}
	return &oneShot{
		run: server.Run, status: server.Sync().Status, waits: server.Purgatory().Status, ready: server.Sync().Manager().Ready(), stored: stored,
		lacks: lacksOf(server),
		close: func() {
			_ = server.Close()
			_ = op.close()
			_ = records.Close()
		},
	}, nil
}

// triesOnce syncs into memory: nothing is stored, no git data is fetched, and nothing is remembered of
// relays.
func triesOnce(ctx context.Context, db *eventbadger.BadgerBackend, opt options, log *slog.Logger) (*oneShot, error) {
	identity, err := identityOf(opt)
	if err != nil {
		return nil, err
	}
	base, err := eventstoreadapter.New(db, eventstoreadapter.Config{Identity: identity})
	if err != nil {
		return nil, err
	}
	book, err := decided(ctx, opt, log)
	if err != nil {
		return nil, err
	}
	dialer, err := egress.NewDialer(egress.Config{
		Allow: opt.allowNet, OwnNames: identity.HostPorts(), AllowPlaintext: opt.allowPlaintext, Deny: book.Deny,
	})
	if err != nil {
		return nil, err
	}
	transport, err := wstransport.New(wstransport.Config{Dialer: dialer, Logger: log})
	if err != nil {
		return nil, err
	}
	store := &dryStore{base: base, over: memstore.New(memstore.WithIdentity(identity))}
	policy := relaysync.NewGRASPPolicy(identity)
	policy.Membership, policy.GRASPLists = nip34.Membership{OneSided: opt.oneSided}, opt.graspLists
	manager, err := relaysync.New(store, transport, identity, relaysync.Config{
		Bootstrap: book.Bootstrap(opt.bootstrap), AllowPlaintext: opt.allowPlaintext, Policy: policy, Rules: book, Logger: log,
		Times: relaysync.Times{BatchWindow: opt.batchWindow}, Health: health.Config{BaseBackoff: opt.baseBackoff},
	})
	if err != nil {
		return nil, err
	}
	return &oneShot{
		run: manager.Run, status: manager.Status, waits: func() purgatory.Status { return purgatory.Status{} }, ready: manager.Ready(), stored: store.over.Len,
		lacks: func(context.Context) ([]string, error) { return nil, nil }, // as if git data were here
		close: func() { _ = base.Close() },
	}, nil
}

// decided is what is blocked. Nothing is written to it.
func decided(ctx context.Context, opt options, log *slog.Logger) (*rules.Book, error) {
	file, err := readRules(opt.rules)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{rulesDir(opt), filepath.Join(opt.data, "state")} { // they were in the other one once
		book, err := readBook(ctx, dir, file, log)
		if book != nil || err != nil {
			return book, err
		}
	}
	return rules.Open(ctx, state.NewMemory(), rules.Config{File: file})
}

// readBook reads the rules in a folder of records, nil if there are none.
func readBook(ctx context.Context, dir string, file rules.File, log *slog.Logger) (book *rules.Book, err error) {
	if !exists(dir) {
		return nil, nil //nolint:nilnil // no rules, no error
	}
	records, err := filestate.Open(dir, filestate.Config{Logger: log})
	if err != nil {
		return nil, fmt.Errorf("opening the rules: %w", err)
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	for _, err := range records.Keys(ctx, "rules/") {
		if err != nil {
			return nil, fmt.Errorf("reading the rules: %w", err)
		}
		return rules.Open(ctx, records, rules.Config{File: file})
	}
	return nil, nil //nolint:nilnil // no rules, no error
}

func openDatabase(opt options) *eventbadger.BadgerBackend {
	return &eventbadger.BadgerBackend{
		Path: filepath.Join(opt.data, "events"),
		BadgerOptionsModifier: func(o badger.Options) badger.Options {
			return o.WithLogger(nil).WithSyncWrites(true)
		},
	}
}

// waiting waits for the end of what is run once.
type waiting struct {
	opt     options
	subject *oneShot

	status relaysync.Status
	git    purgatory.Status
	lacks  []string // repositories
	failed error    // which they are could not be found out
	asked  time.Time
	cut    bool // somebody ended it
}

// seen is what must not change for a while.
type seen struct {
	relays, caughtUp, repos, roots, stored int
	received                               uint64
	waits                                  int
	inFlight                               int64
}

func (w *waiting) look() (s seen) {
	w.status, w.git = w.subject.status(), w.subject.waits()
	s = seen{
		relays: len(w.status.Relays), repos: w.status.Repos, roots: w.status.Roots, stored: w.subject.stored(),
		waits: len(w.git.Waiting), inFlight: w.status.Events.InFlight, received: w.status.Events.Received,
	}
	for _, r := range w.status.Relays {
		if r.Synced || givenUp(r) {
			s.caughtUp++
		}
	}
	return s
}

// givenUp reports whether a relay can't be reached: it was tried, and is tried again later.
func givenUp(r relaysync.RelayStatus) bool {
	return r.Failures > 0 && r.Phase == "disconnected" && r.NextAttempt.After(time.Now())
}

// wait returns when all is done, or nothing gets on any more.
func (w *waiting) wait(ctx context.Context) {
	select {
	case <-w.subject.ready:
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
			w.look()
			return
		case <-tick.C:
		}
		now := w.look()
		if now != last {
			last, since = now, time.Now()
			continue
		}
		idle := time.Since(since)
		settled := now.caughtUp == now.relays && now.inFlight == 0
		if settled && now.waits == 0 && idle >= quiet && w.hasAll(ctx) {
			return
		}
		if settled && idle >= w.opt.onceWait || idle >= max(w.opt.onceWait, 10*time.Minute) {
			w.asked = time.Time{}
			w.hasAll(ctx)
			return
		}
	}
}

// hasAll reports whether no repository lacks anything. Each is asked, so that is not done all the time.
func (w *waiting) hasAll(ctx context.Context) bool {
	if time.Since(w.asked) >= lacksEvery {
		w.lacks, w.failed = w.subject.lacks(ctx)
		w.asked = time.Now()
	}
	return len(w.lacks) == 0 && w.failed == nil
}

// report says what came, and what is missing, and whether nothing is.
func (w *waiting) report(out io.Writer) (complete bool) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "relay\thow\treceived\tstored\tproblem")
	complete = !w.cut
	for _, r := range w.status.Relays {
		how, problem := "caught up", ""
		switch {
		case r.Synced && r.GapBatches > 0:
			how, problem, complete = "gaps", "not all that it has could be had", false
		case r.Synced:
		case givenUp(r):
			how, problem, complete = "not reached", r.LastError, false
		default:
			how, problem, complete = "in part", r.LastError, false
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\n", r.URL, how, r.Events, r.Stored, named(graspsync.Printable(problem)))
	}
	_ = table.Flush() // as the lines below, which say nothing else
	verb := "stored"
	if w.opt.dryRun {
		verb = "would be stored"
	}
	fmt.Fprintf(out, "%d repositories, %d patches, pull requests and issues; %d events %s\n", w.status.Repos, w.status.Roots, w.subject.stored(), verb)
	for _, e := range w.git.Waiting {
		complete = false
		fmt.Fprintf(out, "waits for git data: %s %s of %s, missing %d objects\n", e.Class, e.ID, graspsync.Printable(fmt.Sprint(e.Repos)), e.Missing)
	}
	complete = w.missing(out) && complete
	word := "incomplete"
	if complete {
		word = "complete"
	}
	fmt.Fprintln(out, word)
	return complete
}

// missing says what else there is not, and whether that is nothing.
func (w *waiting) missing(out io.Writer) (none bool) {
	none = true
	if len(w.status.Relays) == 0 {
		none = false
		fmt.Fprintln(out, "no relay is followed: see -bootstrap, and what is blocked")
	}
	if n := w.git.Expired + w.git.Displaced; n > 0 {
		none = false
		fmt.Fprintf(out, "given up: %d events whose git data did not come\n", n)
	}
	for _, l := range w.lacks {
		none = false
		fmt.Fprintln(out, l)
	}
	if w.failed != nil {
		none = false
		fmt.Fprintln(out, "what repositories lack is not known:", graspsync.Printable(w.failed.Error()))
	}
	return none
}

// dryStore is a Store that is read, with what would have been stored over it, in memory.
type dryStore struct {
	base relaysync.Store
	over *memstore.Store
}

var _ relaysync.Store = (*dryStore)(nil)

// Save implements [relaysync.Store].
func (s *dryStore) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	out := make([]graspsync.Outcome, len(events))
	for i, in := range events {
		result, err := s.known(ctx, in.Event)
		if err != nil {
			return nil, err
		}
		if result != 0 {
			out[i].Result = result
			continue
		}
		saved, err := s.over.Save(ctx, []graspsync.Incoming{in})
		if err != nil {
			return nil, err
		}
		out[i] = saved[0]
	}
	return out, nil
}

// known returns what would become of an event for what is stored; 0: nothing is against it.
func (s *dryStore) known(ctx context.Context, ev graspsync.Event) (graspsync.Result, error) {
	if ev.IsZero() {
		return 0, nil
	}
	has, err := s.base.Has(ctx, []graspsync.EventID{ev.ID})
	if err != nil || has[0] {
		return graspsync.Duplicate, err
	}
	if deleted, err := s.base.Deleted(ctx, ev); err != nil || deleted {
		return graspsync.Deleted, err
	}
	versions, err := s.versions(ctx, ev)
	for _, other := range versions {
		if other.Stamp().Newer(ev.Stamp()) {
			return graspsync.Superseded, err
		}
	}
	return 0, err
}

// versions returns the stored versions of a replaceable or addressable event.
func (s *dryStore) versions(ctx context.Context, ev graspsync.Event) (out []graspsync.Event, err error) {
	a, ok := ev.Address()
	if !ok {
		return nil, nil
	}
	f := nostr.Filter{Kinds: []int{a.Kind}, Authors: []string{a.Author.String()}}
	if nostr.IsAddressableKind(a.Kind) {
		f.Tags = nostr.TagMap{"d": {a.Identifier}}
	}
	for other, err := range s.base.Events(ctx, f) {
		if err != nil {
			return nil, err
		}
		out = append(out, other)
	}
	return out, nil
}

// Has implements [relaysync.Store].
func (s *dryStore) Has(ctx context.Context, ids []graspsync.EventID) ([]bool, error) {
	below, err := s.base.Has(ctx, ids)
	if err != nil {
		return nil, err
	}
	above, err := s.over.Has(ctx, ids)
	for i := range above {
		above[i] = above[i] || below[i]
	}
	return above, err
}

// Stamps implements [relaysync.Store].
func (s *dryStore) Stamps(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Stamp, error] {
	return func(yield func(graspsync.Stamp, error) bool) {
		for ev, err := range s.Events(ctx, f) {
			if err != nil {
				yield(graspsync.Stamp{}, err)
				return
			}
			if !yield(ev.Stamp(), nil) {
				return
			}
		}
	}
}

// Events implements [relaysync.Store]: what is stored, but for what would be replaced or deleted by
// now, and what would be stored.
func (s *dryStore) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		for ev, err := range s.base.Events(ctx, f) {
			if err == nil {
				var gone bool
				if gone, err = s.replaced(ctx, ev); gone {
					continue
				}
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
		for ev, err := range s.over.Events(ctx, f) {
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

func (s *dryStore) replaced(ctx context.Context, ev graspsync.Event) (bool, error) {
	if deleted, err := s.over.Deleted(ctx, ev); err != nil || deleted {
		return deleted, err
	}
	versions, err := (&dryStore{base: s.over}).versions(ctx, ev)
	return slices.ContainsFunc(versions, func(o graspsync.Event) bool { return o.Stamp().Newer(ev.Stamp()) }), err
}

// Deleted implements [relaysync.Store].
func (s *dryStore) Deleted(ctx context.Context, ev graspsync.Event) (bool, error) {
	if deleted, err := s.base.Deleted(ctx, ev); err != nil || deleted {
		return deleted, err
	}
	return s.over.Deleted(ctx, ev)
}

// Remove implements [relaysync.Store].
func (s *dryStore) Remove(ctx context.Context, ev graspsync.Event) error {
	has, err := s.over.Has(ctx, []graspsync.EventID{ev.ID})
	if err != nil || has[0] {
		return s.over.Remove(ctx, ev)
	}
	return relaysync.ErrCannotRemove
}
