package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/rules"
)

// Control executes, logs and audits the commands of an operator. It is safe for concurrent use. Commands
// that use the SyncManager wait for its Run.
type Control struct {
	cfg          Config
	reloadFailed atomic.Bool // the last Reload failed

	reloading sync.Mutex // held by Reload
	// guarded by reloading: rules and bootstrap relays before the first failed Reload
	rulesBefore     []rules.Rule
	bootstrapBefore []graspsync.RelayURL
}

var _ admin.Operator = (*Control)(nil)

// New returns the Control of a server. The error wraps [ErrConfig].
func New(cfg Config) (*Control, error) {
	if cfg.Rules == nil || cfg.Sync == nil || cfg.Store == nil || cfg.Remove == nil || cfg.Purgatory == nil || cfg.Repositories == nil || cfg.Lists == nil {
		return nil, fmt.Errorf("%w: a required field is nil", ErrConfig)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Control{cfg: cfg}, nil
}

// Collector returns the metric rules_reload_failed.
func (c *Control) Collector(namespace string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: "rules", Name: "reload_failed",
		Help: "1 if the last reload of the rules file failed, otherwise 0.",
	}, func() float64 {
		if c.reloadFailed.Load() {
			return 1
		}
		return 0
	})
}

// ErrNothingToPurge means that nothing is stored of a subject of purge or remove.
var ErrNothingToPurge = errors.New("nothing is stored")

// Rules returns the rules.
func (c *Control) Rules() *rules.RuleSet { return c.cfg.Rules }

// Reload replaces the rules of the file by those that read returns, unless it fails. After another error
// they are in force, and the next Reload repeats failed actions such as disconnecting a relay.
func (c *Control) Reload(ctx context.Context, by string, read func() (rules.File, error)) error {
	return c.record(by, "reload", nil, func() (err error) {
		c.reloading.Lock() // a file that was read earlier could be outdated
		defer c.reloading.Unlock()
		if !c.reloadFailed.Load() {
			c.rulesBefore, c.bootstrapBefore = c.cfg.Rules.All(), c.bootstrap()
		}
		defer func() { c.reloadFailed.Store(err != nil) }()
		f, err := read()
		if err != nil {
			return fmt.Errorf("rules unchanged: %w", err)
		}
		c.cfg.Rules.SetFile(f)
		err = errors.Join(c.applyRules(ctx, changedSubjects(c.rulesBefore, c.cfg.Rules.All())...), c.updateBootstrap(ctx, c.bootstrapBefore))
		if err != nil {
			return fmt.Errorf("new rules in force, applying them to what is connected and stored failed, reload to repeat that: %w", err)
		}
		return nil
	})
}

func changedSubjects(before, after []rules.Rule) (out []rules.Subject) {
	actions := make(map[rules.Subject]rules.Action)
	for _, r := range before {
		actions[r.Subject] = r.Action
	}
	for _, r := range after {
		if actions[r.Subject] != r.Action {
			out = append(out, r.Subject)
		}
		delete(actions, r.Subject)
	}
	for s := range actions {
		out = append(out, s)
	}
	return out
}

func (c *Control) bootstrap() []graspsync.RelayURL { return c.cfg.Rules.Bootstrap(c.cfg.Bootstrap) }

// record records a command before and after it, because the process may be killed during it.
func (c *Control) record(by, command string, args []string, do func() error) error {
	for len(args) > 0 && args[len(args)-1] == "" { // no reason was given
		args = args[:len(args)-1]
	}
	e := admin.Entry{By: by, Command: command, Args: args, Outcome: admin.Begun}
	c.audit(e)
	err := do()
	if e.Outcome = admin.Done; err != nil {
		e.Outcome, e.Error = admin.Failed, graspsync.Printable(err.Error())
	}
	c.cfg.Logger.Info("command", "admin", by, "command", command, "args", graspsync.Printable(fmt.Sprint(args)), "outcome", e.Outcome, "error", e.Error)
	c.audit(e)
	return err
}

func (c *Control) audit(e admin.Entry) {
	if c.cfg.Audit != nil {
		e.At = time.Now().UTC().Round(time.Millisecond)
		c.cfg.Audit(e)
	}
}

func (c *Control) applyRules(ctx context.Context, subjects ...rules.Subject) error {
	if len(subjects) == 0 {
		return nil
	}
	var lifted []graspsync.Dependency
	for _, s := range subjects {
		lifted = append(lifted, rules.OnRuleRemoved(s)) // events that are still blocked are refused again
	}
	err := c.cfg.Sync.RulesChanged(ctx, lifted...)
	_, derr := c.dropBlocked(ctx)
	return errors.Join(err, derr, c.notifyAnnouncements(ctx, subjects))
}

func (c *Control) dropBlocked(ctx context.Context) (n int, err error) {
	return c.cfg.Purgatory.Drop(ctx, func(ev graspsync.Event) bool {
		_, blocked := c.cfg.Rules.EventBlock(ev)
		return blocked
	})
}

// notifyAnnouncements passes announcements to purgatory, whose repositories may go out of service or
// return.
func (c *Control) notifyAnnouncements(ctx context.Context, subjects []rules.Subject) error {
	filter := nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}}
	for _, s := range subjects {
		if k, ok := s.PubKey(); ok {
			filter.Authors = append(filter.Authors, k.String())
		}
	}
	if len(filter.Authors) == 0 {
		return nil
	}
	for ev, err := range c.cfg.Store.Events(ctx, filter) {
		if err != nil {
			return fmt.Errorf("reading announcements: %w", err)
		}
		c.cfg.Purgatory.NotifyStored(ev)
	}
	return nil
}

func (c *Control) updateBootstrap(ctx context.Context, before []graspsync.RelayURL) error {
	now := c.bootstrap()
	var errs []error
	for _, u := range now {
		if !slices.Contains(before, u) {
			errs = append(errs, c.cfg.Sync.AddBootstrap(ctx, u))
		}
	}
	for _, u := range before {
		if !slices.Contains(now, u) {
			errs = append(errs, c.cfg.Sync.RemoveBootstrap(ctx, u))
		}
	}
	return errors.Join(errs...)
}
