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
	keepEvery     = time.Minute     // between two saves of state that changes all the time
	lastSaveLimit = 2 * time.Second // for each of two steps at the end
	notDialed     = time.Minute     // before another attempt at a relay that was not dialed for a local reason
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
	cfg *Config, identity nip34.Identity, tracker *health.RelayHealthTracker, table *pending.RejectedIndex, transport Transport, t *telemetry,
) *persistence {
	store := cfg.State
	if store != nil {
		store = observedState{store, t}
	}
	return &persistence{
		cfg: cfg, tracker: tracker, basis: basisOf(identity, cfg.PolicyVersion),
		rejected: table, transport: transport, telemetry: t, progress: make(map[graspsync.RelayURL]*memory.Kept),
		memory: memory.New(store, writebehind.Config{
			Delay: 3 * time.Second, Timeout: cfg.constants.StoreTimeout, Logger: cfg.Logger,
			MaxValue: 6 << 20, // 500,000 items of one relay
			MaxQueue: 250_000, Dropped: func(reason string, n int) { t.drop("memory_"+reason, n) },
		}),
	}
}

func (p *persistence) start(ctx context.Context) (end func()) {
	p.recall(ctx)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.memory.Run(ctx)
	}()
	return func() {
		last, stop := context.WithTimeout(ctx, lastSaveLimit)
		defer stop()
		if err := p.memory.Flush(last); err != nil {
			p.cfg.Logger.Error("saving persistent state failed", keyErr, err)
		}
		cancel()
		<-ended
	}
}

// recall loads the records. Rejections and confirmed items of another identity or policy do not
// count, because fetching again costs less than missing repositories for a week. Chunks of
// rejections begin with the basis, and the salt of the items depends on it.
func (p *persistence) recall(running context.Context) {
	ctx, cancel := context.WithTimeout(running, p.cfg.constants.StoreTimeout)
	defer cancel()
	loaded, err := p.memory.Load(ctx)
	if err != nil && running.Err() == nil { // otherwise the records are not needed
		p.cfg.Logger.Error("reading persistent state failed", keyErr, err)
	}
	for u, record := range loaded.Health {
		p.tracker.Import(u, record)
	}
	for host, record := range loaded.Hosts {
		p.tracker.ImportHost(host, record)
	}
	var rejected [][]byte
	foreign := 0
	for _, chunk := range loaded.Chunks[rejectedName] {
		if own, is := bytes.CutPrefix(chunk, p.basis); is {
			rejected = append(rejected, own)
		} else if chunk != nil {
			foreign++
		}
	}
	if foreign > 0 {
		p.cfg.Logger.Info("rejected events forgotten, because the server's name or policy changed")
	}
	dropped, err := p.rejected.Restore(rejected)
	if err != nil {
		p.cfg.Logger.Warn("reading a part of the rejected events failed", keyErr, err)
	}
	p.telemetry.drop("remembered", dropped.Remembered)
	if chunks := loaded.Chunks[transportName]; chunks != nil {
		if err := p.importTransport(chunks); err != nil {
			p.cfg.Logger.Error("restoring the state of the transport failed", keyErr, err)
		}
	}
	p.salt, p.learned, p.kept = append(loaded.Salt, p.basis...), loaded.Learned, loaded.Kept
}

func basisOf(identity nip34.Identity, policy string) []byte {
	addresses := strings.Fields(identity.String())
	slices.Sort(addresses)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(addresses), " ") + "\n" + policy + "\n" + rejectedFormat))
	return sum[:8]
}

func (p *persistence) stats(u graspsync.RelayURL) *relayStats {
	s := &relayStats{observed: p.learned[u], host: limit.Stranger{ID: u.HostPort().Host}}
	delete(p.learned, u)
	return s
}

func (p *persistence) health(u graspsync.RelayURL) {
	p.memory.Health(p.records(u)...)
}

func (p *persistence) records(u graspsync.RelayURL) []memory.Record {
	records := []memory.Record{memory.OfRelay(u, p.tracker.Export)}
	if host := health.Host(u); host != "" {
		records = append(records, memory.OfHost(host, p.tracker.ExportHost))
	}
	return records
}

var errUnsaved = errors.New("the attempt could not be saved")

// beforeDial makes an attempt durable before it starts, against crash loops. If that fails, only
// relays that worked before are dialed.
func (p *persistence) beforeDial(ctx context.Context, u graspsync.RelayURL) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.constants.StoreTimeout)
	defer cancel()
	err := p.memory.SaveHealth(ctx, p.records(u)...)
	if err != nil && !p.tracker.IsProven(u) {
		return fmt.Errorf("%w: %w", errUnsaved, err)
	}
	return nil
}

func (p *persistence) relay(u graspsync.RelayURL, s *relayStats) {
	p.health(u)
	if s != nil {
		var l relaylimits.Learned
		s.with(func() { l = s.observed })
		if !l.Empty(time.Now()) {
			p.memory.Learned(u, l)
		}
	}
}

// forget removes the records of a relay except its health.
func (p *persistence) forget(u graspsync.RelayURL) {
	p.memory.Forget(u)
	delete(p.progress, u)
	p.health(u)
}

// saveMark is the time after which a mark is saved again.
const saveMark = 5 * time.Minute

// capture copies the confirmed state of the plan, whose events are stored. It may be saved only
// after the records of rejected events, because waiting events count as processed.
func (p *persistence) capture(from *plan.Plan, leastMark time.Duration) {
	maps.Copy(p.progress, from.Changed(leastMark))
}

func (p *persistence) confirmed() {
	for u, kept := range p.progress {
		if kept == nil {
			p.memory.NothingKept(u)
		} else {
			p.memory.Kept(*kept)
		}
	}
	clear(p.progress)
}

// export saves the rejected events and the state of the Transport. After an error the confirmed
// state must not be saved.
func (p *persistence) export(ctx context.Context) error {
	first := p.saveRejected(ctx)
	if chunks, err := p.exportTransport(); err != nil { // its earlier record stays
		p.cfg.Logger.Warn("exporting the state of the transport failed", keyErr, err)
	} else {
		_ = p.memory.SaveChunks(ctx, transportName, chunks) // the result does not matter to the plan
	}
	return first
}

// saveRejected saves the rejected events if they have changed since the last successful call.
func (p *persistence) saveRejected(ctx context.Context) error {
	rejected, version := p.rejected.Export(p.version)
	if version == p.version {
		return nil
	}
	for i, chunk := range rejected {
		if chunk != nil {
			rejected[i] = slices.Concat(p.basis, chunk)
		}
	}
	err := p.memory.SaveChunks(ctx, rejectedName, rejected)
	if err == nil {
		p.version = version
	}
	return err
}

func (p *persistence) exportTransport() (chunks [][]byte, err error) {
	defer p.telemetry.recovered(&err, whoseTransport)
	return p.transport.Export(), nil
}

func (p *persistence) importTransport(chunks [][]byte) (err error) {
	defer p.telemetry.recovered(&err, whoseTransport)
	p.transport.Import(chunks)
	return nil
}
