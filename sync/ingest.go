package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/absent"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

const (
	verifyBatch = 64  // events given to the Verifier at once
	saveBatch   = 256 // events given to the Store at once
)

// ingest is the way of an event from a relay into the Store:
//
//	known? -> id -> bytes in flight -> workers: stored? signature -> writer: policy -> Store
//
// Each step is bounded and waits for the next, so that a slow Store slows the
// reading of relays.
type ingest struct {
	cfg    Config
	store  Store
	policy Policy
	view   View
	feed   *feed
	known  *absent.Known
	holds  *holds
	absent *absent.Table
	report *report
	// refetch has ids asked for by id, of the relay that had them (zero: any); nil if
	// they must wait for the next pass. It never blocks.
	refetch func(relay graspsync.RelayURL, ids []graspsync.EventID)

	kin      kinCache // of what is stored
	room     *room
	toVerify chan *job
	toSave   chan *job
	wake     chan struct{} // one slot: fulfilled has something
	ended    chan struct{} // closed when run ends

	mu sync.Mutex
	// guarded by mu
	inFlight  map[copyKey]*job
	coming    map[graspsync.EventID]int        // jobs in flight, by the id of their event
	waits     map[*job]struct{}                // of these, those that failed and wait to be tried again
	fulfilled []absent.Key                     // by events that did not come through here
	changed   map[string]struct{}              // identifiers of which announcements have come or gone
	overrun   bool                             // one of these was full: judge all that waits
	unsure    bool                             // changed was: see who is listed under all of them
	missed    map[graspsync.RelayURL]time.Time // since when events of a relay were let go of
	nothing   bool                             // can be saved now
	stuckAt   time.Time                        // when last nothing could be saved
	saving    bool                             // events could be saved again, and that was not told
	entered   uint64                           // jobs, ever

	unsettled atomic.Int64  // events in the pipeline
	turn      atomic.Uint64 // of the writer: odd while it works
	waiting   atomic.Int64  // events that wait whole
	owed      atomic.Int64  // events to be saved of which only the id is left

	// owned by the writer
	retries retries
	trouble trouble
	later   laterTurns
	hearing hearing
}

// copyKey is the same for two deliveries of which one needs to be looked at. The
// id stands for everything but the signature, once it was recomputed.
type copyKey struct {
	id  graspsync.EventID
	sig string
}

// job is an event in the pipeline.
type job struct {
	key      copyKey
	incoming graspsync.Incoming
	gap      bool
	size     int64
	number   uint64      // in the order in which they came
	tokens   []*token    // guarded by ingest.mu: of everyone who delivered a copy
	from     *conn       // who delivered the first; nil if revived
	stats    *relayStats // of the relay that did
	cost     int64       // what it took of the allowance of that relay
	ours     bool        // it seems to be ours
	lane     lane        // of which part of that allowance
	recorded bool        // came live: what becomes of it tells what to expect of its author
	category category    // and of others of its category
	revived  bool        // it has waited in the pool and was settled then
	again    bool        // there was no room for it: it is kept until something else is said of it
	useful   bool        // it was saved, or is held

	// Of one that could not be judged or saved.
	attempts int       // while others could be saved
	tries    int       // all of them
	works    uint64    // retries.works at the last one
	due      time.Time // of the next one
	since    time.Time // of the first
	slow     bool      // the Store came to no end with it alone
	apart    bool      // its bytes are taken from the share of what fails
}

func newIngest(
	cfg Config, store Store, policy Policy, view View, f *feed, r *report, refetch func(graspsync.RelayURL, []graspsync.EventID),
) *ingest {
	return &ingest{
		cfg: cfg, store: store, policy: policy, view: view, feed: f, report: r, refetch: refetch,
		known:    absent.NewKnown(cfg.fixed.Remembered),
		holds:    &holds{},
		absent:   absent.New(absentConfig(cfg)),
		room:     newRoom(cfg.Limits.InFlight),
		toVerify: make(chan *job, 2*verifyBatch),
		toSave:   make(chan *job, 2*saveBatch),
		wake:     make(chan struct{}, 1),
		ended:    make(chan struct{}),
		inFlight: make(map[copyKey]*job),
		coming:   make(map[graspsync.EventID]int),
		waits:    make(map[*job]struct{}),
		retries:  retries{room: cfg.Limits.InFlight / failingShare},
	}
}

