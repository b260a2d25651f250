package purgatory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/state"
)

// Message is what a client is told whose event waits.
const Message = "purgatory: won't be served until git data arrives"

// ErrRunning is returned by a second call of Run.
var ErrRunning = errors.New("already run")

// Purgatory holds events until their git data is here. It is made by [Open]. All
// methods may be called concurrently.
type Purgatory struct {
	// set by Open, read-only
	cfg   Config
	relay Relay
	repos containedRepositories
	git   containedGit
	// stager has what was pushed for events that are not here.
	stager containedStager
	// departures takes repositories out of service; nil if there is none.
	departures *containedDepartures
	keep       keeper
	families   families
	step       func(name string) // a durable step was taken; for tests of crashes
	seed       uint64            // of the lengths at random by which waits are made longer

	ran     atomic.Bool
	inbox   *inbox
	stats   stats
	writing locks[graspsync.EventID] // who writes or drops an entry has its lock
	storing locks[graspsync.EventID] // who has an entry stored
	naming  locks[graspsync.RepoRef] // who looks at a repository

	mu sync.Mutex
	// guarded by mu
	ledger  *ledger.Ledger
	needs   map[string]map[graspsync.RepoRef]need   // by identifier, as of the last look
	touched map[string]map[graspsync.RepoRef]uint64 // to be looked at though nothing waits for it, by identifier
	touches uint64                                  // numbers them
	// who waits for a look, and for which touch
	settling map[graspsync.RepoRef]map[chan struct{}]uint64
	doubted  map[graspsync.RepoRef]journal // git failed while it moved their refs
	// branches and tags that pushes moved while a state waited, by identifier
	pushed map[string]map[graspsync.RepoRef]map[nip34.RefName]struct{}
	served map[graspsync.EventID]map[graspsync.RepoRef]struct{} // pull requests that wait on, and where their refs are

	pinned     map[graspsync.EventID]int                            // entries that looks go by
	looks      map[graspsync.RepoRef]struct{}                       // that are looked at now
	ending     map[graspsync.EventID]struct{}                       // entries whose waiting is being ended by the clock
	walked     map[graspsync.RepoRef]walked                         // what looks have found
	takes      map[graspsync.EventID]time.Time                      // data of events that took long to walk
	announcing map[string]*announcing                               // the announcements that wait under identifiers that events were about lately
	unfit      map[graspsync.RepoRef]map[graspsync.EventID]struct{} // states that git refused

	engine  engine // owned by Run
	upkeep  *maintenance
	rations *rations
}

// Open reads what waits from a store, repairs what a crash has left, and returns when
// repositories can be read again. Nothing is fetched before Run. The error wraps
// [ErrConfig] and names every argument that can't be used.
func Open(ctx context.Context, relay Relay, repos Repositories, git GitFetcher, store state.Store, cfg Config) (*Purgatory, error) {
	return open(ctx, relay, repos, git, store, cfg, func(string) {})
}

