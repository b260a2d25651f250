package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/rules"
	relaysync "github.com/graspsync/graspsync/sync"
)

type command struct {
	usage string // [reason] is optional, and may have several words
	// read parses the arguments, and spells the name of a subject canonically.
	read func(args []string) (run, error)
}

var errUsage = errors.New("not the usage")

type run = func(ctx context.Context, c *Control, by string) (any, error)

var commands = map[string]command{
	"block":    {"block relay|author|repository|event <which> [reason]", onSubject(set(rules.Block))},
	"allow":    {"allow relay|author|repository|event <which> [reason]", onSubject(set(rules.Allow))},
	"unset":    {"unset relay|author|repository|event <which>", onSubject((*Control).unset)},
	"purge":    {"purge author|repository|event <which>", onSubject(func(c *Control, ctx context.Context, r rules.Rule) (any, error) { return c.purge(ctx, r.Subject) })},
	"remove":   {"remove author|repository|event <which> [reason]", onSubject((*Control).remove)},
	"retry":    {"retry <relay>", func(args []string) (run, error) { return onRelay(args[0], (*relaysync.SyncManager).Retry) }},
	"resync":   {"resync relay|repository <which>", resync},
	"refetch":  {"refetch <repository>", func(args []string) (run, error) { return onRepository(args[0], (*Control).refetch) }},
	"maintain": {"maintain <repository>", func(args []string) (run, error) { return onRepository(args[0], (*Control).maintain) }},
	"confirm":  {"confirm departures", confirm},
	commandRules: {"rules", func([]string) (run, error) {
		return func(_ context.Context, c *Control, _ string) (any, error) {
			return append([]rules.Rule{}, c.cfg.Rules.All()...), nil
		}, nil
	}},
}

// commandRules changes nothing and is not recorded.
const commandRules = "rules"

// Commands implements [admin.Operator].
func (c *Control) Commands() []string { return slices.Sorted(maps.Keys(commands)) }

// Usage returns the usage of each command.
func Usage() (out []string) {
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		out = append(out, commands[name].usage)
	}
	return out
}

// UnknownCommand returns the error of an unknown command, which wraps [admin.ErrUsage].
func UnknownCommand(name string) error {
	return fmt.Errorf("%w: %q, commands: %s", admin.ErrUsage, graspsync.Clip(name, 50), strings.Join(slices.Sorted(maps.Keys(commands)), ", "))
}

// JoinReason joins the words of a reason at the end of args.
func JoinReason(name string, args []string) []string {
	usage := commands[name].usage
	if n := strings.Count(usage, " "); len(args) > n && strings.HasSuffix(usage, "[reason]") {
		return append(slices.Clone(args[:n-1]), strings.Join(args[n-1:], " "))
	}
	return args
}

// Do implements [admin.Operator]. [rules.ParseSubject] reads subjects. An invalid command is not recorded.
//
// block stops accepting, requesting and connecting to a subject. Stored events are served until they are
// purged. allow exempts a subject from rules of the file and of wider scope; unset removes a rule or
// fails with [rules.ErrNoRule]. They return the rule that now applies. purge returns [Purged]; remove
// blocks first.
//
// retry dials a relay now. resync compares history with a relay, or requests a repository, again.
// refetch fetches missing git data now. maintain repacks a repository. confirm retires the repositories that stay in service only because
// most repositories have no announcement.
func (c *Control) Do(ctx context.Context, by, name string, args ...string) (result any, err error) {
	cmd, ok := commands[name]
	if !ok {
		return nil, UnknownCommand(name)
	}
	args = slices.Clone(JoinReason(name, args))
	do, err := run(nil), errUsage
	most := strings.Count(cmd.usage, " ") // the last one is optional if it is in brackets
	if n := len(args); n == most || n == most-strings.Count(cmd.usage, "[") {
		do, err = cmd.read(args)
	}
	switch {
	case errors.Is(err, errUsage):
		return nil, fmt.Errorf("%w: want: %s", admin.ErrUsage, cmd.usage)
	case err != nil:
		return nil, err
	}
	if name == commandRules {
		return do(ctx, c, by)
	}
	err = c.record(by, name, args, func() (err error) {
		result, err = do(ctx, c, by)
		return err
	})
	return result, err
}

