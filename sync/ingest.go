package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/batchverify"
	"github.com/graspsync/graspsync/sync/internal/index"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

const saveBatch = 256 // maximum number of events in one call of Store.Save

// ErrSignature is wrapped by the error of a [Verifier] for an event with a wrong signature.
var ErrSignature = batchverify.ErrSignature

// A Verifier checks signatures (BIP-340) of 1 to a few hundred events, whose ids were verified.
// Verify returns one result for each event, in the same order: nil, or an error that wraps
// [ErrSignature]. It is called concurrently, and must not retain or change the events.
type Verifier interface {
	Verify(events []*nostr.Event) []error
}

const (
	// verifyBatch is the maximum number of events in one call of the Verifier.
	verifyBatch = 512

	// verifyLinger is the maximum time that historic events wait for a full batch, which is several
	// times cheaper per signature.
	verifyLinger = 20 * time.Millisecond
)

// ingest is the pipeline of events from relays into the Store. Its stages run one after the other:
//
// submit (known? id? room?) -> verify (stored? signature?) -> writer (Policy, Store)
//
// Each stage has a bounded queue and blocks when the next queue is full, so a slow Store slows the
// reading of relays. All methods may be called concurrently.
type ingest struct {
	cfg       *Config // read-only
	identity  nip34.Identity
	index     *index.Index
	self      *selfSubscriber
	telemetry *telemetry
	store     Store
	policy    Policy
	view      View
	request   func(graspsync.RelayURL, []graspsync.EventID) // requests events by id and never blocks

	inflight       *inflight
	wakeups        mailbox[[]pending.Key] // dependencies that events fulfill which were stored without the writer
	wakeupsDropped atomic.Bool            // a part of wakeups was dropped

	savesNothing atomic.Bool // all attempts to save fail

	known    *pending.Known         // events that are stored or held
	rejected *pending.RejectedIndex // events that are not stored, and the dependencies that they wait for

	toVerify  chan *job
	gathering chan struct{} // one slot, held by the worker that gathers a batch
	hurried   chan struct{} // one slot: a request has ended
	toSave    chan *job
	ended     chan struct{} // closed when run ends
}

// newIngest returns the pipeline of m, whose other parts must be set.
func newIngest(m *SyncManager) *ingest {
	c := &m.cfg.constants
	return &ingest{
		cfg: m.cfg, identity: m.identity, index: m.index, self: m.self, telemetry: m.telemetry, request: m.refetch,
		store: m.store, policy: m.cfg.Policy, view: storeView{m.index, m.store},
		inflight: newInflight(m.cfg.InFlight), wakeups: newMailbox[[]pending.Key](),
		known: pending.NewKnown(c.Remembered),
		rejected: pending.NewRejectedIndex(pending.Config{
			Most: c.Remembered, Waiting: c.Waiting, WaitingBytes: c.WaitingBytes, KeepFor: rejectedFor,
		}),
		toVerify: make(chan *job, 2*verifyBatch), toSave: make(chan *job, 2*saveBatch), ended: make(chan struct{}),
		gathering: make(chan struct{}, 1), hurried: make(chan struct{}, 1),
	}
}

func (g *ingest) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range g.cfg.constants.Workers {
		wg.Go(func() { g.verifyAll(ctx) })
	}
	wg.Go(func() { (&writer{ingest: g}).run(ctx) })
	wg.Wait()
	close(g.ended)
	g.drain()
}

