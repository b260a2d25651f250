package graspadapter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/khatru"
	"fiatjaf.com/nostr/khatru/grasp"
	"fiatjaf.com/nostr/nip11"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/control"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/adapter/internal/readiness"
	"github.com/graspsync/graspsync/adapter/internal/settings"
	khatruadapter "github.com/graspsync/graspsync/adapter/nostrlib/khatru"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Server is a GraspServer with sync and purgatory behind it. It is made by [New]. All methods may be
// called concurrently.
type Server struct {
	sync      *khatruadapter.Sync
	purgatory atomic.Pointer[purgatory.Purgatory] // nil until it is open
	git       *gitserve.Handler
	fetcher   *gitfetch.Fetcher
	repos     *gitserve.Repositories
	commands  control.Control // in the hands of nobody
	relay     *khatru.Relay
	about     func(context.Context, *http.Request, nip11.RelayInformationDocument) nip11.RelayInformationDocument // the relay's; may be nil
	records   settings.Opened                                                                                     // nil if they are whose State it is
	readiness *readiness.Readiness
}

// New gives a GraspServer, which grasp.New has made, sync and purgatory. Its relay is reached as identity and
// keeps its events in backend, on which Init was called and which must be durable when it says that
// something is stored. What was being done when the process was killed is put in order
// before New returns; ctx bounds that only. The error names what is wrong with the
// arguments; it wraps [gitfetch.ErrGit] if there is no git that can be used. The relay is then unchanged.
func New(ctx context.Context, gs *grasp.GraspServer, backend eventstore.Store, identity nip34.Identity, cfg Config) (_ *Server, err error) {
	if err := cfg.validate(gs, identity); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if cfg, err = cfg.withDefaults(identity); err != nil {
		return nil, err
	}
	configured := cfg.Sync.Bootstrap
	if cfg, err = cfg.withRules(ctx); err != nil {
		return nil, err
	}
	s := &Server{relay: gs.Relay, about: gs.Relay.OverwriteRelayInformation}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if cfg.Fetch.Dialer, err = egress.NewDialer(cfg.Egress); err != nil {
		return nil, err
	}
	cfg.Repositories.Memory = gitserve.NewMemory(cfg.Repositories)
	cfg.Fetch.Memory = cfg.Repositories.Memory
	if s.fetcher, err = gitfetch.New(ctx, cfg.Fetch); err != nil {
		return nil, err
	}
	if s.repos, err = gitserve.Open(gs.RepositoryDir, cfg.Repositories); err != nil {
		return nil, err
	}
	policy := purgatoryadapter.NewPolicy(cfg.Sync.Policy)
	cfg.Sync = policy.Configure(cfg.Sync)
	var embed func()
	if s.sync, embed, err = khatruadapter.Prepare(gs.Relay, backend, identity, khatruadapter.Config{
		GateDirect: true, Egress: cfg.Egress, Sync: cfg.Sync, Store: cfg.Store, MaxQuery: cfg.MaxQuery,
		Free: func() (uint64, error) { return disk.Free(gs.RepositoryDir) }, MinFree: cfg.Serve.MinFreeDisk,
		Stored: s.arrived, Removed: s.departed,
		Withholds: func(e graspsync.Event) bool { _, is := cfg.Rules.Withholds(e); return is },
	}); err != nil {
		return nil, err
	}
	if err := s.openPurgatory(ctx, policy, cfg); err != nil {
		return nil, err
	}
	authority := purgatoryadapter.Authority{Store: s.sync.Store(), Purgatory: s.Purgatory()}
	if cfg.Serve.Describe == nil {
		cfg.Serve.Describe = authority.Describe
	}
	if s.git, err = gitserve.New(s.repos, authority, cfg.Serve); err != nil {
		return nil, err
	}
	if s.commands, err = control.New(control.Config{
		Rules: cfg.Rules, Sync: s.sync.Manager(), Store: s.sync.Store(), Remove: s.sync.Remove, Purgatory: s.Purgatory(),
		Repositories: s.repos, Lists: policy.Lists, Bootstrap: configured, Audit: cfg.Audit, Logger: cfg.Logger,
	}); err != nil {
		return nil, err
	}
	s.readiness = readiness.New(s.sync.Manager().Ready(), func() error { return errors.Join(s.sync.Writable(), s.Purgatory().Ready()) }, cfg.State, s.repos.Writable)
	embed() // last of all: a relay whose New failed is to be one that another New can have
	gs.Relay.OverwriteRelayInformation = s.describes
	gs.Relay.SetRouter(routes(gs, s.git, cfg.Rules, identity))
	if info := gs.Relay.Info; info != nil && !slices.Contains(info.SupportedGrasps, "GRASP-02") {
		info.SupportedGrasps = append(info.SupportedGrasps, "GRASP-02")
	}
	return s, nil
}

// Explain answers why something is here, or is not, as [explain.Explainer] does, and which rule keeps it
// out.
func (s *Server) Explain(ctx context.Context, text string) (control.Explanation, error) {
	return control.Explainer{
		Explainer: explain.Explainer{Sync: s.sync.Manager(), Purgatory: s.Purgatory(), Repositories: s.repos},
		Rules:     s.commands.Rules(), Store: s.sync.Store(),
	}.Explain(ctx, text)
}

