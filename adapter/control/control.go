package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/rules"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Control executes the commands of an operator while a server runs. It is created by [New] and safe
// for concurrent use. Decisions survive a restart. Each call that changes something is logged and
// passed to [Config].Audit. Methods that use the SyncManager wait until its Run has started.
// Control is an [admin.Operator].
type Control struct {
	*control
	by string
}

var _ admin.Operator = Control{}

// New returns the Control of a server, without an operator name (see [Control.By]). The error wraps
// [ErrConfig].
func New(cfg Config) (Control, error) {
	if err := cfg.validate(); err != nil {
		return Control{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &control{
		rules: cfg.Rules, sync: cfg.Sync, store: cfg.Store, removes: cfg.Remove, purgatory: cfg.Purgatory, repos: cfg.Repositories,
		lists: cfg.Lists, bootstrap: cfg.Bootstrap, audit: cfg.Audit, log: cfg.Logger, reloading: make(chan *unacted, 1),
	}
	c.reloading <- nil
	return Control{control: c}, nil
}

// By returns the same Control for a named operator, such as an npub or a part of the program.
func (c Control) By(by string) Control { return Control{c.control, by} }

// control is the common part of all Controls of a server.
type control struct {
	// read-only
	rules     *rules.RuleSet
	sync      *relaysync.SyncManager
	store     relaysync.Store
	removes   func(context.Context, graspsync.Event) error
	purgatory *purgatory.Purgatory
	repos     Repositories
	lists     func(*nip34.Announcement) bool
	bootstrap []graspsync.RelayURL // from the configuration
	audit     func(admin.Entry)
	log       *slog.Logger

	reloading chan *unacted // its one slot is empty while a Reload runs
	stale     atomic.Bool   // the last Reload failed
}

// Collector returns a metric that shows whether the last Reload failed. The rules have a Collector
// of their own.
func (c Control) Collector(namespace string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: "rules", Name: "reload_failed",
		Help: "1 if the last reload of the rules file failed, otherwise 0.",
	}, func() float64 {
		if c.stale.Load() {
			return 1
		}
		return 0
	})
}

// unacted is the failed part of a Reload, which the next one repeats. It is nil after a success.
type unacted struct {
	subjects  []rules.Subject
	bootstrap []graspsync.RelayURL // followed before
}

// ErrNothingToPurge is wrapped by errors of [Control.Purge] and [Control.Remove] for a relay, which
// has no stored data, and for a repository without stored data.
var ErrNothingToPurge = errors.New("nothing is stored")

// Errors of [Control.Reload]. ErrUnchanged means that the file could not be read and the rules are
// unchanged. ErrUnacted means that the new rules are in force, but an action such as disconnecting
// a relay failed. The next Reload repeats it.
var (
	ErrUnchanged = errors.New("rules unchanged")
	ErrUnacted   = errors.New("new rules in force, applying them to what is connected and stored failed, reload to repeat that")
)

// Rules returns the rules.
func (c Control) Rules() *rules.RuleSet { return c.rules }

// Block stops accepting, requesting and connecting to a subject. Connections to a relay end,
// repositories of an author leave service, and held events are dropped. Stored events are served
// until they are purged. The reason is recorded.
func (c Control) Block(ctx context.Context, s rules.Subject, reason string) error {
	return c.decide(ctx, "block", rules.Rule{Action: rules.Block, Subject: s, Reason: reason})
}

// Allow exempts a subject from rules of the file and from rules of wider scope. Refused events are
// judged or requested again.
func (c Control) Allow(ctx context.Context, s rules.Subject, reason string) error {
	return c.decide(ctx, "allow", rules.Rule{Action: rules.Allow, Subject: s, Reason: reason})
}

// Unset removes a rule of Block or Allow. The error wraps [rules.ErrNoRule] if there is no such
// rule.
func (c Control) Unset(ctx context.Context, s rules.Subject) error {
	return c.recorded(func() error {
		if err := c.rules.Unset(ctx, s); err != nil {
			return err
		}
		return c.act(ctx, s)
	}, "unset", string(s.Kind), s.Name)
}

// Reload replaces the rules of the file by the rules that read returns, and acts on the changes.
// The error wraps [ErrUnchanged] or [ErrUnacted].
func (c Control) Reload(ctx context.Context, read func() (rules.File, error)) error {
	return c.recorded(func() error { return c.reload(ctx, read) }, "reload")
}

