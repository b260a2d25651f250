package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/rules"
)

// command is one that comes as text.
type command struct {
	usage       string
	least, most int // of its arguments
	do          func(ctx context.Context, c Control, args []string) (any, error)
}

// commands are what [Control.Do] carries out.
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

// Usage says how each command is spelled, in order.
func Usage() (out []string) {
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		out = append(out, commands[name].usage)
	}
	return out
}

// Do implements [admin.Operator]: by commands, and not whoever the Control is in the hands of, unless
// that is empty. Relays, authors, repositories and events are spelled as [rules.ParseSubject] reads
// them. What is no command, or can't be read, changes nothing and is not recorded.
func (c Control) Do(ctx context.Context, by, name string, args ...string) (any, error) {
	if by != "" {
		c.by = by
	}
	cmd, ok := commands[name]
	if !ok {
		return nil, fmt.Errorf("%w: %q; there are: %s", admin.ErrUsage, graspsync.Clip(name, 50), strings.Join(c.Commands(), ", "))
	}
	if len(args) < cmd.least || len(args) > cmd.most {
		return nil, fmt.Errorf("%w: want: %s", admin.ErrUsage, cmd.usage)
	}
	return cmd.do(ctx, c, args)
}

// reason is the argument after those that a command must have.
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
		if r, is := c.rules.Rule(s); is { // after unset that of the file
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
	return c.Maintain(ctx, ref)
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

// followed answers with the bootstrap relays of now.
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
	var a rules.About
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
