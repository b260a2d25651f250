// Command graspserver is a server for Git repositories on Nostr (GRASP-01): a relay, and the
// repositories that it announces. It syncs with the other relays and git servers that their
// announcements list (GRASP-02).
//
//	go run ./cmd/graspserver -domain grasp.example.com -data ./data -bootstrap wss://relay.ngit.dev
//
// The relay, its NIP-11 document and a page for browsers are at /, the repositories at
// /<npub>/<identifier>.git. A push must match the newest state event. Git 2.39 or later is
// required. /healthz and /readyz show the health. If -domain has a path, such as example.com/git,
// everything is below that path, and a proxy must not remove it. Servers under different paths of a
// host are different servers. They connect to each other through the proxy, whose address needs
// -allow-net if it is not public.
//
// The operator's pages have an address of their own (-admin-listen), by default on this machine: a
// status page, /metrics (Prometheus) and /status.json. With ?repo=all the latter lists every
// repository, and with ?event=, ?repo= or ?relay= it explains why one is stored or not. The log has
// a summary per minute. Each flag is also an environment variable: -allow-net is
// GRASPSERVER_ALLOW_NET. Commas separate lists. SIGTERM and SIGINT end the server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	standard "log"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/nearest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// options is the settings from flags and environment.
type options struct {
	listen         string
	adminListen    string
	domain         string
	also           []string
	data           string
	name           string
	description    string
	pubkey         string
	contact        string
	icon           string
	curation       string
	bootstrap      []graspsync.RelayURL
	allowNet       []netip.Prefix
	allowPlaintext bool
	graspLists     bool
	clientHeader   string
	proxies        []netip.Prefix
	maxOwnerBytes  int64
	maxBytes       int64
	maxPushBytes   int64
	fsckAllow      []string
	maxGitMemory   int64
	stagedBytes    int64
	grace          time.Duration
	maintenance    bool
	oneSided       bool
	batchWindow    time.Duration
	baseBackoff    time.Duration
	restartPause   time.Duration
	summaryEvery   time.Duration
	expiry         time.Duration
	stageHold      time.Duration
	huntBackoff    time.Duration
	perDomain      purgatory.Limit
	domainLimits   map[graspsync.HostPort]purgatory.Limit
	logFormat      string
	logLevel       slog.Level
	admins         []graspsync.PubKey
	rules          string
	reload         <-chan os.Signal // signals to read -rules again; not a flag
	version        bool
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "admin" {
		if err := command(context.Background(), os.Args[2:], os.Getenv, os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(os.Stderr, "graspserver admin: %v\n", err)
			os.Exit(1)
		}
		return
	}
	opt, err := parse(os.Args[1:], os.Getenv)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "graspserver: %v (-h shows all flags)\n", err)
		os.Exit(2)
	}
	if opt.version {
		fmt.Printf("graspserver %s (%s %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return
	}
	log := newLogger(os.Stderr, opt)
	adopt(log)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	opt.reload = hangups
	if err := run(ctx, opt, log, nil); err != nil && !errors.Is(err, context.Cause(ctx)) && !errors.Is(err, ctx.Err()) {
		log.Error("graspserver ended", "error", err)
		stop()
		os.Exit(1)
	}
	log.Info("graspserver ended")
}

// adopt writes lines of libraries that use the standard logger, such as the event database, to the log at level
// debug. The log then has one format.
func adopt(log *slog.Logger) {
	standard.SetFlags(0)
	standard.SetOutput(slog.NewLogLogger(log.Handler(), slog.LevelDebug).Writer())
}

func newLogger(to io.Writer, opt options) *slog.Logger {
	how := &slog.HandlerOptions{Level: opt.logLevel}
	if opt.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(to, how))
	}
	return slog.New(slog.NewTextHandler(to, how))
}

// usage is the first part of the text of -h.
const usage = `graspserver [flags]                runs a GRASP server
graspserver admin <command> ...    commands a running server (graspserver admin -h)

Each flag may also be set in the environment. -max-bytes, for example, is GRASPSERVER_MAX_BYTES.

`

