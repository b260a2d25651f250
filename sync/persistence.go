package sync

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/memory"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

const (
	keepEvery = time.Minute     // between two times that what changes all the time is kept
	lastWords = 2 * time.Second // for keeping things at the end, in two steps
	notDialed = time.Minute     // before a relay is tried again that was not dialed for our own reasons
)

const (
	rejectedName   = "rejected"
	rejectedFormat = "3"     // of the chunks: rejections in another one are forgotten, and what relied on them
	basisName      = "basis" // what the rejections were judged by
	transportName  = "transport"
)

// notedState is Config.State. It notes whether records can be written.
type observedState struct {
	state.Store
	telemetry *telemetry
}

// Put implements [state.Store].
func (s observedState) Put(ctx context.Context, records ...state.Record) error {
	err := s.Store.Put(ctx, records...)
	s.telemetry.depends("state write", err)
	return err
}

// remember has what is learned survive a restart. Without a Store it does nothing.
type persistence struct {
	cfg       *Config // read-only
	tracker   *health.RelayHealthTracker
	on        bool
	memory    *memory.Memory
	rejected  *pending.RejectedIndex
	transport Transport
	telemetry *telemetry
	basis     []byte // set by New, read-only
	salt      []byte // set by recall, read-only after that

	// owned by Run and its loop
	busy    bool // exporting
	pending unsavedProgress
	facts   map[graspsync.RelayURL]relaylimits.Facts // of relays that nobody has listed yet
	aside   map[graspsync.RelayURL][]relaylimits.Aside
	kept    []memory.Kept
}

// newRemember keeps what there is of a table of events, and of a Transport.
func newPersistence(
	cfg *Config, identity nip34.Identity, tracker *health.RelayHealthTracker, table *pending.RejectedIndex, transport Transport, rep *telemetry,
) *persistence {
	store := cfg.State
	if store != nil {
		store = observedState{store, rep}
	}
	return &persistence{
		cfg: cfg, tracker: tracker, on: cfg.State != nil, basis: basisOf(identity, cfg.PolicyVersion),
		rejected: table, transport: transport, telemetry: rep,
		memory: memory.New(store, memory.Config{
			Timeout: cfg.fixed.StoreTimeout, Logger: cfg.Logger, Dropped: rep.drop,
		}),
	}
}

// start takes in what was kept and begins to keep. What it returns ends that; it
// must be called when nothing happens any more.
func (r *persistence) start(ctx context.Context) (end func()) {
	based := r.recall(ctx)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { r.memory.Run(ctx) })
	if !based {
		wg.Go(func() { r.rebase(ctx) })
	}
	return func() {
		last, stop := context.WithTimeout(ctx, lastWords)
		defer stop()
		if err := r.memory.Flush(last); err != nil {
			r.cfg.Logger.Error("not all that is to survive a restart could be written", keyErr, err)
		}
		cancel()
		wg.Wait()
	}
}

// recall takes in what was kept. based is false if what it was judged by is not known, or was
// something else: what was rejected then is forgotten.
func (r *persistence) recall(running context.Context) (based bool) {
	ctx, cancel := context.WithTimeout(running, r.cfg.fixed.StoreTimeout)
	defer cancel()
	loaded, err := r.memory.Load(ctx)
	if err != nil && running.Err() == nil { // else nobody waits for it
		r.cfg.Logger.Error("what was kept over the restart could not be read", keyErr, err)
	}
	basis, read := loaded.Chunks[basisName]
	based = slices.EqualFunc(basis, [][]byte{r.basis}, bytes.Equal)
	switch {
	case !read && err != nil: // it may be there: a failure says nothing of it
		based = true
	case !based:
		r.disown(&loaded)
	}
	for u, record := range loaded.Health {
		r.tracker.Import(u, record)
	}
	for host, record := range loaded.Hosts {
		r.tracker.ImportHost(host, record)
	}
	if chunks := loaded.Chunks[rejectedName]; chunks != nil {
		dropped, err := r.rejected.Restore(chunks)
		if err != nil {
			r.cfg.Logger.Warn("a part of what is remembered of rejected events could not be read", keyErr, err)
		}
		r.telemetry.drop("remembered", dropped.Remembered)
	}
	if chunks := loaded.Chunks[transportName]; chunks != nil {
		if err := r.importTransport(chunks); err != nil {
			r.cfg.Logger.Error("what the transport kept could not be given back to it", keyErr, err)
		}
	}
	r.salt, r.facts, r.aside, r.kept = loaded.Salt, loaded.Facts, loaded.SetAside, loaded.Kept
	return based
}

// basisOf is a fingerprint of what decides about events besides what is stored, in whatever order
// the addresses are given.
func basisOf(identity nip34.Identity, policy string) []byte {
	addresses := strings.Fields(identity.String())
	slices.Sort(addresses)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(addresses), " ") + "\n" + policy + "\n" + rejectedFormat))
	return sum[:]
}

