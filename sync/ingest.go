package sync

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/wire"
)

const saveBatch = 256 // maximum number of events in one call of Store.Save

// ingest is the pipeline of events from relays into the Store. Its stages run one after the other:
//
// submit (known? id? room?) -> verify (stored? signature?) -> writer (Policy, Store)
//
// Each stage has a bounded queue and blocks when the next queue is full, so a slow Store slows the
// reading of relays. All methods may be called concurrently.
type ingest struct {
	cfg       *Config // read-only
	self      *selfSubscriber
	telemetry *telemetry
	store     *safeStore
	policy    *safePolicy
	request   func(graspsync.RelayURL, []graspsync.EventID) // requests events by id and never blocks; nil in tests

	inflight  *inflight
	reprocess reprocessQueue
	sources   heldSources

	savesNothing atomic.Bool // all attempts to save fail

	known    *pending.Known         // events that are stored or held
	rejected *pending.RejectedIndex // events that are not stored, and the dependencies that they wait for
	waiting  atomic.Int64           // number of events that wait and are kept whole

	toVerify  chan *job
	gathering chan struct{} // one slot, held by the worker that gathers a batch
	hurried   chan struct{} // one slot: a request has ended
	toSave    chan *job
	ended     chan struct{} // closed when run ends
}

func newIngest(
	cfg Config, store Store, policy Policy, view View, f *selfSubscriber, r *telemetry, request func(graspsync.RelayURL, []graspsync.EventID),
) *ingest {
	return &ingest{
		cfg: &cfg, self: f, telemetry: r, request: request,
		store: &safeStore{of: store, timeout: cfg.constants.StoreTimeout, telemetry: r},
		policy: &safePolicy{
			of: policy, holder: cfg.Holder, rules: cfg.Rules, view: view, timeout: cfg.constants.StoreTimeout, telemetry: r,
		},
		inflight: newInflight(cfg.Limits.InFlight), reprocess: reprocessQueue{most: cfg.constants.FeedQueue, wake: make(chan struct{}, 1)},
		known: pending.NewKnown(cfg.constants.Remembered),
		rejected: pending.NewRejectedIndex(pending.Config{
			Most: cfg.constants.Remembered, Waiting: cfg.constants.Waiting, WaitingBytes: cfg.constants.WaitingBytes,
			KeepFor: cfg.constants.RejectedFor,
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

type delivery struct {
	event graspsync.Event
	known bool // only the id was read, see [wire.Message]
	src   graspsync.Source
	gap   bool
	size  int
	ids   *wire.IDChecker // of the connection
	wait  *batchWait
	from  *relayConn // nil in tests
}

// submit adds an event to the pipeline. It blocks while the pipeline is full. The only error is
// that of ctx.
func (g *ingest) submit(ctx context.Context, d delivery) error {
	g.telemetry.received.Add(1)
	id := d.event.ID
	dealtWith := g.dealtWith(id)
	if d.known && !dealtWith { // a dependency has arrived since the id was read
		g.refetch(d.src.Relay, []graspsync.EventID{id})
	}
	if d.known || dealtWith {
		g.telemetry.duplicates.Add(1)
		g.inflight.claims.settled(id)
		return nil
	}
	if !d.ids.Check(d.event) {
		d.from.forged("id does not match the event")
		return nil
	}
	j := &job{
		key: copyKey{id, d.event.Sig}, gap: d.gap, from: d.from, waits: []*batchWait{d.wait},
		incoming: graspsync.Incoming{Event: d.event, Source: d.src},
		size:     min(memorySize(d.event, d.size), hostShare(g.cfg.Limits.InFlight)),
	}
	if d.from != nil {
		if j.stats = d.from.stats; j.stats.bad.has(j.key) {
			g.telemetry.duplicates.Add(1)
			d.from.spend(int64(d.size)) // a repeated bad copy
			return nil
		}
	}
	_, j.foreign = g.policy.foreign(d.event)
	if err := g.inflight.admit(ctx, j); err != nil {
		return err
	}
	d.wait.hold()
	if !g.inflight.enter(j) {
		j.release()
		g.telemetry.duplicates.Add(1)
		return nil
	}
	if g.dealtWith(id) { // an earlier copy was processed while this one waited
		g.telemetry.duplicates.Add(1)
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

// drain settles the jobs in the queues when the pipeline has stopped.
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

// refetch requests events by id from relay, or from any relay if relay is zero. It never blocks.
func (g *ingest) refetch(relay graspsync.RelayURL, ids []graspsync.EventID) {
	if g.request != nil && len(ids) > 0 {
		g.request(relay, ids)
	}
}

// more appends jobs from the queue without waiting, up to most in total.
func more(from <-chan *job, jobs []*job, most int) []*job {
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

// inflight contains the jobs of the pipeline, the batches that wait for them, and the bytes of
// their events.
type inflight struct {
	room   *limit.Slots // bytes of events
	checks *limit.Slots // events that wait for a signature check
	claims *fetchClaims

	mu sync.Mutex
	// guarded by mu
	inFlight map[copyKey]*job
	coming   map[graspsync.EventID]int // number of jobs by event id

	unsettled atomic.Int64 // events in the pipeline, plus one while the writer works
}

func hostShare(most int64) int64 { return max(1, most/4) }

func newInflight(most int64) *inflight {
	return &inflight{
		room: limit.NewSlots(most, hostShare(most)), checks: limit.NewSlots(2*verifyBatch, verifyBatch),
		claims: newFetchClaims(), inFlight: make(map[copyKey]*job), coming: make(map[graspsync.EventID]int),
	}
}

// admit waits until there is room for the bytes and the signature check of a job. Relay hosts take
// turns.
func (f *inflight) admit(ctx context.Context, j *job) (err error) {
	if j.bytes, err = f.room.Acquire(ctx, j.host(), j.size); err != nil || j.foreign {
		return err
	}
	if j.turn, err = f.checks.Acquire(ctx, j.host(), 1); err != nil {
		j.release()
	}
	return err
}

// enter adds a job. It returns false if the same copy is in the pipeline. Then that job also
// settles the batches of j.
func (f *inflight) enter(j *job) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if first, ok := f.inFlight[j.key]; ok {
		first.waits = append(first.waits, j.waits...)
		return false
	}
	f.inFlight[j.key], j.at = j, time.Now()
	f.coming[j.key.id]++
	f.unsettled.Add(1)
	return true
}

// settled ends a job. ok is false if an own failure lost its event.
func (f *inflight) settled(j *job, ok bool) {
	j.release()
	f.mu.Lock()
	delete(f.inFlight, j.key)
	if f.coming[j.key.id]--; f.coming[j.key.id] == 0 {
		delete(f.coming, j.key.id)
	}
	waits := j.waits
	f.mu.Unlock()
	for _, t := range waits {
		t.settle(ok)
	}
	f.claims.settled(j.key.id)
	f.unsettled.Add(-1)
}

func (f *inflight) has(id graspsync.EventID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.coming[id] > 0
}

// before reports whether a job is in the pipeline since a time.
func (f *inflight) before(t time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.inFlight {
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
	at       time.Time    // when it entered the pipeline
	waits    []*batchWait // guarded by inflight.mu: of all connections that delivered a copy
	from     *relayConn   // the first of these; nil if revived
	stats    *relayStats  // of its relay
	bytes    *limit.Slot  // room in the pipeline; nil if revived
	turn     *limit.Slot  // room for a signature check
	foreign  bool         // an announcement for another service, whose signature was not checked
	revived  bool         // it was pending and is settled
	again    bool         // it stays pending until it has another result
	over     bool         // it is settled
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

// memorySize estimates the memory of an event from the length of its text and its slice and string
// headers.
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

// batchWait counts the unsettled events of a batch, plus one for its request. No goroutine blocks
// for that.
type batchWait struct {
	open   atomic.Int64 // events, plus one for the request
	failed atomic.Bool  // an event could not be saved, so the batch must be repeated
	ended  func()       // set by finish
}

// newBatchWait returns a batchWait with count 1, for the request.
func newBatchWait() *batchWait {
	t := &batchWait{}
	t.open.Store(1)
	return t
}

func (t *batchWait) hold() { t.open.Add(1) }

// settle counts an event down. ok is false if an own failure lost the event.
func (t *batchWait) settle(ok bool) {
	if !ok {
		t.failed.Store(true)
	}
	t.release()
}

// finish counts the request down. The goroutine that settles last calls ended, which must not
// block.
func (t *batchWait) finish(ended func()) {
	t.ended = ended
	t.release()
}

func (t *batchWait) release() {
	if t.open.Add(-1) == 0 {
		t.ended()
	}
}