func absentConfig(cfg Config) absent.Config {
	return absent.Config{
		Most: cfg.fixed.Remembered, Waiting: cfg.fixed.Waiting, WaitingBytes: cfg.fixed.WaitingBytes,
		KeepFor: cfg.fixed.RejectedFor, WholeFor: cfg.fixed.WholeFor,
	}
}

// delivery is an event as a connection hands it over.
type delivery struct {
	event *nostr.Event
	src   graspsync.Source
	gap   bool
	size  int
	token *token
	from  *conn
	// current: it came live after what the relay had stored.
	current bool
	// Of history: it was asked for as what refers to something of ours; and in that number.
	ours, asked bool
}

// submit takes an event in. It blocks while the pipeline is full, and returns an
// error only if ctx ends.
func (g *ingest) submit(ctx context.Context, d delivery) error {
	g.report.received.Add(1)
	id, err := graspsync.ParseEventID(d.event.ID)
	if err != nil {
		d.from.forged("malformed id")
		return nil //nolint:nilerr // it is the relay's error, not ours
	}
	if g.dealtWith(id) {
		g.report.duplicates.Add(1)
		return nil
	}
	if !d.event.CheckID() {
		d.from.forged("id does not match the event")
		return nil
	}
	j := &job{
		key: copyKey{id, d.event.Sig}, gap: d.gap, from: d.from, tokens: []*token{d.token},
		incoming: graspsync.Incoming{Event: d.event, Source: d.src},
		size:     min(int64(d.size)+512, g.cfg.Limits.InFlight),
	}
	if d.from != nil && d.from.stats.bad.has(j.key) {
		g.report.duplicates.Add(1)
		d.from.spend(int64(d.size)) // it is repeated
		return nil
	}
	if d.from != nil {
		if look, err := g.pay(ctx, d, j); err != nil || !look {
			return err
		}
	}
	if err := g.admit(ctx, j); err != nil {
		j.refund(1)
		return err
	}
	d.token.hold()
	if !g.enter(j) {
		j.refund(1)
		g.release(j)
		g.report.duplicates.Add(1)
		return nil
	}
	if g.dealtWith(id) { // an earlier copy was dealt with while this one waited
		g.report.duplicates.Add(1)
		j.refund(1)
		g.settled(j, true)
		return nil
	}
	// From here on others may count on this copy, so that it goes its way even if
	// the connection it came by ends.
	select {
	case g.toVerify <- j:
	case <-g.ended:
		g.settled(j, false)
	}
	return nil
}

// admit waits until there is room for the bytes of a job: of its relay, and of all.
func (g *ingest) admit(ctx context.Context, j *job) error {
	if j.stats != nil {
		if err := j.stats.work.enter(ctx, j.size, j.ours); err != nil {
			return err
		}
	}
	err := g.room.enter(ctx, j.stats, j.size)
	if err != nil && j.stats != nil {
		j.stats.work.leave(j.size, j.ours)
	}
	return err
}

// release makes room for others.
func (g *ingest) release(j *job) {
	g.room.leave(j.stats, j.size)
	if j.stats != nil {
		j.stats.work.leave(j.size, j.ours)
	}
}

// refund gives back what an event has cost whose coming was of use, or so many times
// that, and what it will not be charged for again.
func (j *job) refund(times int64) {
	if j.cost > 0 {
		j.stats.work.give(times*j.cost, j.lane)
		j.cost = 0
	}
}

// became notes what became of an event of ours that came live.
func (j *job) became(useful bool) {
	j.useful = useful
	if !j.recorded {
		return
	}
	j.recorded = false
	if author, err := graspsync.ParsePubKey(j.incoming.Event.PubKey); err == nil {
		j.stats.work.judged(author, j.category, useful, j.size)
	}
}

// lent is what an event that waits gives back if it is saved after all.
func (j *job) lent() int64 {
	if j.ours { // that is for those that come now
		return 0
	}
	return j.cost
}

// dealtWith reports whether an event needs no second look.
func (g *ingest) dealtWith(id graspsync.EventID) bool {
	return g.known.Has(id) || g.absent.Has(id)
}

// met reports whether an event came, or is coming, by sync.
func (g *ingest) met(id graspsync.EventID) bool {
	if g.dealtWith(id) {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.coming[id] > 0
}

// enter makes j the copy that is looked at, or has an earlier one speak for it.
func (g *ingest) enter(j *job) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if first, ok := g.inFlight[j.key]; ok {
		first.tokens = append(first.tokens, j.tokens...)
		return false
	}
	g.inFlight[j.key] = j
	g.entered++
	j.number = g.entered
	g.coming[j.key.id]++
	g.unsettled.Add(1)
	return true
}

