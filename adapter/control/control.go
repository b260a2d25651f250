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

// Control is what whoever runs a server may have it do while it runs. Make one with [New]. What
// is decided is kept over restarts, and each call that changes something is logged and told to
// [Config].Audit. All methods may be called concurrently, while Run runs: those that ask it wait for
// that. It is an [admin.Operator].
type Control struct {
	*control
	by string
}

var _ admin.Operator = Control{}

// New returns the Control of a server in the hands of nobody; see [Control.By]. The error wraps [ErrConfig].
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

// By returns the same Control in the hands of somebody: an npub, or whatever the program calls what acts.
func (c Control) By(by string) Control { return Control{c.control, by} }

// control is what all Controls of a server share.
type control struct {
	// read-only
	rules     *rules.Book
	sync      *relaysync.SyncManager
	store     relaysync.Store
	removes   func(context.Context, graspsync.Event) error
	purgatory *purgatory.Purgatory
	repos     Repositories
	lists     func(*nip34.Announcement) bool
	bootstrap []graspsync.RelayURL // that were configured
	audit     func(admin.Entry)
	log       *slog.Logger

	reloading chan *unacted // its one slot is taken by who reloads
	stale     atomic.Bool   // the last Reload failed
}

// Collector tells whether the last Reload failed: what an operator has put into the file may not be in force. The
// rules have a Collector of their own.
func (c Control) Collector(namespace string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: "rules", Name: "reload_failed",
		Help: "1 if the last reload of the rules file failed, completely or in part, otherwise 0.",
	}, func() float64 {
		if c.stale.Load() {
			return 1
		}
		return 0
	})
}

// unacted is what a Reload did not come to; nil: it came to all of it.
type unacted struct {
	subjects  []rules.Subject
	bootstrap []graspsync.RelayURL // that were followed before
}

// ErrNothingToPurge is wrapped by what Purge says of a subject of which nothing can be here: a relay.
var ErrNothingToPurge = errors.New("relays have no stored data")

// Rules returns what is decided.
func (c Control) Rules() *rules.Book { return c.rules }

// Block has nothing of a subject taken, asked for or connected to any more: connections to a relay
// end, the repositories of an author are not followed and out of service, what waits for git data
// is let go of. What is stored stays served until it is purged. The reason is for the log.
func (c Control) Block(ctx context.Context, s rules.Subject, reason string) error {
	return c.decide(ctx, "block", rules.Rule{Action: rules.Block, Subject: s, Reason: reason})
}

// Allow has a subject not be blocked, whatever the file of rules says, or a rule that is about more.
// What was refused is judged again, or asked for again.
func (c Control) Allow(ctx context.Context, s rules.Subject, reason string) error {
	return c.decide(ctx, "allow", rules.Rule{Action: rules.Allow, Subject: s, Reason: reason})
}

// Unset forgets what Block or Allow has said of a subject. The error wraps [rules.ErrNoRule] if
// neither has.
func (c Control) Unset(ctx context.Context, s rules.Subject) error {
	return c.recorded(func() error {
		if err := c.rules.Unset(ctx, s); err != nil {
			return err
		}
		return c.act(ctx, s)
	}, "unset", string(s.Kind), s.Name)
}

// Reload has another file of rules count, which read returns, and acts on what has changed. If it can't be
// read nothing changes. What a Reload did not come to is done by the next one, whatever that changes.
func (c Control) Reload(ctx context.Context, read func() (rules.File, error)) error {
	return c.recorded(func() error { return c.reload(ctx, read) }, "reload")
}

// reload reads when it has its turn: what was read before another Reload could be older than that one's.
func (c Control) reload(ctx context.Context, read func() (rules.File, error)) (err error) {
	var left *unacted
	select {
	case left = <-c.reloading:
	case <-ctx.Done():
		c.stale.Store(true)
		return context.Cause(ctx)
	}
	defer func() {
		c.stale.Store(err != nil)
		c.reloading <- left
	}()
	f, err := read()
	if err != nil {
		return err
	}
	before, followed := c.rules.All(), c.rules.Bootstrap(c.bootstrap)
	if err := c.rules.SetFile(ctx, f); err != nil {
		return err
	}
	changed := differing(before, c.rules.All())
	if left != nil {
		followed = left.bootstrap
		changed = union(changed, left.subjects)
	}
	err = errors.Join(c.act(ctx, changed...), c.follow(ctx, followed))
	if left = nil; err != nil {
		left = &unacted{changed, followed}
	}
	return err
}

// union returns what is in a or in b, each once.
func union(a, b []rules.Subject) []rules.Subject {
	all := make(map[rules.Subject]struct{}, len(a)+len(b))
	for _, s := range slices.Concat(a, b) {
		all[s] = struct{}{}
	}
	return slices.Collect(maps.Keys(all))
}

// differing returns the subjects of which two lists of rules do not say the same.
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