// open is Open, with somebody who is told of each durable step.
func open(ctx context.Context, relay Relay, repos Repositories, git GitFetcher, store state.Store, cfg Config,
	step func(name string),
) (*Purgatory, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	for name, missing := range map[string]bool{
		"relay": relay == nil, "repos": repos == nil, "git": git == nil, "store": store == nil,
	} {
		if missing {
			errs = append(errs, errors.New(name+" is nil"))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	p := &Purgatory{
		cfg: cfg, step: step, seed: rand.Uint64() | 1, inbox: newInbox(),
		ledger: ledger.New(ledger.Config{
			Hold: cfg.Times.Hold, Longest: cfg.Times.MaxHold, Soft: cfg.fixed.SoftExpiry, Placeholder: cfg.Times.PlaceholderHold,
			Remember: cfg.fixed.Remember, Entries: cfg.Limits.MaxEntries, Bytes: cfg.Limits.MaxBytes,
			Stay: cfg.Times.Hold / stayShare, Kept: cfg.Limits.MaxEntries / keptShare, KeptBytes: cfg.Limits.MaxBytes / keptShare, PerAuthor: cfg.Limits.MaxPerAuthor,
			Pushed: cfg.fixed.MaxPlaceholders, PerRepo: cfg.fixed.MaxPlaceholdersPerRepo, Remembered: cfg.fixed.MaxRemembered,
		}),
		needs:      make(map[string]map[graspsync.RepoRef]need),
		touched:    make(map[string]map[graspsync.RepoRef]uint64),
		settling:   make(map[graspsync.RepoRef]map[chan struct{}]uint64),
		doubted:    make(map[graspsync.RepoRef]journal),
		pushed:     make(map[string]map[graspsync.RepoRef]map[nip34.RefName]struct{}),
		served:     make(map[graspsync.EventID]map[graspsync.RepoRef]struct{}),
		pinned:     make(map[graspsync.EventID]int),
		looks:      make(map[graspsync.RepoRef]struct{}),
		ending:     make(map[graspsync.EventID]struct{}),
		walked:     make(map[graspsync.RepoRef]walked),
		takes:      make(map[graspsync.EventID]time.Time),
		announcing: make(map[string]*announcing),
		unfit:      make(map[graspsync.RepoRef]map[graspsync.EventID]struct{}),
	}
	p.relay, p.repos, p.git = p.containRelay(relay), containedRepositories{repos, p}, p.containGit(git)
	p.rations = newRations(p, relay)
	p.stager.p = p
	p.stager.of, _ = repos.(Stager)
	if d, departs := repos.(Departures); departs {
		p.departures = &containedDepartures{d, p}
	}
	p.keep = keeper{containedStore{store, p}}
	p.engine, p.upkeep = newEngine(p), newMaintenance(p)
	if err := p.engine.recall(ctx); err != nil {
		return nil, err
	}
	if err := p.load(ctx); err != nil {
		return nil, err
	}
	if err := p.recover(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Held returns the stamps of the events that wait and match a filter. What is stored,
// and waits on for another repository, is not among them.
func (p *Purgatory) Held(filter nostr.Filter) []Stamp {
	p.mu.Lock()
	all := slices.DeleteFunc(p.ledger.All(), func(e ledger.Entry) bool { return p.served[e.ID] != nil })
	p.mu.Unlock()
	var out []Stamp
	for _, e := range all {
		if e.Event != nil && filter.Matches(e.Event) {
			out = append(out, Stamp{e.Event.CreatedAt, e.ID})
		}
	}
	return out
}

// Announcements returns the announcements under an identifier that wait, and have not
// expired.
func (p *Purgatory) Announcements(identifier string) []*nip34.Announcement {
	return p.announcements(identifier, false)
}

// Remembered returns the announcements under an identifier that wait, those that expired
// softly, which a new state of one of their maintainers revives, and of those whom these list
// the announcements that wait with them.
func (p *Purgatory) Remembered(identifier string) []*nip34.Announcement {
	return p.announcements(identifier, true)
}

// Generation is another one whenever Announcements or Remembered would return something else
// for an identifier, and nil where they return nothing.
func (p *Purgatory) Generation(identifier string) any {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.ledger.Generation(identifier); g != nil {
		return g
	}
	return nil
}

// Knows reports whether somebody has an announcement that waits under an identifier, softly
// expired or not, or is listed in one, without looking at these. It may report that of others.
func (p *Purgatory) Knows(identifier string, who graspsync.PubKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ledger.Knows(identifier, who)
}

// announcing are the announcements that wait under an identifier.
type announcing struct {
	generation *ledger.Generation
	hard, soft []*nip34.Announcement
}

// maxAnnouncing is of how many identifiers they are kept: of those that events are about now.
const maxAnnouncing = 64

func (p *Purgatory) announcements(identifier string, soft bool) []*nip34.Announcement {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.announcing[identifier]
	if g := p.ledger.Generation(identifier); k == nil || k.generation != g {
		delete(p.announcing, identifier)
		if g == nil {
			return nil
		}
		k = &announcing{generation: g}
		for _, e := range slices.Concat(p.ledger.Announcements(identifier, true), p.ledger.Relatives(identifier)) {
			if k.soft = append(k.soft, e.Announces); !e.Soft && e.Class == ledger.Announcement {
				k.hard = append(k.hard, e.Announces)
			}
		}
		if len(p.announcing) >= maxAnnouncing {
			clear(p.announcing)
		}
		p.announcing[identifier] = k
	}
	if soft {
		return slices.Clip(k.soft)
	}
	return slices.Clip(k.hard)
}

// Authorised returns the newest state that decides about the refs of a repository,
// stored or waiting, whether or not its objects are here: what a push must match. It
// is nil if there is none. One that no repository can be does not count while it waits.
func (p *Purgatory) Authorised(ctx context.Context, ref graspsync.RepoRef) (*nip34.State, error) {
	g, err := p.gather(ctx, ref, false)
	if err != nil {
		return nil, err
	}
	r := &repository{ref: ref, members: g.family.Authority(ref).Members()}
	p.recallUnfit(g, r)
	newest := g.newestStored(r)
	for _, h := range g.states {
		if !r.isUnfit(h.state) && r.isMember(h.state.Ref.Owner) && (newest == nil || h.state.Stamp().Newer(newest.Stamp())) {
			newest = h.state
		}
	}
	return newest, nil
}

// Announced returns the announcement of a repository, stored or waiting, and who has a say in
// it; nil if there is none.
func (p *Purgatory) Announced(ctx context.Context, ref graspsync.RepoRef) (a *nip34.Announcement, members map[graspsync.PubKey]struct{}, err error) {
	g, err := p.gather(ctx, ref, false)
	if err != nil {
		return nil, nil, err
	}
	for _, one := range g.all {
		if one.Ref == ref && (a == nil || one.Stamp().Newer(a.Stamp())) {
			a = one
		}
	}
	return a, g.family.Authority(ref).Members(), nil
}

// PullRequest returns the pull request, or update of one, with this id that waits;
// nil if none does.
func (p *Purgatory) PullRequest(id graspsync.EventID) *nip34.PullRequest {
	p.mu.Lock()
	e, ok := p.ledger.Get(id)
	p.mu.Unlock()
	if !ok || e.Class != ledger.PullRequest {
		return nil
	}
	pr, err := nip34.ParsePullRequest(e.Event)
	if err != nil {
		return nil
	}
	return pr
}

// Event returns the event with this id that waits; nil if none does. An announcement
// that has expired softly waits.
func (p *Purgatory) Event(id graspsync.EventID) *nostr.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, _ := p.ledger.Get(id)
	return e.Event
}

// Submitted reports whether the event with this id waits, and if so, whether a client
// submitted it.
func (p *Purgatory) Submitted(id graspsync.EventID) (byUser, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, waits := p.ledger.Get(id)
	return e.ByUser, waits && e.Event != nil
}

// EventsOf returns the events of an author that wait, in order of their ids.
func (p *Purgatory) EventsOf(author graspsync.PubKey) (out []*nostr.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.ledger.ByAuthor(author) {
		if e.Event != nil {
			out = append(out, e.Event)
		}
	}
	return out
}

// hashed is a key for a repository whose name a stranger chose.
func hashed(ref graspsync.RepoRef) string { return hashedText(ref.String()) }

func hashedText(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}