// submit adds a job to the pipeline. It blocks while the pipeline is full. known means that only
// the id was read. The only error is that of ctx.
func (g *ingest) submit(ctx context.Context, j *job, known bool) error {
	g.telemetry.received.Add(1)
	ev, relay, batch := j.incoming.Event, j.incoming.Source.Relay, j.batches[0]
	processed := g.isProcessed(ev.ID)
	if known && !processed { // a dependency has arrived since the id was read
		g.refetch(relay, []graspsync.EventID{ev.ID})
	}
	if known || processed {
		g.inflight.claims.settled(ev.ID)
		return nil
	}
	if !ev.CheckID() {
		j.from.forged("id does not match the event")
		return nil
	}
	j.key = copyKey{ev.ID, ev.Sig}
	received := j.size
	j.size = min(memorySize(ev, int(received)), hostShare(g.cfg.InFlight))
	if j.from != nil {
		if j.stats = j.from.stats; ev.Sig != "" && j.stats.badSig(ev.ID) == ev.Sig {
			j.from.spend(received) // a repeated bad copy
			return nil
		}
	}
	_, j.foreign = g.foreign(ev) // an announcement for another service needs no signature check
	if err := g.inflight.admit(ctx, j); err != nil {
		return err
	}
	batch.open.Add(1)
	if !g.inflight.enter(j) {
		j.release()
		return nil
	}
	if g.isProcessed(ev.ID) { // an earlier copy was processed while this one waited
		g.inflight.settled(j, true)
		return nil
	}
	// From now on other batches may wait for this job, so it continues even if its connection ends.
	next := g.toVerify
	if j.foreign {
		next = g.toSave
	}
	select {
	case next <- j:
	case <-g.ended:
		g.inflight.settled(j, false)
	}
	return nil
}

// foreign reports whether an event is an announcement for another service. The Policy rejects it with
// or without a valid signature. foreign does not read the Store.
func (g *ingest) foreign(ev graspsync.Event) (v graspsync.Verdict, foreign bool) {
	if ev.Kind != graspsync.KindAnnouncement {
		return v, false
	}
	a, err := nip34.ParseAnnouncement(ev)
	if err != nil || g.view.Announced(a.Ref) || g.view.Left(a.Ref) {
		return v, false
	}
	defer func() {
		if recover() != nil { // verify and judge the event as usual
			foreign = false
			g.telemetry.panicked("policy")
		}
	}()
	if reason, _ := g.cfg.blocks(ev); reason != "" || g.cfg.Rules != nil && g.cfg.Rules.BlocksRepository(a.Ref) {
		return v, false // the verdict depends on a rule
	}
	if g.policy.Lists(a) {
		return v, false
	}
	recognized := g.policy.RecognizedAuthors(a.Ref.Identifier, g.view)
	if _, is := recognized[a.Ref.Owner]; recognized == nil || is || len(recognized) >= nip34.HeldBounds().PerOwner {
		return v, false // with so many maintainers only Judge decides who has room
	}
	return unlisted(g.identity, a), true
}

func (g *ingest) drain() {
	for {
		select {
		case j := <-g.toVerify:
			g.inflight.settled(j, false)
		case j := <-g.toSave:
			g.inflight.settled(j, false)
		default:
			return
		}
	}
}

// refetch requests events by id from relay, or from any if it is zero. It never blocks.
func (g *ingest) refetch(relay graspsync.RelayURL, ids []graspsync.EventID) {
	if len(ids) > 0 {
		g.request(relay, ids)
	}
}

// gather collects a batch, in one worker at a time. It does not linger for live events, or after a
// request has ended. It returns nil if ctx ends.
func (g *ingest) gather(ctx context.Context) (jobs []*job) {
	select {
	case g.gathering <- struct{}{}:
		defer func() { <-g.gathering }()
	case <-ctx.Done():
		return nil
	}
	if len(g.toVerify) == 0 { // the request that ended has no queued event
		select {
		case <-g.hurried:
		default:
		}
	}
	var linger <-chan time.Time
	var hurried <-chan struct{} // nil without events
	for len(jobs) < verifyBatch {
		select {
		case j := <-g.toVerify:
			if jobs = append(jobs, j); j.incoming.Source.Kind == graspsync.Live {
				return takeWaiting(g.toVerify, jobs, verifyBatch)
			}
			if linger == nil {
				linger, hurried = time.After(verifyLinger), g.hurried
			}
			continue
		case <-ctx.Done():
			return jobs
		case <-linger:
			return jobs
		case <-hurried:
			return takeWaiting(g.toVerify, jobs, verifyBatch)
		}
	}
	return jobs
}

// verifySoon makes queued events be verified immediately, because a request has ended.
func (g *ingest) verifySoon() {
	select {
	case g.hurried <- struct{}{}:
	default:
	}
}

