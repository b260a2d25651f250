package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/internal/nearest"
	"github.com/graspsync/graspsync/rules"
)

// command is a command in text form.
type command struct {
	usage       string
	least, most int // number of arguments; the last one may have several words if it is [reason] or <text>
	do          func(ctx context.Context, c Control, args []string) (any, error)
}

// commands are the commands of [Control.Do].
var commands = map[string]command{
	"block": {"block relay|author|repository|event <which> [reason]", 2, 3, aboutSubject(Control.Block)},
	"allow": {"allow relay|author|repository|event <which> [reason]", 2, 3, aboutSubject(Control.Allow)},
	"unset": {"unset relay|author|repository|event <which>", 2, 2, aboutSubject(func(c Control, ctx context.Context, s rules.Subject, _ string) error { return c.Unset(ctx, s) })},
	"purge": {"purge author|repository|event <which>", 2, 2, purgesSubject(func(c Control, ctx context.Context, s rules.Subject, _ string) (Purged, error) {
		return c.Purge(ctx, s)
	})},
	"remove":   {"remove author|repository|event <which> [reason]", 2, 3, purgesSubject(Control.Remove)},
	"retry":    {"retry <relay>", 1, 1, aboutRelay(0, Control.Retry)},
	"resync":   {"resync relay|repository <which>", 2, 2, resync},
	"refetch":  {"refetch <repository>", 1, 1, aboutRepository(Control.Refetch)},
	"maintain": {"maintain <repository>", 1, 1, maintain},
	"confirm": {"confirm departures", 1, 1, func(_ context.Context, c Control, args []string) (any, error) {
		if args[0] != "departures" {
			return nil, fmt.Errorf("%w: want: confirm departures", admin.ErrUsage)
		}
		n, err := c.ConfirmDepartures()
		return fmt.Sprintf("%d repositories without an announcement go out of service. Each returns if it is announced before its folder is deleted.", n), err
	}},
	"bootstrap": {"bootstrap add|remove <relay>", 2, 2, bootstrap},
	"describe":  {"describe name|description|icon <text>", 2, 2, describe},
	"rules": {"rules", 0, 0, func(_ context.Context, c Control, _ []string) (any, error) {
		return append([]rules.Rule{}, c.rules.All()...), nil
	}},
}

// Commands implements [admin.Operator].
func (c Control) Commands() []string { return slices.Sorted(maps.Keys(commands)) }

// Usage returns the usage of each command, sorted.
func Usage() (out []string) {
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		out = append(out, commands[name].usage)
	}
	return out
}

// Unknown returns the error of a command that does not exist. It names the nearest command and wraps
// [admin.ErrUsage].
func Unknown(name string) error {
	all := slices.Sorted(maps.Keys(commands))
	return fmt.Errorf("%w: %q, the nearest is %q, commands: %s", admin.ErrUsage, graspsync.Clip(name, 50), nearest.Of(name, all), strings.Join(all, ", "))
}

// Join joins the words of a reason or text at the end of args, so that it needs no quotes on a command line.
func Join(name string, args []string) []string {
	cmd := commands[name]
	if n := cmd.most; len(args) > n && (strings.HasSuffix(cmd.usage, "[reason]") || strings.HasSuffix(cmd.usage, "<text>")) {
		return append(slices.Clone(args[:n-1]), strings.Join(args[n-1:], " "))
	}
	return args
}

// Do implements [admin.Operator]. by replaces the name of the operator unless it is empty.
// [rules.ParseSubject] defines the spellings of relays, authors, repositories and events. An
// unknown or invalid command changes nothing and is not recorded.
func (c Control) Do(ctx context.Context, by, name string, args ...string) (any, error) {
	if by != "" {
		c.by = by
	}
	cmd, ok := commands[name]
	if !ok {
		return nil, Unknown(name)
	}
	args = Join(name, args)
	if len(args) < cmd.least || len(args) > cmd.most {
		return nil, fmt.Errorf("%w: want: %s", admin.ErrUsage, cmd.usage)
	}
	return cmd.do(ctx, c, args)
}

// reason returns the optional reason in args, or "".
func reason(args []string) string {
	if len(args) > 2 {
		return args[2]
	}
	return ""
}

