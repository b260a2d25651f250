// Command graspserver is a server for Git repositories on Nostr (GRASP-01), which syncs with other
// servers (GRASP-02). docs/operating.md describes it.
//
//	graspserver try                          # a server with a sample repository, for a look
//	graspserver -domain grasp.example.com -data ./data -bootstrap wss://relay.ngit.dev
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/graspsync/graspsync"
)

type program struct {
	Serve   serveCommand   `cmd:"" default:"withargs" help:"Run a server (default)."`
	Check   checkCommand   `cmd:"" help:"Check settings, name, proxy and clock of a running server."`
	Config  configCommand  `cmd:"" help:"Print each setting with its value and source."`
	Try     tryCommand     `cmd:"" help:"Run a server with a sample repository, and delete it afterwards."`
	Explain explainCommand `cmd:"" help:"Ask a running server about an event, a repository or a relay."`
	Admin   adminCommand   `cmd:"" help:"Send a command to a running server."`
	Version struct{}       `cmd:"" help:"Print the version."`
	Help    struct{}       `cmd:"" help:"Print this help, or that of a command."`

	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`
}

const description = `A server for Git repositories on Nostr (GRASP): a relay with the repositories that it announces.

Examples:

    graspserver try
    graspserver -domain grasp.example.com -data ./data -bootstrap wss://relay.ngit.dev
    graspserver check -config /etc/graspserver.conf

Each flag is also an environment variable (-max-bytes is GRASPSERVER_MAX_BYTES) and a line of the -config
file (max-bytes = 10G). -domain and --domain are the same. Commas separate lists.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func execute(ctx context.Context, args, environ []string, out, errs io.Writer) int {
	var p program
	command, err := parse(&p, args, environ, out)
	usage := err != nil
	if err == nil {
		command.BindTo(ctx, (*context.Context)(nil))
		command.BindTo(out, (*io.Writer)(nil))
		err = command.Run()
	}
	switch {
	case err == nil:
		return 0
	case usage:
		fmt.Fprintf(errs, "graspserver: %v (graspserver help shows all settings)\n", err)
		return 2
	}
	fmt.Fprintf(errs, "graspserver %s: %v\n", command.Selected().Name, err)
	return 1
}

func parse(p *program, args, environ []string, out io.Writer) (*kong.Context, error) {
	if slices.ContainsFunc(args, isSecret) {
		return nil, errSecret
	}
	set := readEnvironment(environ)
	parser, err := kong.New(p, append(parsers(), kong.Name("graspserver"), kong.Description(description), kong.Writers(out, out),
		kong.Vars{"version": fmt.Sprintf("graspserver %s (%s %s/%s)", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)},
		kong.Resolvers(set), kong.Configuration(set.readFile), kong.Bind(set), kong.Help(help), kong.ValueFormatter(withDefault),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 110}))...)
	if err != nil {
		return nil, err
	}
	command, err := parser.Parse(longFlags(args))
	var invalid *kong.ParseError
	if errors.As(err, &invalid) && invalid.Context.Error == nil {
		err = set.explain(err)
	}
	return command, err
}

// longFlags returns a command line with --domain for -domain, and flags for help and version.
func longFlags(args []string) []string {
	args = slices.Clone(args)
	for i, a := range args {
		if len(a) > 2 && a[0] == '-' && a[1] != '-' {
			args[i] = "-" + a
		}
	}
	if len(args) > 0 && args[0] == "version" {
		return []string{"--version"}
	}
	if len(args) > 0 && args[0] == "help" {
		return append(args[1:], "--help")
	}
	return args
}

func help(o kong.HelpOptions, ctx *kong.Context) error {
	if ctx.Selected() == nil {
		ctx.Model.Flags = append(ctx.Model.Flags, ctx.Model.Children[0].Flags...)
	}
	return kong.DefaultHelpPrinter(o, ctx)
}

func withDefault(v *kong.Value) string {
	if v.HasDefault && v.Default != "0" {
		return strings.TrimSuffix(v.Help, ".") + " (default " + v.Default + ")."
	}
	return v.Help
}

type configCommand struct {
	Options options `embed:""`
}

func (c *configCommand) Run(command *kong.Context, set settings, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range command.Selected().Flags {
		value, source := f.Default, "default"
		if v, ok := set.of(f.Name); ok {
			value, source = v.value, v.source
		}
		if slices.ContainsFunc(command.Path, func(p *kong.Path) bool { return p.Flag == f && !p.Resolved }) {
			value, source = fmt.Sprint(f.Target.Interface()), "flag"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Name, graspsync.Printable(value), source)
	}
	return table.Flush()
}