// AddBootstrap has a relay followed in any case, from now on.
func (c Control) AddBootstrap(ctx context.Context, u graspsync.RelayURL) error {
	return c.recorded(func() error {
		if err := c.sync.AddBootstrap(ctx, u); err != nil { // it knows whether it can be one
			return err
		}
		return c.rules.AddBootstrap(ctx, u)
	}, "bootstrap", "add", u.String())
}

// RemoveBootstrap has a relay be one like any other, though it may be configured to be followed.
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

// Retry has a relay tried now; see [relaysync.SyncManager].
func (c Control) Retry(ctx context.Context, u graspsync.RelayURL) error {
	return c.recorded(func() error { return c.sync.Retry(ctx, u) }, "retry", u.String())
}

// ResyncRelay has everything compared again that a relay has.
func (c Control) ResyncRelay(ctx context.Context, u graspsync.RelayURL) error {
	return c.recorded(func() error { return c.sync.Resync(ctx, u) }, "resync", "relay", u.String())
}

// ResyncRepository has all relays of a repository asked for it again.
func (c Control) ResyncRepository(ctx context.Context, ref graspsync.RepoRef) error {
	return c.recorded(func() error { return c.sync.ResyncRepository(ctx, ref) }, "resync", "repository", ref.String())
}

// Refetch has git data that a repository lacks hunted for now, and what waited for such data in vain asked for
// again; see [purgatory.Purgatory].
func (c Control) Refetch(ctx context.Context, ref graspsync.RepoRef) error {
	return c.recorded(func() error { return c.refetch(ctx, ref) }, "refetch", ref.String())
}

func (c Control) refetch(ctx context.Context, ref graspsync.RepoRef) error {
	ids, failed := c.purgatory.Forgive(ctx, ref)
	if len(ids) > 0 { // also if others failed: these are not told of again
		asked := make([]graspsync.Dependency, len(ids))
		for i, id := range ids {
			asked[i] = graspsync.OnAsked(id)
		}
		failed = errors.Join(failed, c.sync.Reconsider(ctx, asked...))
	}
	err := c.purgatory.Refetch(ctx, ref)
	if errors.Is(err, purgatory.ErrNoRepository) && len(ids) > 0 {
		err = nil // its announcement is asked for again
	}
	return errors.Join(failed, err)
}

// ConfirmDepartures has those repositories leave that are kept because most have no announcement, and
// returns their number; see [purgatory.Purgatory].
func (c Control) ConfirmDepartures() (departed int, err error) {
	err = c.recorded(func() error {
		departed = c.purgatory.ConfirmDepartures()
		return nil
	}, "confirm", "departures")
	return departed, err
}

// Maintain puts a repository in order now: what nothing names is gone when it returns. While it is in
// use it is waited for.
func (c Control) Maintain(ctx context.Context, ref graspsync.RepoRef) (done purgatory.Maintained, err error) {
	err = c.recorded(func() error {
		return whenUnused(ctx, func() (err error) {
			done, err = c.purgatory.Maintain(ctx, ref)
			return err
		})
	}, "maintain", ref.String())
	return done, err
}

// Describe changes how the server describes itself; what is nil stays as it is.
func (c Control) Describe(ctx context.Context, a rules.About) error {
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

// recorded carries out a command, with an entry before it: whoever is killed in the middle leaves a trace.
// Each method of Control that changes something is one.
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
	c.log.Info("command", "by", c.by, "command", command, "args", graspsync.Printable(fmt.Sprint(args)), "outcome", e.Outcome, "error", e.Error)
	c.entry(e)
	return err
}

func (c Control) entry(e admin.Entry) {
	if c.audit != nil {
		e.At = time.Now().UTC().Round(time.Millisecond)
		c.audit(e)
	}
}

// decide keeps a rule, and acts on it.
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

// act does what follows from other rules about some subjects.
func (c Control) act(ctx context.Context, subjects ...rules.Subject) error {
	if len(subjects) == 0 {
		return nil
	}
	var lifted []graspsync.Dependency
	for _, s := range subjects {
		lifted = append(lifted, rules.Lifted(s)) // if it is blocked by now, it is refused again
	}
	err := c.sync.Reconsider(ctx, lifted...)
	_, derr := c.dismiss(ctx)
	return errors.Join(err, derr, c.announce(ctx, subjects))
}

// dismiss lets go of what waits for git data and is blocked.
func (c Control) dismiss(ctx context.Context) (n int, err error) {
	return c.purgatory.Dismiss(ctx, func(ev graspsync.Event) bool {
		_, blocked := c.rules.Event(ev)
		return blocked
	})
}

// manySubjects is from how many on all announcements are read.
const manySubjects = 20

// announce has purgatory look at the repositories that rules are about: they may be ours no more, or
// again.
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
		c.purgatory.Arrived(ev)
	}
	return nil
}

// follow has the manager follow the bootstrap relays of now; before are those that it may follow.
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

// About has a name, a description and an icon of the server be those that were changed while it ran.
func (c Control) About(name, description, icon *string) {
	about := c.rules.About()
	for _, t := range []struct{ from, to *string }{{about.Name, name}, {about.Description, description}, {about.Icon, icon}} {
		if t.from != nil {
			*t.to = *t.from
		}
	}
}