func (g *ingest) verifyAll(ctx context.Context) {
	for {
		jobs := g.gather(ctx)
		if jobs == nil {
			return
		}
		for _, j := range jobs { // other events of the same hosts may wait for room
			j.turn.Release()
		}
		jobs = g.unstored(ctx, jobs)
		events := make([]*nostr.Event, len(jobs))
		for i, j := range jobs {
			events[i] = j.incoming.Event.Event
		}
		if len(jobs) == 0 {
			continue
		}
		verdicts, err := g.verify(events)
		if err != nil {
			g.cfg.Logger.Warn("verifier failed", keyErr, err)
		}
		for i, j := range jobs {
			switch {
			case err != nil:
				g.unverified(j)
			case errors.Is(verdicts[i], ErrSignature):
				j.from.badSignature(j.key)
				if e, known := g.rejected.Look(j.key.id); known && e.Wanted { // other relays may have a valid copy
					g.refetch(graspsync.RelayURL{}, []graspsync.EventID{j.key.id})
				}
				g.inflight.settled(j, true)
			case verdicts[i] != nil:
				g.cfg.Logger.Warn("verifier failed", keyErr, verdicts[i])
				g.unverified(j)
			default:
				select {
				case g.toSave <- j:
				case <-ctx.Done():
					g.inflight.settled(j, false)
				}
			}
		}
	}
}

// An error means that no event was checked.
func (g *ingest) verify(events []*nostr.Event) (verdicts []error, err error) {
	defer g.telemetry.recovered(&err, "verifier")
	verdicts = g.cfg.Verifier.Verify(events)
	if len(verdicts) != len(events) {
		return nil, fmt.Errorf("%d verdicts on %d events", len(verdicts), len(events))
	}
	g.telemetry.verified.Add(uint64(len(events)))
	return verdicts, nil
}

func (g *ingest) unverified(j *job) {
	g.telemetry.failed.Add(1)
	g.inflight.settled(j, false)
	if j.incoming.Source.Kind == graspsync.Live {
		g.refetch(j.incoming.Source.Relay, []graspsync.EventID{j.key.id})
	}
}

// unstored settles the jobs of stored events and returns the other jobs, or all if the Store fails.
func (g *ingest) unstored(ctx context.Context, jobs []*job) []*job {
	ids := make([]graspsync.EventID, len(jobs))
	for i, j := range jobs {
		ids[i] = j.key.id
	}
	has, err := g.has(ctx, ids)
	if err != nil {
		return jobs
	}
	kept := jobs[:0]
	for i, j := range jobs {
		if has[i] {
			g.known.Add(j.key.id)
			g.inflight.settled(j, true)
			continue
		}
		kept = append(kept, j)
	}
	return kept
}

func (g *ingest) has(ctx context.Context, ids []graspsync.EventID) (has []bool, err error) {
	defer g.telemetry.recovered(&err, whoseStore)
	ctx, cancel := context.WithTimeout(ctx, g.cfg.constants.StoreTimeout)
	defer cancel()
	has, err = g.store.Has(ctx, ids)
	if err == nil && len(has) != len(ids) {
		err = fmt.Errorf("%d answers on %d ids", len(has), len(ids))
	}
	return has, err
}

// isProcessed reports whether an event need not be processed again.
func (g *ingest) isProcessed(id graspsync.EventID) bool {
	return g.known.Has(id) || g.rejected.Has(id)
}

// needed returns the ids of events that are not stored and need processing.
func (g *ingest) needed(ctx context.Context, ids []graspsync.EventID) ([]graspsync.EventID, error) {
	out := make([]graspsync.EventID, 0, len(ids)) // usually nearly all
	for some := range slices.Chunk(ids, saveBatch) {
		chunk := slices.DeleteFunc(slices.Clone(some), g.isProcessed)
		has, err := g.has(ctx, chunk)
		if err != nil {
			return nil, fmt.Errorf("reading the store: %w", err)
		}
		for i, id := range chunk {
			if !has[i] {
				out = append(out, id)
			}
		}
	}
	return out, nil
}

// takeWaiting appends jobs from the queue without waiting, up to most in total.
func takeWaiting(from <-chan *job, jobs []*job, most int) []*job {
	for len(jobs) < most {
		select {
		case j := <-from:
			jobs = append(jobs, j)
		default:
			return jobs
		}
	}
	return jobs
}