// Control returns the control of the server in the hands of somebody: an npub, or whatever the program
// calls what acts.
func (s *Server) Control(by string) control.Control { return s.commands.By(by) }

// describes is what the relay says of itself, with what was changed while it ran.
func (s *Server) describes(ctx context.Context, r *http.Request, info nip11.RelayInformationDocument) nip11.RelayInformationDocument {
	if s.about != nil {
		info = s.about(ctx, r, info)
	}
	s.commands.About(&info.Name, &info.Description, &info.Icon)
	return info
}

func (s *Server) openPurgatory(ctx context.Context, policy *purgatoryadapter.Policy, cfg Config) error {
	host := purgatoryadapter.Host{
		Store: s.sync.Store(), Release: s.sync.Release, Held: s.sync.Manager().Held, Removed: s.removed,
		Postponed: s.sync.Manager().Postponed, Lists: policy.Lists,
	}
	tell := cfg.Purgatory.Observe
	cfg.Purgatory.Observe = func(o purgatory.Observation) {
		host.Observe(o)
		if tell != nil {
			tell(o)
		}
	}
	p, err := purgatory.Open(ctx, host.Relay(), s.repos, s.fetcher, cfg.State, cfg.Purgatory)
	if err != nil {
		return err
	}
	s.purgatory.Store(p)
	policy.Join(bounded{p, s.sync.Room})
	return nil
}

// bounded is a purgatory that takes in nothing for which the disk has no room: neither its
// record nor its data could be kept, and what comes by sync is tried again.
type bounded struct {
	*purgatory.Purgatory
	room func(e graspsync.Event) error
}

// Submit is that of the purgatory.
func (b bounded) Submit(ctx context.Context, e graspsync.Event, src graspsync.Source) (purgatory.Answer, error) {
	if err := b.room(e); err != nil {
		return purgatory.Answer{}, err
	}
	return b.Purgatory.Submit(ctx, e, src)
}

// arrived and departed are what the relay says of its events. While purgatory is being opened it
// looks at everything by itself.
func (s *Server) arrived(e graspsync.Event) {
	if p := s.purgatory.Load(); p != nil {
		p.Arrived(e)
	}
}

func (s *Server) departed(e graspsync.Event) {
	if p := s.purgatory.Load(); p != nil {
		p.Departed(e)
	}
}

// removed takes note of an event that waited and will not be served: a hook may have come
// to refuse its author when its data was here already.
func (s *Server) removed(e graspsync.Event) {
	s.sync.Manager().Removed(e)
	s.departed(e)
}

// Sync is what follows other relays: its status, its metrics, its store.
func (s *Server) Sync() *khatruadapter.Sync { return s.sync }

// Purgatory is what holds events: its status, its metrics.
func (s *Server) Purgatory() *purgatory.Purgatory { return s.purgatory.Load() }

// Fetcher is what fetches git data: its metrics, the version of git.
func (s *Server) Fetcher() *gitfetch.Fetcher { return s.fetcher }

// Staging has what was pushed for events that are not here: its metrics.
func (s *Server) Staging() *gitserve.Staging { return s.repos.Staging() }

// GitHandler is what serves the repositories: its metrics.
func (s *Server) GitHandler() *gitserve.Handler { return s.git }

// Run works until ctx ends and returns what ended it; [relaysync.ErrRunning] if it was
// called before, and what khatruadapter's Run returns for a hook of the relay that was set
// after New. It leaves no goroutine.
func (s *Server) Run(ctx context.Context) error {
	if reflect.ValueOf(s.relay.OverwriteRelayInformation).Pointer() != reflect.ValueOf(s.describes).Pointer() {
		return fmt.Errorf("GRASP server: OverwriteRelayInformation: %w", khatruadapter.ErrReplaced)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var errs [2]error
	for i, run := range []func(context.Context) error{s.Purgatory().Run, s.sync.Run} {
		wg.Go(func() {
			defer cancel() // one without the other would be half a server
			errs[i] = run(ctx)
		})
	}
	wg.Wait()
	if errors.Is(errs[1], relaysync.ErrRunning) || errors.Is(errs[1], khatruadapter.ErrReplaced) {
		return errs[1]
	}
	return errs[0]
}

// Close ends what is left: requests for repositories that are under way, child processes, and the use
// of the backend, which may be closed then. What comes later is refused. It is called after
// Run; a second call does nothing.
func (s *Server) Close() error {
	if s.git != nil {
		s.git.Close()
	}
	if s.fetcher != nil {
		s.fetcher.Close()
	}
	var errs [3]error
	if s.sync != nil { // now nobody asks it any more
		errs[0] = s.sync.Close()
	}
	if s.repos != nil {
		errs[1] = s.repos.Close()
	}
	if s.records != nil {
		errs[2] = s.records.Close()
	}
	return errors.Join(errs[:]...)
}
