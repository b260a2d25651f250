// Package server contains the part of a GRASP server that is the same for both libraries.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/control"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/adapter/internal/settings"
	"github.com/graspsync/graspsync/adapter/pages"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
)

// ErrConfig is wrapped by the error for an invalid configuration.
var ErrConfig = errors.New("invalid configuration")

// Config has the fields that the configurations of both servers share.
type Config struct {
	Identity     nip34.Identity
	Dir          string
	State        state.Store
	Egress       egress.Config
	Membership   nip34.Membership
	GRASPLists   bool
	Rules        *rules.RuleSet
	Audit        func(admin.Entry)
	Logger       *slog.Logger
	Sync         relaysync.Config
	Purgatory    purgatory.Config
	Fetch        gitfetch.Config
	Repositories gitserve.RepositoriesConfig
	Serve        gitserve.Config
}

func (c *Config) validate(errs ...error) error {
	if c.State == nil {
		errs = append(errs, errors.New("State is nil"))
	}
	if c.Sync.Holder != nil {
		errs = append(errs, errors.New("Sync.Holder is set, but purgatory is the holder of the server"))
	}
	if r := c.Sync.Rules; r != nil && r != relaysync.Rules(c.Rules) {
		errs = append(errs, errors.New("Sync.Rules is set, set Rules instead"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// maxRelays is the default of relaysync.Config.MaxConnections, which take at most 1/relaysPart of the
// open files.
const (
	maxRelays  = 256
	relaysPart = 4
)

// manyBytes is the default of purgatory.Limits.MaxPullBytes, at most MaxOwnerBytes/pullShare, so
// that the first pull requests of an owner can be evicted.
const (
	manyBytes = 1 << 30
	pullShare = 8
)

func (c *Config) setDefaults() error {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, part := range []**slog.Logger{&c.Sync.Logger, &c.Purgatory.Logger, &c.Fetch.Logger, &c.Repositories.Logger, &c.Serve.Logger} {
		if *part == nil {
			*part = c.Logger
		}
	}
	if c.Sync.Policy == nil {
		policy := relaysync.NewGRASPPolicy(c.Identity)
		policy.Membership, policy.GRASPLists = c.Membership, c.GRASPLists
		c.Sync.Policy, c.Sync.PolicyVersion = policy, policy.Version() // a new version judges rejected events again
	}
	if c.Sync.MaxConnections == 0 {
		c.Sync.MaxConnections = min(maxRelays, max(1, disk.Files()/relaysPart))
	}
	c.Sync.State = c.State
	c.Purgatory.Identity, c.Purgatory.Membership = c.Identity, c.Membership
	if most := c.Repositories.MaxOwnerBytes; c.Purgatory.Limits.MaxPullBytes == 0 && most > 0 {
		c.Purgatory.Limits.MaxPullBytes = min(manyBytes, max(1, most/pullShare))
	}
	if c.Purgatory.Limits.MaxOwnerPullBytes == 0 {
		c.Purgatory.Limits.MaxOwnerPullBytes = c.Repositories.MaxOwnerBytes / 2
	}
	if most := 2 * c.Purgatory.Limits.MaxFetchJobs; c.Fetch.MaxFetches == 0 {
		c.Fetch.MaxFetches = most // with fewer, slow servers would delay fast servers
	}
	if c.Repositories.Git == "" {
		c.Repositories.Git = c.Fetch.Git // Fetch checks the version of git
	}
	if c.Repositories.AllowFaults == nil {
		c.Repositories.AllowFaults = c.Fetch.AllowFaults
	}
	if c.Fetch.MinFreeDisk == 0 {
		c.Fetch.MinFreeDisk = c.Serve.MinFreeDisk // same disk; both have the same default
	}
	c.Egress.OwnNames = append(c.Identity.HostPorts(), c.Egress.OwnNames...)
	c.Egress.AllowPlaintext = c.Egress.AllowPlaintext || c.Sync.AllowPlaintext
	c.Sync.AllowPlaintext = c.Egress.AllowPlaintext
	if c.Egress.Budget == nil {
		// One budget limits the traffic to an address for websockets and git together.
		budget, err := egress.NewBudget(egress.BudgetConfig{})
		if err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
		c.Egress.Budget = budget
	}
	return nil
}

// Relay is a Sync of either library.
type Relay struct {
	embedding.Sync
	Store *eventstoreadapter.Store
	Run   func(context.Context) error // in place of Sync.Run
	About func() pages.About
}

// Parts are the parts of a server. Use [Open] and then [Parts.Join].
type Parts struct {
	Config   Config // with defaults
	Git      *gitserve.Handler
	Fetcher  *gitfetch.Fetcher
	Repos    *gitserve.Repositories
	Commands *control.Control // nil before Join
	Pages    *pages.Site
	Records  settings.Opened // nil if the embedder closes them
	policy   *purgatoryadapter.Policy
	started  []graspsync.RelayURL // Sync.Bootstrap of the configuration
	relay    Relay
	waits    atomic.Pointer[purgatory.Purgatory] // nil before Join
	ready    *readiness
}

// Open validates a configuration, in which the caller found errs, and opens the repositories and the
// fetcher. The relay's Sync takes Config of the result.
func Open(ctx context.Context, c Config, errs ...error) (_ *Parts, err error) {
	if err := c.validate(errs...); err != nil {
		return nil, err
	}
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	s := &Parts{started: c.Sync.Bootstrap}
	if c.Rules == nil {
		if c.Rules, err = rules.Open(ctx, c.State, rules.File{}); err != nil {
			return nil, err
		}
	}
	c.Sync, c.Egress = control.Enforce(c.Rules, c.Sync, c.Egress)
	if c.Fetch.Dialer, err = egress.NewDialer(c.Egress); err != nil {
		return nil, err
	}
	c.Repositories.Memory = gitserve.NewMemory(c.Repositories)
	c.Fetch.Memory = c.Repositories.Memory
	if s.Fetcher, err = gitfetch.New(ctx, c.Fetch); err != nil {
		return nil, err
	}
	if s.Repos, err = gitserve.Open(c.Dir, c.Repositories); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.policy = purgatoryadapter.NewPolicy(c.Sync.Policy)
	c.Sync = s.policy.Configure(c.Sync)
	s.Config = c
	return s, nil
}

// Free returns the free bytes on the disk of the repositories.
func (s *Parts) Free() (uint64, error) { return disk.Free(s.Config.Dir) }

// Join opens the purgatory of a relay and the parts that need both.
func (s *Parts) Join(ctx context.Context, relay Relay) (err error) {
	s.relay = relay
	c := s.Config
	host := purgatoryadapter.Host{
		Store: relay.Store, Release: relay.Release, Held: relay.Manager().NotifyHeld, Removed: s.removed,
		Postponed: relay.Manager().NotifyDeferred, Lists: s.policy.Lists,
	}
	tell := c.Purgatory.Observe
	c.Purgatory.Observe = func(o purgatory.Observation) {
		host.Observe(o)
		if tell != nil {
			tell(o)
		}
	}
	p, err := purgatory.Open(ctx, host.Relay(), s.Repos, s.Fetcher, s.Fetcher, c.State, c.Purgatory)
	if err != nil {
		return err
	}
	s.waits.Store(p)
	s.policy.Room = relay.Room
	s.policy.Join(p)
	authority := purgatoryadapter.Authority{Store: relay.Store, Purgatory: p}
	s.Pages = pages.New(pages.Config{
		Identity: c.Identity, Store: relay.Store, Announced: p.Announced, Blocks: c.Rules.BlocksRepository, Logger: c.Logger,
		About: relay.About,
	})
	if c.Serve.Pages == nil {
		c.Serve.Pages = s.Pages
	}
	if s.Git, err = gitserve.New(s.Repos, authority, c.Serve); err != nil {
		return err
	}
	s.ready = newReadiness(relay.Manager().Ready(), func() error { return errors.Join(relay.Writable(), p.Ready()) }, c.State, s.Repos.Writable)
	s.Commands, err = control.New(control.Config{
		Rules: c.Rules, Sync: relay.Manager(), Store: relay.Store, Remove: relay.Remove, Purgatory: p,
		Repositories: s.Repos, Lists: s.policy.Lists, Bootstrap: s.started, Audit: c.Audit, Logger: c.Logger,
	})
	return err
}

// Purgatory returns nil before Join.
func (s *Parts) Purgatory() *purgatory.Purgatory { return s.waits.Load() }

// NotifyStored does nothing before Join, because purgatory.Open reads all events.
func (s *Parts) NotifyStored(e graspsync.Event) {
	if p := s.Purgatory(); p != nil {
		p.NotifyStored(e)
	}
}

// NotifySuperseded does nothing before Join.
func (s *Parts) NotifySuperseded(e graspsync.Event) {
	if p := s.Purgatory(); p != nil {
		p.NotifySuperseded(e)
	}
}

func (s *Parts) removed(e graspsync.Event) {
	s.relay.Manager().NotifyRemoved(e)
	s.NotifySuperseded(e)
}

// Collector returns the metrics of all parts and more.
func (s *Parts) Collector(namespace string, more ...prometheus.Collector) prometheus.Collector {
	all := append(settings.Collectors{
		s.relay.Collector(namespace), s.Purgatory().Collector(""), s.Fetcher.Collector(namespace), s.Git.Collector(namespace),
		s.Repos.Staging().Collector(namespace), s.ready.Collector(namespace), s.Commands.Collector(namespace),
	}, more...)
	if s.Records != nil {
		all = append(all, s.Records.Collector(namespace))
	}
	return all
}

// Run returns the error of the relay if that is ErrRunning or one of unbegun.
func (s *Parts) Run(ctx context.Context, unbegun ...error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var errs [2]error
	for i, run := range []func(context.Context) error{s.Purgatory().Run, s.relay.Run} {
		wg.Go(func() {
			defer cancel() // one cannot work without the other
			errs[i] = run(ctx)
		})
	}
	wg.Wait()
	for _, err := range append(unbegun, relaysync.ErrRunning) {
		if errors.Is(errs[1], err) {
			return errs[1]
		}
	}
	return errs[0]
}

// Close ends requests, child processes, and the use of the backend.
func (s *Parts) Close() error {
	if s == nil {
		return nil
	}
	if s.Git != nil {
		s.Git.Close()
	}
	s.Fetcher.Close()
	var errs [3]error
	if s.relay.Run != nil { // after all its users
		errs[0] = s.relay.Close()
	}
	if s.Repos != nil {
		errs[1] = s.Repos.Close()
	}
	if s.Records != nil {
		errs[2] = s.Records.Close()
	}
	return errors.Join(errs[:]...)
}

// Methods has the methods of a server that do not depend on the library of its relay.
type Methods struct{ parts *Parts }

// Methods returns the methods for the embedder.
func (s *Parts) Methods() Methods { return Methods{s} }

// Control returns the operator's commands.
func (m Methods) Control() *control.Control { return m.parts.Commands }

// Purgatory returns the part that holds events.
func (m Methods) Purgatory() *purgatory.Purgatory { return m.parts.Purgatory() }

// Fetcher returns the part that fetches git data.
func (m Methods) Fetcher() *gitfetch.Fetcher { return m.parts.Fetcher }

// Staging returns the data that was pushed before its event.
func (m Methods) Staging() *gitserve.Staging { return m.parts.Repos.Staging() }

// GitHandler returns the part that serves git clients.
func (m Methods) GitHandler() *gitserve.Handler { return m.parts.Git }

// Explain is that of package explain.
func (m Methods) Explain(ctx context.Context, text string) (explain.Explanation, error) {
	s := m.parts
	return explain.Explainer{
		Sync: s.relay.Manager(), Purgatory: s.Purgatory(), Repositories: s.Repos, Rules: s.Commands.Rules(), Store: s.relay.Store,
	}.Explain(ctx, text)
}

// Ready returns nil if the server can work. The error wraps [ErrStarting] until Run has read the store,
// and [embedding.ErrRoom] if the disk is full. It writes a few bytes at most every 5 s, and returns
// within 5 s.
func (m Methods) Ready(ctx context.Context) error { return m.parts.ready.Ready(ctx) }