func aboutSubject(do func(Control, context.Context, rules.Subject, string) error) func(context.Context, Control, []string) (any, error) {
	return func(ctx context.Context, c Control, args []string) (any, error) {
		s, err := rules.ParseSubject(args[0], args[1])
		if err != nil {
			return nil, err
		}
		if err := do(c, ctx, s, reason(args)); err != nil {
			return nil, err
		}
		if r, is := c.rules.Rule(s); is { // after unset the rule of the file
			return r, nil
		}
		return nil, nil //nolint:nilnil // nothing is said of it, which is no error
	}
}

func purgesSubject(do func(Control, context.Context, rules.Subject, string) (Purged, error)) func(context.Context, Control, []string) (any, error) {
	return func(ctx context.Context, c Control, args []string) (any, error) {
		s, err := rules.ParseSubject(args[0], args[1])
		if err != nil {
			return nil, err
		}
		return do(c, ctx, s, reason(args))
	}
}

func aboutRelay(at int, do func(Control, context.Context, graspsync.RelayURL) error) func(context.Context, Control, []string) (any, error) {
	return func(ctx context.Context, c Control, args []string) (any, error) {
		u, err := graspsync.ParseRelayURL(args[at])
		if err != nil {
			return nil, err
		}
		return nil, do(c, ctx, u)
	}
}

func aboutRepository(do func(Control, context.Context, graspsync.RepoRef) error) func(context.Context, Control, []string) (any, error) {
	return func(ctx context.Context, c Control, args []string) (any, error) {
		ref, err := rules.ParseRepository(args[len(args)-1])
		if err != nil {
			return nil, err
		}
		return nil, do(c, ctx, ref)
	}
}

func resync(ctx context.Context, c Control, args []string) (any, error) {
	switch args[0] {
	case "relay":
		return aboutRelay(1, Control.ResyncRelay)(ctx, c, args)
	case "repository":
		return aboutRepository(Control.ResyncRepository)(ctx, c, args)
	}
	return nil, fmt.Errorf("%w: want: resync relay|repository <which>", admin.ErrUsage)
}

func maintain(ctx context.Context, c Control, args []string) (any, error) {
	ref, err := rules.ParseRepository(args[0])
	if err != nil {
		return nil, err
	}
	done, err := c.Maintain(ctx, ref)
	if err != nil {
		return nil, err
	}
	return maintained{
		done.Packs, done.Removed, done.LooseRefs, done.Freed, done.Pruned, done.Unnamed, done.Locked.Seconds(),
	}, nil
}

// maintained is a [purgatory.Maintained] with its units.
type maintained struct {
	Packs             int     `json:"packs"`
	RemovedPacks      int     `json:"removed_packs"`
	LooseRefs         int     `json:"loose_refs"`
	FreedBytes        int64   `json:"freed_bytes"`
	Pruned            bool    `json:"pruned"`
	UnreferencedBytes int64   `json:"unreferenced_bytes"`
	LockedSeconds     float64 `json:"locked_seconds"`
}

func bootstrap(ctx context.Context, c Control, args []string) (any, error) {
	switch args[0] {
	case "add":
		return followed(c)(aboutRelay(1, Control.AddBootstrap)(ctx, c, args))
	case "remove":
		return followed(c)(aboutRelay(1, Control.RemoveBootstrap)(ctx, c, args))
	}
	return nil, fmt.Errorf("%w: want: bootstrap add|remove <relay>", admin.ErrUsage)
}

// followed returns the present bootstrap relays as result.
func followed(c Control) func(any, error) (any, error) {
	return func(_ any, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		return struct {
			Bootstrap []graspsync.RelayURL `json:"bootstrap"`
		}{append([]graspsync.RelayURL{}, c.rules.Bootstrap(c.bootstrap)...)}, nil
	}
}

func describe(ctx context.Context, c Control, args []string) (any, error) {
	var a rules.ServerInfo
	switch args[0] {
	case "name":
		a.Name = &args[1]
	case "description":
		a.Description = &args[1]
	case "icon":
		a.Icon = &args[1]
	default:
		return nil, fmt.Errorf("%w: want: describe name|description|icon <text>", admin.ErrUsage)
	}
	if err := c.Describe(ctx, a); err != nil {
		return nil, err
	}
	return c.rules.About(), nil
}