// leave ends a job. ok is false if its event was lost to a failure of ours.
func (g *ingest) leave(j *job, ok bool) {
	g.mu.Lock()
	delete(g.inFlight, j.key)
	if g.coming[j.key.id]--; g.coming[j.key.id] == 0 {
		delete(g.coming, j.key.id)
	}
	tokens := j.tokens
	g.mu.Unlock()
	for _, t := range tokens {
		t.settle(ok)
	}
	g.unsettled.Add(-1)
}

// settled ends a job that went through the whole pipeline.
func (g *ingest) settled(j *job, ok bool) {
	g.release(j)
	g.leave(j, ok)
}

// stage is how far the pipeline has got.
type stage struct{ entered, turn uint64 }

// stage returns what is in the pipeline now.
func (g *ingest) stage() stage {
	g.mu.Lock()
	defer g.mu.Unlock()
	return stage{entered: g.entered, turn: g.turn.Load()}
}

// resting reports whether all that was in the pipeline at a stage is dealt with, but for
// events that fail and wait to be tried again, and returns the relays that brought those.
func (g *ingest) resting(at stage) (failing map[graspsync.RelayURL]struct{}, resting bool) {
	if working := at.turn%2 == 1; working && g.turn.Load() == at.turn {
		return nil, false // what is revived is in no table
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, j := range g.inFlight {
		if _, waits := g.waits[j]; !waits && j.number <= at.entered {
			return nil, false
		}
	}
	for j := range g.waits {
		for _, t := range j.tokens {
			lazy.Put(&failing, t.relay, struct{}{})
		}
	}
	return failing, true
}

// run works until ctx ends.
func (g *ingest) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range g.cfg.Limits.Workers {
		wg.Go(func() { g.verifyLoop(ctx) })
	}
	wg.Go(func() { g.writeLoop(ctx) })
	wg.Wait()
	close(g.ended)
	g.drain()
}

// drain settles what was on its way when the pipeline stopped.
func (g *ingest) drain() {
	for {
		select {
		case j := <-g.toVerify:
			g.settled(j, false)
		case j := <-g.toSave:
			g.settled(j, false)
		default:
			return
		}
	}
}

// gather waits for a job and takes along what else is there.
func gather(ctx context.Context, from <-chan *job, most int) []*job {
	jobs := make([]*job, 0, most)
	select {
	case j := <-from:
		jobs = append(jobs, j)
	case <-ctx.Done():
		return nil
	}
	return more(from, jobs, most)
}

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

// verifyLoop is one worker: what is not stored yet has its signature checked.
func (g *ingest) verifyLoop(ctx context.Context) {
	for {
		jobs := gather(ctx, g.toVerify, verifyBatch)
		if jobs == nil {
			return
		}
		jobs = g.unstored(ctx, jobs)
		events := make([]*nostr.Event, len(jobs))
		for i, j := range jobs {
			events[i] = j.incoming.Event
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
				g.lost(j)
			case errors.Is(verdicts[i], ErrSignature):
				j.from.badSignature(j.key)
				g.settled(j, true)
			case verdicts[i] != nil:
				g.cfg.Logger.Warn("verifier failed", keyErr, verdicts[i])
				g.lost(j)
			default:
				select {
				case g.toSave <- j:
				case <-ctx.Done():
					g.settled(j, false)
				}
			}
		}
	}
}

// verify asks the Verifier. An error is ours, and says nothing about the events.
func (g *ingest) verify(events []*nostr.Event) (verdicts []error, err error) {
	defer g.report.recovered(&err, "verifier")
	verdicts = g.cfg.Verifier.Verify(events)
	if len(verdicts) != len(events) {
		return nil, fmt.Errorf("%d verdicts on %d events", len(verdicts), len(events))
	}
	g.report.verified.Add(uint64(len(events)))
	return verdicts, nil
}

// lost ends a job whose event could not be dealt with. The batch that brought it is
// repeated; a live event is asked for by its id.
func (g *ingest) lost(j *job) {
	j.refund(1)
	g.report.failed.Add(1)
	g.settled(j, false)
	if j.incoming.Source.Kind == graspsync.Live {
		g.again(j.incoming.Source.Relay, []graspsync.EventID{j.key.id})
	}
}