// parse reads the command line. Other flags are read from the environment.
func parse(args []string, getenv func(string) string) (options, error) {
	var opt options
	fs := flag.NewFlagSet("graspserver", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // an error is printed without the list of all flags
	fs.StringVar(&opt.listen, "listen", "127.0.0.1:7334", "`address` to listen on")
	fs.StringVar(&opt.adminListen, "admin-listen", "", "`address` of the operator's pages, or \"off\" (default 127.0.0.1, port after -listen)")
	fs.StringVar(&opt.domain, "domain", "", "`host[:port][/path]` under which announcements list this server (default -listen)")
	fs.Func("also-domain", "other `host[:port][/path]` that announcements may list (repeat, or separate by commas)",
		list(&opt.also, func(s string) (string, error) {
			if _, err := nip34.ParseIdentity(s); err != nil {
				return "", errDomain
			}
			return s, nil
		}))
	fs.StringVar(&opt.name, "name", "", "`name` of this server (default -domain)")
	fs.StringVar(&opt.description, "description", "Nostr relay for Git repositories (NIP-34)", "`text` that describes this server")
	fs.Func("pubkey", "`npub` or hex key of the operator (NIP-11, NIP-05)", pubkey(&opt.pubkey))
	fs.StringVar(&opt.contact, "contact", "", "`URL` or address of the operator")
	fs.StringVar(&opt.icon, "icon", "", "`URL` of an icon of this server")
	fs.StringVar(&opt.curation, "curation", "", "`text` about the curation of events (NIP-11)")
	fs.StringVar(&opt.data, "data", "graspserver-data", "`folder` for repositories, events and records")
	fs.Func("bootstrap", "`URL` of a relay to follow always (repeat, or separate by commas)", list(&opt.bootstrap, graspsync.ParseRelayURL))
	fs.Func("allow-net", "`CIDR` of private addresses to connect to (repeat, or separate by commas)", list(&opt.allowNet, network))
	fs.BoolVar(&opt.graspLists, "grasp-lists", false, "accept lists of preferred GRASP servers (kind 10317) by any author")
	fs.BoolVar(&opt.allowPlaintext, "allow-plaintext", false, "connect to ws:// relays and http:// git servers")
	fs.Func("client-header", "`header` in which the proxy passes the client address, such as X-Real-IP", headerName(&opt.clientHeader))
	fs.Func("trusted-proxy", "`CIDR` of trusted proxies (repeat, or separate by commas; default all private addresses)", list(&opt.proxies, network))
	fs.Func("max-owner-bytes", "maximum `bytes` of the repositories of one owner (default no limit)", ceiling(&opt.maxOwnerBytes))
	fs.Func("max-bytes", "maximum `bytes` of all repositories (default no limit)", ceiling(&opt.maxBytes))
	fs.Var(positive(&opt.maxPushBytes, 512<<20, parseBytes), "max-push-bytes", "maximum `bytes` of one push")
	fs.Func("fsck-allow", "object `fault` to accept, such as hasDotgit (repeat, or separate by commas)",
		list(&opt.fsckAllow, func(s string) (string, error) { return s, nil }))
	fs.Var(positive(&opt.maxGitMemory, 2<<30, parseBytes), "max-git-memory", "memory of all git processes in `bytes`")
	fs.Var(positive(&opt.stagedBytes, 4<<30, parseBytes), "staged-bytes", "maximum `bytes` of pushes whose pull request has not arrived")
	fs.Var(positive(&opt.grace, 14*24*time.Hour, parseDuration), "grace", "`time` that unreferenced objects are kept")
	fs.BoolVar(&opt.maintenance, "maintenance", true, "repack repositories and delete unreferenced objects")
	fs.BoolVar(&opt.oneSided, "one-sided", false, "accept listed maintainers that have not accepted the role")
	fs.Var(positive(&opt.batchWindow, 5*time.Second, parseDuration), "batch-window", "`time` to gather changes before relays are asked")
	fs.Var(positive(&opt.baseBackoff, 5*time.Second, parseDuration), "base-backoff", "`time` to wait after a failed connection, doubling")
	fs.Var(positive(&opt.restartPause, time.Minute, parseDuration), "restart-pause", "minimum `time` between connections to a relay across a restart")
	fs.Var(positive(&opt.summaryEvery, time.Minute, parseDuration), "summary-every", "`time` between two summaries in the log")
	fs.Var(positive(&opt.expiry, 30*time.Minute, parseDuration), "expiry", "`time` that an event waits for its git data")
	fs.Var(positive(&opt.stageHold, 20*time.Minute, parseDuration), "stage-hold", "`time` that a push for a pull request waits for its event")
	fs.Var(positive(&opt.huntBackoff, 20*time.Second, parseDuration), "fetch-backoff", "`time` to wait after an incomplete fetch of git data, doubling")
	fs.Var(positive(&opt.perDomain.Concurrent, 5, parseNumber), "domain-concurrent", "`number` of concurrent requests to one git server")
	fs.Var(positive(&opt.perDomain.PerMinute, 30, parseNumber), "domain-rate", "`number` of requests per minute to one git server")
	opt.domainLimits = make(map[graspsync.HostPort]purgatory.Limit)
	fs.Func("domain-limit", "limits of one git server, as `host:concurrent,rate` (repeat, or separate by spaces)",
		func(s string) error { return limits(opt.domainLimits, s) })
	opt.logFormat = "text"
	fs.Func("log-format", "format of the log, `text or json` (default text)", func(s string) error {
		opt.logFormat = s
		if s != "text" && s != "json" {
			return errors.New("want text or json")
		}
		return nil
	})
	fs.Func("log-level", "minimum `level` of the log: debug, info, warn or error (default info)", func(s string) error {
		if opt.logLevel.UnmarshalText([]byte(s)) != nil {
			return errors.New("want debug, info, warn or error")
		}
		return nil
	})
	fs.BoolVar(&opt.version, "version", false, "print the version and exit")
	fs.Func("admin", "`npub` or hex key that may send commands (repeat, or separate by commas)", owners(&opt.admins))
	fs.StringVar(&opt.rules, "rules", "", "`file` of rules, read again on SIGHUP")
	if slices.ContainsFunc(args, isSecret) {
		return opt, errSecret
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Print(usage)
			fs.SetOutput(os.Stdout)
			fs.PrintDefaults()
		}
		if text, is := strings.CutSuffix(err.Error(), ": parse error"); is { // of a boolean flag
			err = errors.New(text + ": want true or false")
		}
		return opt, nearest.Flag(fs, err)
	}
	if fs.NArg() > 0 {
		return opt, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err := fromEnvironment(fs, getenv); err != nil {
		return opt, err
	}
	if len(opt.proxies) > 0 && opt.clientHeader == "" {
		opt.clientHeader = gitserve.DefaultClientHeader
	}
	if !opt.allowPlaintext {
		if i := slices.IndexFunc(opt.bootstrap, graspsync.RelayURL.Plaintext); i >= 0 {
			return opt, fmt.Errorf("-bootstrap %s: plaintext URL, needs -allow-plaintext", opt.bootstrap[i])
		}
	}
	if opt.domain == "" {
		host, _, err := net.SplitHostPort(opt.listen)
		if err != nil {
			return opt, fmt.Errorf("invalid value %q for flag -listen: want host:port, such as 127.0.0.1:7334", opt.listen)
		}
		if ip, err := netip.ParseAddr(host); host == "" || (err == nil && ip.IsUnspecified()) {
			return opt, fmt.Errorf("-domain is missing: announcements cannot list %s; set for example -domain grasp.example.com", opt.listen)
		}
		opt.domain = opt.listen
	}
	if _, err := nip34.ParseIdentity(opt.domain); err != nil {
		return opt, fmt.Errorf("invalid value %q for flag -domain: %w", opt.domain, errDomain)
	}
	return opt, nil
}

var errDomain = errors.New("want host[:port][/path], such as grasp.example.com")

// errSecret does not contain the key, because errors are printed and logged.
var errSecret = errors.New("secret key in a flag: use the npub, and replace the key because it may be known now")

// isSecret reports whether a text contains a secret key in the form of NIP-19.
func isSecret(s string) bool { return strings.Contains(strings.ToLower(s), "nsec1") }

// bare returns a -domain without scheme and trailing slash.
func bare(domain string) string {
	domain = strings.TrimRight(domain, "/")
	if _, rest, ok := strings.Cut(domain, "://"); ok {
		return rest
	}
	return domain
}

// number is a flag that must be above 0, because the configurations take 0 for the default.
type number[T ~int | ~int64] struct {
	to    *T
	parse func(string) (T, error)
}

func positive[T ~int | ~int64](to *T, usual T, parse func(string) (T, error)) number[T] {
	*to = usual
	return number[T]{to, parse}
}

func (n number[T]) Set(s string) error {
	v, err := n.parse(s)
	if err != nil {
		return err
	}
	if v <= 0 {
		return fmt.Errorf("want more than 0, such as %v", *n.to)
	}
	*n.to = v
	return nil
}

func (n number[T]) String() string {
	if n.to == nil {
		return "" // flag also calls it for the zero value
	}
	return fmt.Sprint(*n.to)
}

// ceiling is the value of a flag in bytes; 0 means no limit.
func ceiling(to *int64) func(string) error {
	return func(s string) error {
		v, err := parseBytes(s)
		if err == nil && v < 0 {
			err = errors.New("want 0 (no limit) or more")
		}
		*to = v
		return err
	}
}

// pubkey is the value of a flag with a public key.
func pubkey(to *string) func(string) error {
	return func(s string) error {
		k, err := nip34.ParsePubKey(s)
		if err != nil {
			return errKey
		}
		*to = k.String()
		return nil
	}
}

// headerName is the value of a flag with the name of a header.
func headerName(to *string) func(string) error {
	return func(s string) error {
		if !httpguts.ValidHeaderFieldName(s) {
			return errors.New("want the name of a header, such as X-Real-IP")
		}
		*to = s
		return nil
	}
}

func parseBytes(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errors.New("want a number of bytes without a unit, such as 2147483648 for 2 GiB")
	}
	return n, nil
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("want a time with a unit, such as 90s, 30m or 24h")
	}
	return d, nil
}

