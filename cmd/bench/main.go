package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
)

type row struct {
	name    string // value of -row
	work    string // title of the table
	measure func(*run) error
}

func rows() []row {
	return []row{
		{"catchup", "First catch-up from one khatru relay" + asNew, measureCatchUp},
		{"present", "Catch-up by NIP-77 where nearly everything is present" + asNew, measurePresent},
		{"hubmemory", "Memory beyond the store with 10,000 repositories of 50 issues each on 5 of 500 relays, all followed", measureHubMemory},
		{"live", "Live: 100 connections, 100 events a second, each on 5 of them, signatures checked", measureLive},
		{"idle", "Idle: 500 connections for five minutes", measureIdle},
		{"restart", "Restart with 500,000 stored events and 20,000 repositories on 5 of 100 relays each", measureRestart},
		{"push", "push of 1 commit to a repository of 10,000, until its events are served", measurePush},
		{"hub", "First sync with the largest hub of November 2026, events alone", fieldRow},
		{"hubgit", "The same, with the git data of its repositories from five servers, without a throttle", fieldGitRow},
	}
}

// roles returns the roles of this command in a separate process, by environment variable.
func roles() map[string]func(said string) error {
	return map[string]func(string) error{
		relayProcess: func(said string) error { return serveRelay(said, os.Stdin, os.Stdout) },
		crowdProcess: func(string) error { return serveCrowd(os.Stdin, os.Stdout) },
		fieldProcess: serveField,
	}
}

func main() {
	run := func() error { return command(os.Args[1:]) }
	for name, role := range roles() {
		if said := os.Getenv(name); said != "" {
			run = func() error { return role(said) }
		}
	}
	log.SetOutput(io.Discard) // hides messages of eventstore about creating a database
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command runs the measurements in its arguments and prints them. Slow results are not errors.
func command(args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "measure small amounts without targets (a minute or two, for CI)")
	only := flags.String("row", "", "measure these `rows` only, with commas between them")
	count := flags.Int("count", 1, "repeat compared measurements `n` times and print medians")
	profile := flags.String("cpuprofile", "", "write a CPU profile of this process to `file`")
	cache := flags.String("cache", defaultCache(), "folder in which data sets are kept")
	flags.Usage = func() {
		out := flags.Output()
		fmt.Fprintln(out, "bench measures these rows, or the rows named by -row, and prints them with targets:")
		for _, r := range rows() {
			fmt.Fprintf(out, "  %-12s%s\n", r.name, r.work)
		}
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *profile != "" {
		file, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	chosen, err := choose(rows(), *only)
	if err != nil {
		return err
	}
	var failed []error
	for _, r := range chosen {
		if len(chosen) > 1 && *profile == "" { // in its own process, since the memory of one row is freed during the next
			if err := again(ctx, append(args, "-row", r.name)); err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", r.name, err))
			}
			continue
		}
		fmt.Fprintf(os.Stderr, "bench: measuring %s\n", r.name)
		one := &run{ctx: ctx, quick: *quick, count: *count, cache: *cache}
		if err := one.measure(r); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", r.name, err))
		}
		fmt.Print(one.table(r))
	}
	return errors.Join(failed...)
}

// again runs this command in its own process.
func again(ctx context.Context, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

func choose(all []row, names string) ([]row, error) {
	if names == "" {
		return all, nil
	}
	var chosen []row
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(r row) bool { return r.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no row %q, but %s", name, listed(all))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func listed(all []row) string {
	var names []string
	for _, r := range all {
		names = append(names, r.name)
	}
	return strings.Join(names, ", ")
}

func defaultCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "graspsync-bench")
}