// reload reads the file while no other Reload runs, because a file that was read earlier could be
// outdated.
func (c Control) reload(ctx context.Context, read func() (rules.File, error)) (err error) {
	var left *unacted
	select {
	case left = <-c.reloading:
	case <-ctx.Done():
		c.stale.Store(true)
		return fmt.Errorf("%w: %w", ErrUnchanged, context.Cause(ctx))
	}
	defer func() {
		c.stale.Store(err != nil)
		c.reloading <- left
	}()
	f, err := read()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnchanged, err)
	}
	before, followed := c.rules.All(), c.rules.Bootstrap(c.bootstrap)
	if err := c.rules.SetFile(ctx, f); err != nil {
		return fmt.Errorf("%w: %w", ErrUnchanged, err)
	}
	changed := differing(before, c.rules.All())
	if left != nil {
		followed = left.bootstrap
		changed = union(changed, left.subjects)
	}
	err = errors.Join(c.act(ctx, changed...), c.follow(ctx, followed))
	if left = nil; err != nil {
		left = &unacted{changed, followed}
		err = fmt.Errorf("%w: %w", ErrUnacted, err)
	}
	return err
}

func union(a, b []rules.Subject) []rules.Subject {
	all := make(map[rules.Subject]struct{}, len(a)+len(b))
	for _, s := range slices.Concat(a, b) {
		all[s] = struct{}{}
	}
	return slices.Collect(maps.Keys(all))
}

// differing returns the subjects whose action differs between two lists of rules.
func differing(before, after []rules.Rule) (out []rules.Subject) {
	said := make(map[rules.Subject]rules.Action)
	for _, r := range before {
		said[r.Subject] = r.Action
	}
	for _, r := range after {
		if said[r.Subject] != r.Action {
			out = append(out, r.Subject)
		}
		delete(said, r.Subject)
	}
	for s := range said {
		out = append(out, s)
	}
	return out
}

// AddBootstrap follows a relay, even if no repository lists it.
func (c Control) AddBootstrap(ctx context.Context, u graspsync.RelayURL) error {
	return c.recorded(func() error {
		if err := c.sync.AddBootstrap(ctx, u); err != nil { // it refuses unusable URLs
			return err
		}
		return c.rules.AddBootstrap(ctx, u)
	}, "bootstrap", "add", u.String())
}

// RemoveBootstrap treats a bootstrap relay like any other, even if the configuration lists it.
func (c Control) RemoveBootstrap(ctx context.Context, u graspsync.RelayURL) error {
	return c.recorded(func() error {
		if !slices.Contains(c.rules.Bootstrap(c.bootstrap), u) {
			return fmt.Errorf("%w as a bootstrap relay: %s", relaysync.ErrUnknownRelay, u)
		}
		if err := c.rules.RemoveBootstrap(ctx, u); err != nil {
			return err
		}
		return c.follow(ctx, []graspsync.RelayURL{u})
	}, "bootstrap", "remove", u.String())
}

// Retry dials a relay now. See [relaysync.SyncManager.Retry].
func (c Control) Retry(ctx context.Context, u graspsync.RelayURL) error {
	return c.recorded(func() error { return c.sync.Retry(ctx, u) }, "retry", u.String())
}

// ResyncRelay compares all history with a relay again.
func (c Control) ResyncRelay(ctx context.Context, u graspsync.RelayURL) error {
	return c.recorded(func() error { return c.sync.Resync(ctx, u) }, "resync", "relay", u.String())
}

// ResyncRepository requests a repository again from all its relays.
func (c Control) ResyncRepository(ctx context.Context, ref graspsync.RepoRef) error {
	return c.recorded(func() error { return c.sync.ResyncRepository(ctx, ref) }, "resync", "repository", ref.String())
}

// Refetch fetches the missing git data of a repository now, and requests its expired events again.
// See [purgatory.Purgatory.Refetch].
func (c Control) Refetch(ctx context.Context, ref graspsync.RepoRef) error {
	return c.recorded(func() error { return c.refetch(ctx, ref) }, "refetch", ref.String())
}

func (c Control) refetch(ctx context.Context, ref graspsync.RepoRef) error {
	ids, failed := c.purgatory.ForgetExpired(ctx, ref)
	if len(ids) > 0 { // also after an error, because ForgetExpired returns each id once
		asked := make([]graspsync.Dependency, len(ids))
		for i, id := range ids {
			asked[i] = graspsync.OnOperatorRequest(id)
		}
		failed = errors.Join(failed, c.sync.RulesChanged(ctx, asked...))
	}
	err := c.purgatory.Refetch(ctx, ref)
	if errors.Is(err, purgatory.ErrNoRepository) && len(ids) > 0 {
		err = nil // its announcement is requested again
	}
	return errors.Join(failed, err)
}

// ConfirmDepartures retires the repositories that stay in service only because most repositories
// have no announcement, and returns their number. See [purgatory.Purgatory.ConfirmDepartures].
func (c Control) ConfirmDepartures() (departed int, err error) {
	err = c.recorded(func() error {
		departed = c.purgatory.ConfirmDepartures()
		return nil
	}, "confirm", "departures")
	return departed, err
}