// again has events asked for.
func (g *ingest) again(relay graspsync.RelayURL, ids []graspsync.EventID) {
	if g.refetch != nil && len(ids) > 0 {
		g.refetch(relay, ids)
	}
}

// has asks the Store which ids it has.
func (g *ingest) has(ctx context.Context, ids []graspsync.EventID) (has []bool, err error) {
	defer g.report.recovered(&err, "store")
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Times.StoreTimeout)
	defer cancel()
	has, err = g.store.Has(ctx, ids)
	if err == nil && len(has) != len(ids) {
		err = fmt.Errorf("%d answers on %d ids", len(has), len(ids))
	}
	return has, err
}

// unstored settles the jobs whose events the Store has, and returns the others. If
// the Store can't tell, all are worth a look.
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
			g.report.duplicates.Add(1)
			j.refund(1)
			g.settled(j, true)
			continue
		}
		kept = append(kept, j)
	}
	return kept
}

// needed returns those of ids that are neither known nor stored.
func (g *ingest) needed(ctx context.Context, ids []graspsync.EventID) ([]graspsync.EventID, error) {
	var out []graspsync.EventID
	for len(ids) > 0 {
		n := min(saveBatch, len(ids))
		chunk := make([]graspsync.EventID, 0, n)
		for _, id := range ids[:n] {
			if !g.dealtWith(id) {
				chunk = append(chunk, id)
			}
		}
		ids = ids[n:]
		has, err := g.has(ctx, chunk)
		if err != nil {
			return nil, fmt.Errorf("asking what is stored: %w", err)
		}
		for i, id := range chunk {
			if !has[i] {
				out = append(out, id)
			}
		}
	}
	return out, nil
}

// fulfil takes note of an event that was stored without the writer, and has it judge
// again what waits for that.
func (g *ingest) fulfil(ev *nostr.Event) {
	g.remember(ev)
	g.announced(ev)
	g.wakeFor(g.fulfils(ev, true))
}