// disown drops what was kept that another identity or policy had decided: what was rejected, and
// up to when relays have nothing more for us. Of a folder that does not say whose it is, nobody
// knows: to fetch once more costs less than to miss repositories for a week.
func (r *persistence) disown(loaded *memory.Loaded) {
	if len(loaded.Chunks[rejectedName])+len(loaded.Kept) > 0 {
		r.cfg.Logger.Info("what was rejected is forgotten, and all is compared again: this server was another one, or judged otherwise",
			"relays", len(loaded.Kept))
	}
	r.memory.Chunks(rejectedName, nil)
	delete(loaded.Chunks, rejectedName)
	for _, k := range loaded.Kept {
		r.memory.NothingKept(k.Relay)
	}
	loaded.Kept = nil
}

// rebase says whose the rejections are, once those of another one are gone: should we not come so
// far, they are forgotten by the next process.
func (r *persistence) rebase(ctx context.Context) {
	if err := r.memory.Flush(ctx); err != nil {
		return // it is logged by who writes, and once more when all ends
	}
	r.memory.Chunks(basisName, [][]byte{r.basis})
}

// stats returns what an earlier process learned about a relay, to go on from.
func (r *persistence) stats(u graspsync.RelayURL) *relayStats {
	s := &relayStats{observed: relaylimits.Observed{Facts: r.facts[u]}, host: limit.Stranger{ID: u.HostPort().Host}}
	for _, v := range r.aside[u] {
		s.setAside(relaylimits.Value{Tag: v.Tag, Value: v.Value}, v.Until)
	}
	delete(r.facts, u)
	delete(r.aside, u)
	return s
}

// health has the record of a relay kept, soon.
func (r *persistence) health(u graspsync.RelayURL) {
	if r.on {
		r.memory.Health(r.records(u)...)
	}
}

func (r *persistence) records(u graspsync.RelayURL) []memory.Record {
	records := []memory.Record{memory.OfRelay(u, r.tracker.Export)}
	if host := health.Host(u); host != "" {
		records = append(records, memory.OfHost(host, r.tracker.ExportHost))
	}
	return records
}

// errUnsaved says why a relay was not dialed.
var errUnsaved = errors.New("the attempt could not be saved")

// beforeDial makes the attempt durable that is about to be made: should we not
// outlive it, the next process must not repeat it at once. Where that fails, only
// relays that are known to be some are dialed: to them it does no harm.
func (r *persistence) beforeDial(ctx context.Context, u graspsync.RelayURL) error {
	if !r.on {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.fixed.StoreTimeout)
	defer cancel()
	err := r.memory.SaveHealth(ctx, r.records(u)...)
	if err != nil && !r.tracker.KnownGood(u) {
		return fmt.Errorf("%w: %w", errUnsaved, err)
	}
	return nil
}

// relay has all that is known of a relay kept.
func (r *persistence) relay(u graspsync.RelayURL, s *relayStats) {
	if !r.on {
		return
	}
	r.health(u)
	if s != nil {
		if f := s.allFacts(); f != (relaylimits.Facts{}) {
			r.memory.Facts(u, f)
		}
		if aside := s.allAside(); len(aside) > 0 {
			r.memory.SetAside(u, aside)
		}
	}
}

// forget drops what there is of a relay that nobody wants any more. What the tracker
// remembers of it is kept.
func (r *persistence) forget(u graspsync.RelayURL) {
	if r.on {
		r.memory.Forget(u)
		delete(r.pending.kept, u)
		delete(r.pending.marks, u)
		r.health(u)
	}
}

// unkept is what the plan has confirmed that may be kept once all is durable that it
// rests on. What was received and waits for something counts as dealt with: the memory
// of rejected events must have its id first.
type unsavedProgress struct {
	kept  map[graspsync.RelayURL]*memory.Kept // nil: nothing any more
	marks map[graspsync.RelayURL]time.Time
}

// capture takes in what the plan has confirmed by now. All of it is stored, because a batch ends when its events are
// saved.
func (p *unsavedProgress) capture(from *plan.Plan) {
	if changed := from.Changed(); len(changed) > 0 {
		for _, u := range changed {
			lazy.Put(&p.kept, u, nil)
		}
		for _, kept := range from.Kept(changed...) {
			lazy.Put(&p.kept, kept.Relay, &kept)
		}
	}
	p.marks = maps.Collect(from.Marks())
}

// confirmed keeps what was captured.
func (r *persistence) confirmed() {
	for u, kept := range r.pending.kept {
		if kept == nil {
			r.memory.NothingKept(u)
		} else {
			r.memory.Kept(*kept)
		}
	}
	r.memory.Marks(maps.All(r.pending.marks))
	r.pending = unsavedProgress{}
}

// export returns when what others export is durable, as of now or later. It takes a while.
// The error says that what the plan has confirmed can't be kept yet.
func (r *persistence) export(ctx context.Context) error {
	first := r.memory.SaveChunks(ctx, rejectedName, r.rejected.Export())
	if chunks, err := r.exportTransport(); err != nil { // its earlier record stays
		r.cfg.Logger.Warn("the transport did not say what is to be kept", keyErr, err)
	} else {
		_ = r.memory.SaveChunks(ctx, transportName, chunks) // written later; the plan rests on none of it
	}
	return first
}

func (r *persistence) exportTransport() (chunks [][]byte, err error) {
	defer r.telemetry.recovered(&err, whoseTransport)
	return r.transport.Export(), nil
}

func (r *persistence) importTransport(chunks [][]byte) (err error) {
	defer r.telemetry.recovered(&err, whoseTransport)
	r.transport.Import(chunks)
	return nil
}