func onSubject(do func(*Control, context.Context, rules.Rule) (any, error)) func([]string) (run, error) {
	return func(args []string) (run, error) {
		s, err := rules.ParseSubject(args[0], args[1])
		args[1] = s.Name
		r := rules.Rule{Subject: s}
		if len(args) > 2 {
			r.Reason = args[2]
		}
		return func(ctx context.Context, c *Control, by string) (any, error) {
			r.By = by
			return do(c, ctx, r)
		}, err
	}
}

func onRelay(text string, do func(*relaysync.SyncManager, context.Context, graspsync.RelayURL) error) (run, error) {
	u, err := graspsync.ParseRelayURL(text)
	return func(ctx context.Context, c *Control, _ string) (any, error) { return nil, do(c.cfg.Sync, ctx, u) }, err
}

func onRepository(text string, do func(*Control, context.Context, graspsync.RepoRef) (any, error)) (run, error) {
	ref, err := rules.ParseRepository(text)
	return func(ctx context.Context, c *Control, _ string) (any, error) { return do(c, ctx, ref) }, err
}

func set(action rules.Action) func(*Control, context.Context, rules.Rule) (any, error) {
	return func(c *Control, ctx context.Context, r rules.Rule) (any, error) {
		r.Action = action
		return c.afterChange(ctx, r.Subject, c.cfg.Rules.Set(ctx, r))
	}
}

func (c *Control) unset(ctx context.Context, r rules.Rule) (any, error) {
	return c.afterChange(ctx, r.Subject, c.cfg.Rules.Unset(ctx, r.Subject))
}

// afterChange applies a changed rule, and returns the rule that now holds for the subject.
func (c *Control) afterChange(ctx context.Context, s rules.Subject, err error) (any, error) {
	if err == nil {
		err = c.applyRules(ctx, s)
	}
	if r, is := c.cfg.Rules.Rule(s); is && err == nil {
		return r, nil
	}
	return nil, err
}

func resync(args []string) (run, error) {
	switch args[0] {
	case "relay":
		return onRelay(args[1], (*relaysync.SyncManager).Resync)
	case "repository":
		return onRepository(args[1], func(c *Control, ctx context.Context, ref graspsync.RepoRef) (any, error) {
			return nil, c.cfg.Sync.ResyncRepository(ctx, ref)
		})
	}
	return nil, errUsage
}

func (c *Control) refetch(ctx context.Context, ref graspsync.RepoRef) (any, error) {
	ids, failed := c.cfg.Purgatory.ForgetExpired(ctx, ref)
	if len(ids) > 0 { // also after an error, because ForgetExpired returns each id once
		asked := make([]graspsync.Dependency, len(ids))
		for i, id := range ids {
			asked[i] = graspsync.OnOperatorRequest(id)
		}
		failed = errors.Join(failed, c.cfg.Sync.RulesChanged(ctx, asked...))
	}
	err := c.cfg.Purgatory.Refetch(ctx, ref)
	if errors.Is(err, purgatory.ErrNoRepository) && len(ids) > 0 {
		err = nil // its announcement is requested again
	}
	return nil, errors.Join(failed, err)
}

func (c *Control) maintain(ctx context.Context, ref graspsync.RepoRef) (any, error) {
	var done purgatory.Maintained
	err := whenUnused(ctx, func() (err error) {
		done, err = c.cfg.Purgatory.Maintain(ctx, ref)
		return err
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"packs": done.Packs, "freed_bytes": done.Freed, "pruned": done.Pruned, "unreferenced_bytes": done.Unnamed,
	}, nil
}

func confirm(args []string) (run, error) {
	if args[0] != "departures" {
		return nil, errUsage
	}
	return func(_ context.Context, c *Control, _ string) (any, error) {
		return fmt.Sprintf("%d repositories without an announcement go out of service. Each returns if it is announced before its folder is deleted.",
			c.cfg.Purgatory.ConfirmDepartures()), nil
	}, nil
}