// wakeFor has the writer judge again what waits for any of keys.
func (g *ingest) wakeFor(keys []absent.Key) {
	g.mu.Lock()
	if len(g.fulfilled) < g.cfg.fixed.FeedQueue {
		g.fulfilled = append(g.fulfilled, keys...)
	} else {
		g.overrun = true
	}
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (g *ingest) takeFulfilled() (keys []absent.Key, all bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	keys, all = g.fulfilled, g.overrun
	g.fulfilled, g.overrun = nil, false
	return keys, all
}

// discovered has judged again what waits for what a scan of the Store has found.
func (g *ingest) discovered(c indexChange) {
	var keys []absent.Key
	for ref, a := range c.repos {
		if a == nil {
			continue
		}
		keys = append(keys, absent.KeyOf(graspsync.OnRepo(ref)), absent.KeyOf(graspsync.OnIdentifier(ref.Identifier)), absent.KeyOf(graspsync.OnEvent(a.ID)),
			absent.KeyOf(graspsync.OnMaintainer(ref.Identifier, ref.Owner)), absent.KeyOf(graspsync.OnSay(ref.Identifier, ref.Owner)), absent.KeyOf(graspsync.OnWanted(ref.Identifier, ref.Owner)), absent.KeyOf(graspsync.OnAuthor(ref.Owner)))
		for _, m := range a.Maintainers {
			keys = append(keys, absent.KeyOf(graspsync.OnMaintainer(ref.Identifier, m)),
				absent.KeyOf(graspsync.OnSay(ref.Identifier, m)), absent.KeyOf(graspsync.OnWanted(ref.Identifier, m)))
		}
	}
	for id, refs := range c.roots {
		if len(refs) > 0 {
			keys = append(keys, absent.KeyOf(graspsync.OnEvent(id)))
		}
	}
	g.wakeFor(keys)
}

// awaited adds to keys what a stored event fulfils and something waits for.
func (g *ingest) awaited(ev *nostr.Event, keys map[absent.Key]struct{}) {
	if g.absent.Idle() {
		return
	}
	awaited := func(k absent.Key) {
		if g.absent.Awaits(k) {
			keys[k] = struct{}{}
		}
	}
	for _, k := range absent.Fulfils(ev, true) {
		awaited(k)
	}
	if a, err := nip34.ParseAnnouncement(ev); err == nil { // who is heard is by one, or listed by one
		for _, who := range append([]graspsync.PubKey{a.Ref.Owner}, a.Maintainers...) {
			awaited(absent.KeyOf(graspsync.OnSay(a.Ref.Identifier, who)))
			awaited(absent.KeyOf(graspsync.OnWanted(a.Ref.Identifier, who)))
		}
	}
}

// recalled goes on with what an earlier process had remembered: with what waits for
// keys, which may have been stored when that process ended or after, and with what it
// wanted and did not get.
func (g *ingest) recalled(keys map[absent.Key]struct{}) {
	g.wakeFor(slices.Collect(maps.Keys(keys)))
	for relay, ids := range g.absent.Wanted() {
		g.again(relay, ids)
	}
	g.later.known.Store(true)
}

// removed remembers an event that our relay has removed: it must not come back.
func (g *ingest) removed(ev *nostr.Event) {
	if id, err := graspsync.ParseEventID(ev.ID); err == nil {
		g.known.Add(id)
		g.note(absent.Note{Incoming: graspsync.Incoming{Event: ev}, ID: id, Accepted: countsAgain(ev)})
	}
}

// concerns reports whether an event, should it be genuine, belongs to what is ours now.
// It is asked before the signature is checked, so it reads no Store and has the Policy
// say only what it says of an announcement: one that holds events must not see this one.
func (g *ingest) concerns(ev *nostr.Event) (ours bool) {
	if g.policy == nil || nostr.IsEphemeralKind(ev.Kind) || nip34.IsProtected(ev) || g.expired(ev) || g.ahead(ev) {
		return false // it is not taken, whatever it names
	}
	defer func() {
		if recover() != nil { // it is judged like any other
			ours = false
			g.report.panicked("policy")
		}
	}()
	switch ev.Kind {
	case graspsync.KindAnnouncement:
		a, err := nip34.ParseAnnouncement(ev)
		return err == nil && (g.policy.Lists(a) || g.view.Announced(a.Ref) || g.view.Left(a.Ref) || g.listed(a.Ref))
	case graspsync.KindState:
		s, err := nip34.ParseState(ev)
		return err == nil && (g.view.Announced(s.Ref) || g.listed(s.Ref))
	case graspsync.KindDeletion:
		return g.deletesOurs(ev)
	}
	ofOurs := func(a graspsync.Address) bool {
		ref, ok := a.Repo()
		return ok && g.view.Announced(ref)
	}
	ids := nip34.EventRefs(ev)
	if slices.ContainsFunc(nip34.Addresses(ev), ofOurs) || slices.ContainsFunc(ids, g.view.Root) {
		return true
	}
	below, ok := g.view.(interface {
		descends(id graspsync.EventID) bool
	})
	return ok && slices.ContainsFunc(ids, below.descends)
}

// listed reports whether somebody is listed by an announcement with that identifier: what
// they write may be for us. Whether they have a say is for the policy to judge.
func (g *ingest) listed(who graspsync.RepoRef) bool {
	return knows(g.view, who) && g.kin.of(nip34.Membership{}, who.Identifier, g.view, nil).family.Lists(who.Owner)
}

// deletesOurs reports whether a deletion names something of its author's that is ours.
func (g *ingest) deletesOurs(ev *nostr.Event) bool {
	author, err := graspsync.ParsePubKey(ev.PubKey)
	if err != nil {
		return false
	}
	ids, addresses := nip34.ParseDeletion(ev)
	for _, a := range addresses {
		ref, ok := a.Repo()
		if ok && a.Author == author && (g.view.Announced(ref) || g.listed(ref)) {
			return true
		}
	}
	roots, ok := g.view.(interface {
		rootBy(id graspsync.EventID, author graspsync.PubKey) bool
	})
	return ok && slices.ContainsFunc(ids, func(id graspsync.EventID) bool { return roots.rootBy(id, author) })
}

// mostAbout is for how many owners it is looked whether an event is expected to be refused.
const mostAbout = 8

// about returns whose repositories an event of ours is about: the first that it names, or
// that of the first root event; of a maintainer's state, all those who list its author. It is
// zero for what names none. A deletion of something in another's repository is about its
// author: it says nothing of what the others delete there.
func (g *ingest) about(ev *nostr.Event, author graspsync.PubKey) []graspsync.PubKey {
	switch ev.Kind {
	case graspsync.KindAnnouncement:
		if a, err := nip34.ParseAnnouncement(ev); err == nil && g.essential(ev) {
			return []graspsync.PubKey{a.Ref.Owner}
		}
	case graspsync.KindState:
		if s, err := nip34.ParseState(ev); err == nil {
			return g.ownersOf(s.Ref)
		}
	case graspsync.KindDeletion:
		for _, a := range nip34.Addresses(ev) {
			ref, ok := a.Repo()
			if !ok || a.Author != author {
				continue
			}
			if owners := g.ownersOf(ref); owners[0] != (graspsync.PubKey{}) {
				return owners
			}
		}
		return []graspsync.PubKey{author}
	}
	return []graspsync.PubKey{g.names(ev)}
}

// ownersOf returns the owner of a repository that is announced, else those who list its owner
// as a maintainer of theirs.
func (g *ingest) ownersOf(ref graspsync.RepoRef) (owners []graspsync.PubKey) {
	if g.view.Announced(ref) {
		return []graspsync.PubKey{ref.Owner}
	}
	for _, a := range g.view.Announcements(ref.Identifier) {
		if len(owners) == mostAbout {
			break
		}
		if slices.Contains(a.Maintainers, ref.Owner) {
			owners = append(owners, a.Ref.Owner)
		}
	}
	if len(owners) == 0 {
		return []graspsync.PubKey{{}}
	}
	return owners
}

// names returns the owner of the first repository that an event names, or that of the first
// root event, or of what descends from one; zero if there is none.
func (g *ingest) names(ev *nostr.Event) graspsync.PubKey {
	for _, a := range nip34.Addresses(ev) {
		if ref, ok := a.Repo(); ok && g.view.Announced(ref) {
			return ref.Owner
		}
	}
	if roots, ok := g.view.(interface {
		rootOwner(id graspsync.EventID) (graspsync.PubKey, bool)
	}); ok {
		for _, id := range nip34.EventRefs(ev) {
			if owner, ok := roots.rootOwner(id); ok {
				return owner
			}
		}
	}
	return graspsync.PubKey{}
}

// essential reports whether an event of ours is one of somebody whom we know that others
// need: a newer announcement, a state or a deletion. That anybody may make a repository
// ours does not count.
func (g *ingest) essential(ev *nostr.Event) bool {
	switch ev.Kind {
	case graspsync.KindState, graspsync.KindDeletion:
		return true
	case graspsync.KindAnnouncement:
		a, err := nip34.ParseAnnouncement(ev)
		return err == nil && (g.view.Announced(a.Ref) || g.view.Left(a.Ref))
	}
	return false
}

// slowMost is for how long the reading of a relay waits for what refers to ours and may
// be of use, however much of it comes. Then the events that find no allowance are left out.
const slowMost = time.Minute

// pay takes what an event costs until it turns out to be of use, and reports whether it
// is to be looked at. History that was asked for is, on credit. A live event that is not
// for us, or is expected to be refused, does not wait for its turn, or all that comes
// behind it on the connection would: it is left out, and caught up with later.
func (g *ingest) pay(ctx context.Context, d delivery, j *job) (look bool, err error) {
	w, c := d.from.stats.work, d.from
	j.stats, j.ours = c.stats, d.ours || g.concerns(d.event)
	j.lane = laneOf(j.ours)
	if d.asked {
		j.cost = w.owe(j.size, j.ours)
		return true, nil
	}
	live := d.src.Kind == graspsync.Live
	essential := false
	if author, err := graspsync.ParsePubKey(d.event.PubKey); err == nil && live && j.ours {
		essential = g.essential(d.event)
		j.recorded = true
		for _, owner := range g.about(d.event, author) {
			j.category = categoryOf(d.event.Kind, owner)
			if j.lane = w.laneFor(author, j.category); j.lane == trustedLane {
				break
			}
		}
	}
	patient := j.lane == trustedLane && (essential || !c.signs.slowFor(slowMost))
	cost, from, wait := w.try(j.size, j.lane, live)
	if wait > 0 && d.current && !patient && w.skip(int64(d.size)) {
		g.report.drop("unread", 1)
		c.signs.skipped()
		return false, nil
	}
	if wait > 0 {
		c.signs.slowed()
		if cost, from, err = w.take(ctx, j.size, j.lane, live); err != nil {
			return false, err
		}
	}
	j.cost, j.lane = cost, from
	return true, nil
}