// inflight contains the jobs of the pipeline, the bytes of their events, and the origins of held
// events.
type inflight struct {
	room   *limit.Slots // bytes of events
	checks *limit.Slots // events that wait for a signature check
	claims *fetchClaims

	mu sync.Mutex
	// guarded by mu
	inFlight map[copyKey]*job
	coming   map[graspsync.EventID]int          // number of jobs by event id
	held     map[graspsync.EventID]pending.Note // without the event

	unsettled atomic.Int64 // events in the pipeline, plus one while the writer works
}

func hostShare(most int64) int64 { return max(1, most/4) }

func newInflight(most int64) *inflight {
	return &inflight{
		room: limit.NewSlots(most, hostShare(most)), checks: limit.NewSlots(2*verifyBatch, verifyBatch),
		claims: newFetchClaims(), inFlight: make(map[copyKey]*job), coming: make(map[graspsync.EventID]int), held: make(map[graspsync.EventID]pending.Note),
	}
}

// admit waits until there is room for the bytes and the signature check of a job. Relay hosts take
// turns.
func (i *inflight) admit(ctx context.Context, j *job) (err error) {
	if j.bytes, err = i.room.Acquire(ctx, j.host(), j.size); err != nil || j.foreign {
		return err
	}
	if j.turn, err = i.checks.Acquire(ctx, j.host(), 1); err != nil {
		j.release()
	}
	return err
}

// enter adds a job. It returns false if the same copy is in the pipeline, which then also settles
// the batches of j.
func (i *inflight) enter(j *job) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if first, ok := i.inFlight[j.key]; ok {
		first.batches = append(first.batches, j.batches...)
		return false
	}
	i.inFlight[j.key], j.at = j, time.Now()
	i.coming[j.key.id]++
	i.unsettled.Add(1)
	return true
}

// settled ends a job. ok is false if an own failure lost its event.
func (i *inflight) settled(j *job, ok bool) {
	j.release()
	i.mu.Lock()
	delete(i.inFlight, j.key)
	if i.coming[j.key.id]--; i.coming[j.key.id] == 0 {
		delete(i.coming, j.key.id)
	}
	batches := j.batches
	i.mu.Unlock()
	for _, b := range batches {
		b.settle(ok)
	}
	i.claims.settled(j.key.id)
	i.unsettled.Add(-1)
}

func (i *inflight) has(id graspsync.EventID) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.coming[id] > 0
}

// hasOlder reports whether a job has been in the pipeline since a time.
func (i *inflight) hasOlder(t time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, j := range i.inFlight {
		if !j.at.After(t) {
			return true
		}
	}
	return false
}

// copyKey identifies a copy of an event. The id covers everything but the signature.
type copyKey struct {
	id  graspsync.EventID
	sig string
}

type job struct {
	key      copyKey
	incoming graspsync.Incoming
	gap      bool
	size     int64
	at       time.Time     // when it entered the pipeline
	batches  []*relayBatch // guarded by inflight.mu: of all connections that delivered a copy; submit needs the first
	from     *relayConn    // the first connection; nil if revived
	stats    *relayStats   // of its relay
	bytes    *limit.Slot   // room in the pipeline; nil if revived
	turn     *limit.Slot   // room for a signature check
	foreign  bool          // an announcement for another service, whose signature was not checked
	revived  bool          // it was pending and is settled
	retrying bool          // it stays pending until it has another result
	settled  bool
}

func (j *job) note() pending.Note {
	return pending.Note{Incoming: j.incoming, ID: j.key.id, Size: j.size, Payer: j.stats}
}

// Memory of an event in addition to its text, in bytes, on 64-bit machines.
const (
	besides   = 512 // fixed fields and tables
	tagHead   = 24  // a slice
	valueHead = 16  // a string
)

// memorySize estimates the memory of an event from the length of its text and its headers.
func memorySize(ev graspsync.Event, text int) int64 {
	n := text + besides
	for _, tag := range ev.Tags {
		n += tagHead + len(tag)*valueHead
	}
	return int64(n)
}

func (j *job) host() limit.Stranger {
	if j.stats == nil {
		return limit.Stranger{}
	}
	return j.stats.host
}

func (j *job) release() {
	for _, s := range []*limit.Slot{j.bytes, j.turn} {
		if s != nil {
			s.Release()
		}
	}
}