func parseNumber(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, errors.New("want a whole number, such as 5")
	}
	return n, nil
}

func network(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("want a CIDR such as 127.0.0.0/8 or ::1/128: %q", s)
	}
	return p, nil
}

// list is the value of a flag that appends to a list. Commas separate elements.
func list[T any](to *[]T, parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		for part := range strings.SplitSeq(s, ",") {
			v, err := parse(strings.TrimSpace(part))
			if err != nil {
				return err
			}
			*to = append(*to, v)
		}
		return nil
	}
}

var errLimit = errors.New("want host:concurrent,rate with numbers above 0, such as github.com:10,60")

// limits reads limits of git servers, such as "github.com:10,60".
func limits(to map[graspsync.HostPort]purgatory.Limit, s string) error {
	for field := range strings.FieldsSeq(s) {
		colon := strings.LastIndexByte(field, ':')
		concurrent, rate, ok := strings.Cut(field[colon+1:], ",")
		if colon < 0 || !ok {
			return errLimit
		}
		u, err := graspsync.ParseCloneURL(field[:colon])
		if err != nil {
			return err
		}
		var l purgatory.Limit
		l.Concurrent, _ = strconv.Atoi(concurrent)
		l.PerMinute, _ = strconv.Atoi(rate)
		if l.Concurrent <= 0 || l.PerMinute <= 0 {
			return errLimit
		}
		to[u.HostPort()] = l
	}
	return nil
}

// prefix is the prefix of environment variables.
const prefix = "GRASPSERVER_"

// fromEnvironment sets flags that are not given from the environment. A variable with the prefix
// and an unknown name is an error, because a misspelled setting would have no effect.
func fromEnvironment(fs *flag.FlagSet, getenv func(string) string) error {
	given := make(map[string]bool)
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var errs []error
	known := []string{adminKey}
	fs.VisitAll(func(f *flag.Flag) {
		name := prefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		known = append(known, name)
		if v := getenv(name); v != "" && !given[f.Name] {
			if isSecret(v) {
				errs = append(errs, fmt.Errorf("%s: %w", name, errSecret))
			} else if err := fs.Set(f.Name, v); err != nil {
				errs = append(errs, fmt.Errorf("invalid value %q for %s: %w", v, name, err))
			}
		}
	})
	for _, set := range os.Environ() {
		name, _, _ := strings.Cut(set, "=")
		if strings.HasPrefix(strings.ToUpper(name), prefix) && !slices.Contains(known, name) {
			errs = append(errs, fmt.Errorf("%.100q is an unknown setting, the nearest is %s", name, nearest.Of(strings.ToUpper(name), known)))
		}
	}
	return errors.Join(errs...)
}