// Maintain repacks a repository and deletes its unreferenced objects before it returns. It waits
// while the repository is in use.
func (c Control) Maintain(ctx context.Context, ref graspsync.RepoRef) (done purgatory.Maintained, err error) {
	err = c.recorded(func() error {
		return whenUnused(ctx, func() (err error) {
			done, err = c.purgatory.Maintain(ctx, ref)
			return err
		})
	}, "maintain", ref.String())
	return done, err
}

// Describe changes the description of the server. Nil fields stay as they are.
func (c Control) Describe(ctx context.Context, a rules.ServerInfo) error {
	var said []string
	for _, t := range []struct {
		name string
		text *string
	}{{"name", a.Name}, {"description", a.Description}, {"icon", a.Icon}} {
		if t.text != nil {
			said = append(said, t.name, graspsync.Clip(*t.text, rules.MaxText))
		}
	}
	return c.recorded(func() error { return c.rules.Describe(ctx, a) }, "describe", said...)
}

// recorded executes a command and records it before and after, so that a killed process leaves a
// trace. Each method that changes something uses it.
func (c Control) recorded(do func() error, command string, args ...string) error {
	for len(args) > 0 && args[len(args)-1] == "" { // no reason was given
		args = args[:len(args)-1]
	}
	e := admin.Entry{By: c.by, Command: command, Args: args, Outcome: admin.Begun}
	c.entry(e)
	err := do()
	if e.Outcome = admin.Done; err != nil {
		e.Outcome, e.Error = admin.Failed, graspsync.Printable(err.Error())
	}
	c.log.Info("command", "admin", c.by, "command", command, "args", graspsync.Printable(fmt.Sprint(args)), "outcome", e.Outcome, "error", e.Error)
	c.entry(e)
	return err
}

func (c Control) entry(e admin.Entry) {
	if c.audit != nil {
		e.At = time.Now().UTC().Round(time.Millisecond)
		c.audit(e)
	}
}

// decide stores a rule and acts on it.
func (c Control) decide(ctx context.Context, command string, r rules.Rule) error {
	return c.recorded(func() error {
		if err := c.keep(ctx, r); err != nil {
			return err
		}
		return c.act(ctx, r.Subject)
	}, command, string(r.Subject.Kind), r.Subject.Name, r.Reason)
}

func (c Control) keep(ctx context.Context, r rules.Rule) error {
	r.By = c.by
	return c.rules.Set(ctx, r)
}

// act applies changed rules of some subjects to stored events, held events and connections.
func (c Control) act(ctx context.Context, subjects ...rules.Subject) error {
	if len(subjects) == 0 {
		return nil
	}
	var lifted []graspsync.Dependency
	for _, s := range subjects {
		lifted = append(lifted, rules.Lifted(s)) // events that are still blocked are refused again
	}
	err := c.sync.RulesChanged(ctx, lifted...)
	_, derr := c.dismiss(ctx)
	return errors.Join(err, derr, c.announce(ctx, subjects))
}

// dismiss drops held events that are blocked.
func (c Control) dismiss(ctx context.Context) (n int, err error) {
	return c.purgatory.Drop(ctx, func(ev graspsync.Event) bool {
		_, blocked := c.rules.Event(ev)
		return blocked
	})
}

// manySubjects is the number of authors above which all announcements are read instead.
const manySubjects = 20

// announce passes the announcements of some subjects to purgatory, because their repositories may
// go out of service or return.
func (c Control) announce(ctx context.Context, subjects []rules.Subject) error {
	filter := nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}}
	for _, s := range subjects {
		if k, ok := s.PubKey(); ok && !slices.Contains(filter.Authors, k.String()) {
			filter.Authors = append(filter.Authors, k.String())
		}
	}
	switch n := len(filter.Authors); {
	case n == 0:
		return nil
	case n > manySubjects:
		filter.Authors = nil
	}
	for ev, err := range c.store.Events(ctx, filter) {
		if err != nil {
			return fmt.Errorf("reading announcements: %w", err)
		}
		c.purgatory.NotifyStored(ev)
	}
	return nil
}

// follow makes the SyncManager follow the current bootstrap relays instead of the previous ones.
func (c Control) follow(ctx context.Context, before []graspsync.RelayURL) error {
	now := c.rules.Bootstrap(c.bootstrap)
	var errs []error
	for _, u := range now {
		if !slices.Contains(before, u) {
			errs = append(errs, c.sync.AddBootstrap(ctx, u))
		}
	}
	for _, u := range before {
		if !slices.Contains(now, u) {
			errs = append(errs, c.sync.RemoveBootstrap(ctx, u))
		}
	}
	return errors.Join(errs...)
}

// About overwrites name, description and icon with the values that Describe has set.
func (c Control) About(name, description, icon *string) {
	about := c.rules.About()
	for _, t := range []struct{ from, to *string }{{about.Name, name}, {about.Description, description}, {about.Icon, icon}} {
		if t.from != nil {
			*t.to = *t.from
		}
	}
}
