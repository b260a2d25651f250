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
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/writebehind"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/internal/memory"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

const (
	keepEvery = time.Minute     // between two saves of state that changes all the time
	lastWords = 2 * time.Second // for each of two steps at the end
	notDialed = time.Minute     // before another attempt at a relay that was not dialed for a local reason
)

const (
	rejectedName   = "rejected"
	rejectedFormat = "5" // rejections in another format are forgotten
	transportName  = "transport"
)

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

// persistence saves learned state for the next process.
type persistence struct {
	cfg       *Config // read-only
	tracker   *health.RelayHealthTracker
	memory    *memory.Memory
	rejected  *pending.RejectedIndex
	transport Transport
	telemetry *telemetry
	basis     []byte // fingerprint of the identity and the policy; read-only
	salt      []byte // set by recall, read-only after that

	// owned by Run and its loop
	busy     bool                                       // an export is running
	progress map[graspsync.RelayURL]*memory.Kept        // not saved yet; nil: remove the record
	learned  map[graspsync.RelayURL]relaylimits.Learned // of relays that are not listed yet
	kept     []memory.Kept

	version uint64 // of the rejected events that are saved; owned by the export
}

func newPersistence(
	cfg *Config, identity nip34.Identity, tracker *health.RelayHealthTracker, table *pending.RejectedIndex, transport Transport, rep *telemetry,
) *persistence {
	store := cfg.State
	if store != nil {
		store = observedState{store, rep}
	}
	return &persistence{
		cfg: cfg, tracker: tracker, basis: basisOf(identity, cfg.PolicyVersion),
		rejected: table, transport: transport, telemetry: rep, progress: make(map[graspsync.RelayURL]*memory.Kept),
		memory: memory.New(store, writebehind.Config{
			Delay: 3 * time.Second, Timeout: cfg.constants.StoreTimeout, Logger: cfg.Logger,
			MaxValue: 6 << 20, // 500,000 items of one relay
			MaxQueue: 250_000, Dropped: func(reason string, n int) { rep.drop("memory_"+reason, n) },
		}),
	}
}

func (r *persistence) start(ctx context.Context) (end func()) {
	r.recall(ctx)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.memory.Run(ctx)
	}()
	return func() {
		last, stop := context.WithTimeout(ctx, lastWords)
		defer stop()
		if err := r.memory.Flush(last); err != nil {
			r.cfg.Logger.Error("saving persistent state failed", keyErr, err)
		}
		cancel()
		<-ended
	}
}

// recall loads the records. Rejections and confirmed items of another identity or policy do not
// count, because fetching again costs less than missing repositories for a week. Chunks of
// rejections begin with the basis, and the salt of the items depends on it.
func (r *persistence) recall(running context.Context) {
	ctx, cancel := context.WithTimeout(running, r.cfg.constants.StoreTimeout)
	defer cancel()
	loaded, err := r.memory.Load(ctx)
	if err != nil && running.Err() == nil { // otherwise the records are not needed
		r.cfg.Logger.Error("reading persistent state failed", keyErr, err)
	}
	for u, record := range loaded.Health {
		r.tracker.Import(u, record)
	}
	for host, record := range loaded.Hosts {
		r.tracker.ImportHost(host, record)
	}
	var rejected [][]byte
	foreign := 0
	for _, chunk := range loaded.Chunks[rejectedName] {
		if own, is := bytes.CutPrefix(chunk, r.basis); is {
			rejected = append(rejected, own)
		} else if chunk != nil {
			foreign++
		}
	}
	if foreign > 0 {
		r.cfg.Logger.Info("rejected events forgotten, because the server's name or policy changed")
	}
	dropped, err := r.rejected.Restore(rejected)
	if err != nil {
		r.cfg.Logger.Warn("reading a part of the rejected events failed", keyErr, err)
	}
	r.telemetry.drop("remembered", dropped.Remembered)
	if chunks := loaded.Chunks[transportName]; chunks != nil {
		if err := r.importTransport(chunks); err != nil {
			r.cfg.Logger.Error("restoring the state of the transport failed", keyErr, err)
		}
	}
	r.salt, r.learned, r.kept = append(loaded.Salt, r.basis...), loaded.Learned, loaded.Kept
}

func basisOf(identity nip34.Identity, policy string) []byte {
	addresses := strings.Fields(identity.String())
	slices.Sort(addresses)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(addresses), " ") + "\n" + policy + "\n" + rejectedFormat))
	return sum[:8]
}

func (r *persistence) stats(u graspsync.RelayURL) *relayStats {
	s := &relayStats{observed: r.learned[u], host: limit.Stranger{ID: u.HostPort().Host}}
	delete(r.learned, u)
	return s
}

func (r *persistence) health(u graspsync.RelayURL) {
	r.memory.Health(r.records(u)...)
}

func (r *persistence) records(u graspsync.RelayURL) []memory.Record {
	records := []memory.Record{memory.OfRelay(u, r.tracker.Export)}
	if host := health.Host(u); host != "" {
		records = append(records, memory.OfHost(host, r.tracker.ExportHost))
	}
	return records
}

var errUnsaved = errors.New("the attempt could not be saved")

// beforeDial makes an attempt durable before it starts, against crash loops. If that fails, only
// relays that worked before are dialed.
func (r *persistence) beforeDial(ctx context.Context, u graspsync.RelayURL) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.constants.StoreTimeout)
	defer cancel()
	err := r.memory.SaveHealth(ctx, r.records(u)...)
	if err != nil && !r.tracker.IsProven(u) {
		return fmt.Errorf("%w: %w", errUnsaved, err)
	}
	return nil
}

func (r *persistence) relay(u graspsync.RelayURL, s *relayStats) {
	r.health(u)
	if s != nil {
		var l relaylimits.Learned
		s.with(func() { l = s.observed })
		if !l.Empty(time.Now()) {
			r.memory.Learned(u, l)
		}
	}
}

// forget removes the records of a relay except its health.
func (r *persistence) forget(u graspsync.RelayURL) {
	r.memory.Forget(u)
	delete(r.progress, u)
	r.health(u)
}

// saveMark is the time after which a mark is saved again.
const saveMark = 5 * time.Minute

// capture copies the confirmed state of the plan, whose events are stored. It may be saved only
// after the records of rejected events, because waiting events count as processed.
func (r *persistence) capture(from *plan.Plan, leastMark time.Duration) {
	maps.Copy(r.progress, from.Changed(leastMark))
}

func (r *persistence) confirmed() {
	for u, kept := range r.progress {
		if kept == nil {
			r.memory.NothingKept(u)
		} else {
			r.memory.Kept(*kept)
		}
	}
	clear(r.progress)
}

// export saves the rejected events and the state of the Transport. After an error the confirmed
// state must not be saved.
func (r *persistence) export(ctx context.Context) error {
	first := r.saveRejected(ctx)
	if chunks, err := r.exportTransport(); err != nil { // its earlier record stays
		r.cfg.Logger.Warn("exporting the state of the transport failed", keyErr, err)
	} else {
		_ = r.memory.SaveChunks(ctx, transportName, chunks) // the result does not matter to the plan
	}
	return first
}

// saveRejected saves the rejected events if they have changed since the last successful call.
func (r *persistence) saveRejected(ctx context.Context) error {
	rejected, version := r.rejected.Export(r.version)
	if version == r.version {
		return nil
	}
	for i, chunk := range rejected {
		if chunk != nil {
			rejected[i] = slices.Concat(r.basis, chunk)
		}
	}
	err := r.memory.SaveChunks(ctx, rejectedName, rejected)
	if err == nil {
		r.version = version
	}
	return err
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
