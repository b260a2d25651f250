// Package server has what is the same for a GRASP server on either library: the parts behind the relay, from their
// configuration to their end.
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
	"github.com/graspsync/graspsync/adapter/internal/settings"
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

// ErrConfig is wrapped by the error of a configuration that is not valid.
var ErrConfig = errors.New("invalid configuration")

// Config is the part of the configurations of both libraries that is the same. The fields are documented there.
type Config struct {
	Identity     nip34.Identity
	Dir          string
	State        state.Store
	Egress       egress.Config
	Membership   nip34.Membership
	GRASPLists   bool
	Rules        *rules.Book
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
		errs = append(errs, errors.New("Sync.Holder is set: what the server holds is in its purgatory"))
	}
	if r := c.Sync.Rules; r != nil && r != relaysync.Rules(c.Rules) {
		errs = append(errs, errors.New("Sync.Rules is set: the rules of the server are Rules"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// manyBytesADay is the default of purgatory.Limits.MaxRepoDay, and manyBytesOfAHost that of
// gitfetch.Config.MaxAddressDay.
const (
	manyBytesADay    = 4 << 30
	manyBytesOfAHost = 16 << 30
)

// mostRelays is the default of relaysync.Limits.MaxConnections, unless that is more than one of relaysPart of the files that the
// process may open.
const (
	mostRelays = 256
	relaysPart = 4
)

// manyBytes is the default of purgatory.Limits.MaxPullBytes, and pullShare the part of
// gitserve.RepositoriesConfig.MaxOwnerBytes, one of so many, that it is where that is less. What
// has given way takes up as much again: as long as there is room for more, pull requests give way
// to each other. Where an owner has no more of it, whoever came first would keep it.
const (
	manyBytes = 1 << 30
	pullShare = 4
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
		c.Sync.Policy, c.Sync.PolicyVersion = policy, policy.Version() // with others what was rejected is judged anew
	}
	if c.Sync.Limits.MaxConnections == 0 {
		c.Sync.Limits.MaxConnections = min(mostRelays, max(1, disk.Files()/relaysPart))
	}
	c.Sync.State = c.State
	c.Purgatory.Identity, c.Purgatory.Membership = c.Identity, c.Membership
	if most := c.Repositories.MaxOwnerBytes; c.Purgatory.Limits.MaxPullBytes == 0 && most > 0 {
		c.Purgatory.Limits.MaxPullBytes = min(manyBytes, max(1, most/pullShare))
	}
	if most := 2 * c.Purgatory.Limits.MaxHunts; c.Fetch.MaxFetches == 0 {
		c.Fetch.MaxFetches = most // with fewer slow servers make the others wait
	}
	if most := c.Fetch.MaxPackBytes; c.Purgatory.Limits.MaxRepoDay == 0 && most > manyBytesADay {
		c.Purgatory.Limits.MaxRepoDay = most // else what is larger never comes
	}
	if most := c.Purgatory.Limits.MaxHostDay; c.Fetch.MaxAddressDay == 0 && most > manyBytesOfAHost {
		c.Fetch.MaxAddressDay = most // else a name never brings as much as it may
	}
	if c.Repositories.Git == "" {
		c.Repositories.Git = c.Fetch.Git // it is of that one that is asked whether it will do
	}
	if c.Repositories.AllowFaults == nil {
		c.Repositories.AllowFaults = c.Fetch.AllowFaults
	}
	if c.Fetch.MinFreeDisk == 0 {
		c.Fetch.MinFreeDisk = c.Serve.MinFreeDisk // it is one disk; both have the same default
	}
	c.Egress.OwnNames = append(c.Identity.HostPorts(), c.Egress.OwnNames...)
	c.Egress.AllowPlaintext = c.Egress.AllowPlaintext || c.Sync.AllowPlaintext
	c.Sync.AllowPlaintext = c.Egress.AllowPlaintext
	if c.Egress.Budget == nil {
		// One for websockets and git: what a stranger's address may be burdened with.
		budget, err := egress.NewBudget(egress.BudgetConfig{})
		if err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
		c.Egress.Budget = budget
	}
	return nil
}

// Relay is what a server needs of the Sync of either library.
type Relay struct {
	Manager  *relaysync.SyncManager
	Store    *eventstoreadapter.Store
	Release  func(context.Context, graspsync.Event) (graspsync.Outcome, error)
	Remove   func(context.Context, graspsync.Event) error
	Room     func(graspsync.Event) error
	Writable func() error
	Run      func(context.Context) error
	Close    func() error
	Collect  func(namespace string) prometheus.Collector
}

// Parts are those of a server. They are made by [Open] and [Parts.Join]; all methods may be called concurrently then.
type Parts struct {
	Config   Config // complete
	Git      *gitserve.Handler
	Fetcher  *gitfetch.Fetcher
	Repos    *gitserve.Repositories
	Commands control.Control // in the hands of nobody
	Records  settings.Opened // nil if they belong to the embedder
	policy   *purgatoryadapter.Policy
	started  []graspsync.RelayURL // bootstrap relays as configured
	relay    Relay
	waits    atomic.Pointer[purgatory.Purgatory] // nil until it is open
	ready    *readiness
}

// Open completes a configuration, of which errs are wrong already, and opens the repositories and what fetches into them.
// The Config of the result is for the relay's Sync. ctx bounds Open only. If it fails, it leaves nothing open.
func Open(ctx context.Context, c Config, errs ...error) (_ *Parts, err error) {
	if err := c.validate(errs...); err != nil {
		return nil, err
	}
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	s := &Parts{started: c.Sync.Bootstrap}
	if c.Rules == nil {
		if c.Rules, err = rules.Open(ctx, c.State, rules.Config{}); err != nil {
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

// Free returns the bytes of the disk that may still be used.
func (s *Parts) Free() (uint64, error) { return disk.Free(s.Config.Dir) }

// Join opens the purgatory behind a relay, and makes what needs both. Close closes the relay as well then, also if Join
// fails.
func (s *Parts) Join(ctx context.Context, relay Relay) (err error) {
	s.relay = relay
	c := s.Config
	host := purgatoryadapter.Host{
		Store: relay.Store, Release: relay.Release, Held: relay.Manager.Held, Removed: s.removed,
		Postponed: relay.Manager.Postponed, Lists: s.policy.Lists,
	}
	tell := c.Purgatory.Observe
	c.Purgatory.Observe = func(o purgatory.Observation) {
		host.Observe(o)
		if tell != nil {
			tell(o)
		}
	}
	p, err := purgatory.Open(ctx, host.Relay(), s.Repos, s.Fetcher, c.State, c.Purgatory)
	if err != nil {
		return err
	}
	s.waits.Store(p)
	s.policy.Join(bounded{p, relay.Room})
	authority := purgatoryadapter.Authority{Store: relay.Store, Purgatory: p}
	if c.Serve.Describe == nil {
		c.Serve.Describe = authority.Describe
	}
	if s.Git, err = gitserve.New(s.Repos, authority, c.Serve); err != nil {
		return err
	}
	s.ready = newReadiness(relay.Manager.Ready(), func() error { return errors.Join(relay.Writable(), p.Ready()) }, c.State, s.Repos.Writable)
	s.Commands, err = control.New(control.Config{
		Rules: c.Rules, Sync: relay.Manager, Store: relay.Store, Remove: relay.Remove, Purgatory: p,
		Repositories: s.Repos, Lists: s.policy.Lists, Bootstrap: s.started, Audit: c.Audit, Logger: c.Logger,
	})
	return err
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

// Purgatory returns the purgatory, or nil while it is being opened.
func (s *Parts) Purgatory() *purgatory.Purgatory { return s.waits.Load() }

// Arrived and Departed report events of the relay to the purgatory. While that is being opened it looks at everything.
func (s *Parts) Arrived(e graspsync.Event) {
	if p := s.Purgatory(); p != nil {
		p.Arrived(e)
	}
}

// Departed is for an event that the relay has no more: moderation and expiry store nothing that would tell.
func (s *Parts) Departed(e graspsync.Event) {
	if p := s.Purgatory(); p != nil {
		p.Departed(e)
	}
}

// removed takes note of an event that waited and will not be served: a hook may have come
// to refuse its author when its data was here already.
func (s *Parts) removed(e graspsync.Event) {
	s.relay.Manager.Removed(e)
	s.Departed(e)
}

// Explain answers why something is here, or is not, and which rule keeps it out.
func (s *Parts) Explain(ctx context.Context, text string) (control.Explanation, error) {
	return control.Explainer{
		Explainer: explain.Explainer{Sync: s.relay.Manager, Purgatory: s.Purgatory(), Repositories: s.Repos},
		Rules:     s.Commands.Rules(), Store: s.relay.Store,
	}.Explain(ctx, text)
}

// Ready returns why the server can't do its work now, or nil.
func (s *Parts) Ready(ctx context.Context) error { return s.ready.Ready(ctx) }

// Collector has the metrics of all parts, and more.
func (s *Parts) Collector(namespace string, more ...prometheus.Collector) prometheus.Collector {
	all := append(settings.Collectors{
		s.relay.Collect(namespace), s.Purgatory().Collector(""), s.Fetcher.Collector(namespace), s.Git.Collector(namespace),
		s.Repos.Staging().Collector(namespace), s.ready.Collector(namespace), s.Commands.Rules().Collector(namespace), s.Commands.Collector(namespace),
	}, more...)
	if s.Records != nil {
		all = append(all, s.Records.Collector(namespace))
	}
	return all
}

// Run works until ctx ends and returns what ended it: the error of the relay if it could not begin.
func (s *Parts) Run(ctx context.Context, unbegun ...error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var errs [2]error
	for i, run := range []func(context.Context) error{s.Purgatory().Run, s.relay.Run} {
		wg.Go(func() {
			defer cancel() // one without the other would be half a server
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

// Close ends what is left: requests under way, child processes, and the use of the backend. A second call does nothing.
func (s *Parts) Close() error {
	if s == nil {
		return nil
	}
	if s.Git != nil {
		s.Git.Close()
	}
	s.Fetcher.Close()
	var errs [3]error
	if s.relay.Close != nil { // now nobody asks it any more
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
