package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/dustin/go-humanize"
	"golang.org/x/net/http/httpguts"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/nearest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

type options struct {
	Config kong.ConfigFlag `group:"Main settings:" env:"GRASPSERVER_CONFIG" placeholder:"FILE" help:"File of settings, one \"name = value\" per line."`

	Domain       string               `group:"Main settings:" placeholder:"HOST" help:"Address in announcements, host[:port][/path], default -listen."`
	Data         string               `group:"Main settings:" default:"graspserver-data" placeholder:"FOLDER" help:"Folder for repositories, events and records."`
	Bootstrap    []graspsync.RelayURL `group:"Main settings:" placeholder:"URL" help:"Relays that are always followed."`
	Admin        []graspsync.PubKey   `group:"Main settings:" placeholder:"NPUB" help:"Keys that may send commands, as npub or hex."`
	ClientHeader string               `group:"Main settings:" placeholder:"NAME" help:"Header with the client address from your proxy, such as X-Real-IP."`

	Name        string           `group:"Name and description:" placeholder:"TEXT" help:"Name of this server, default -domain."`
	Description string           `group:"Name and description:" default:"Nostr relay for Git repositories (NIP-34)" placeholder:"TEXT" help:"Description of this server."`
	Pubkey      graspsync.PubKey `group:"Name and description:" placeholder:"NPUB" help:"Key of the operator, as npub or hex."`
	Contact     string           `group:"Name and description:" placeholder:"URL" help:"URL or address of the operator."`
	Icon        string           `group:"Name and description:" placeholder:"URL" help:"Icon of this server."`
	Curation    string           `group:"Name and description:" placeholder:"TEXT" help:"Curation of events (NIP-11)."`
	AlsoDomain  []string         `group:"Name and description:" placeholder:"HOST" help:"Older domains that announcements may list."`

	MaxBytes         int64         `group:"Limits:" default:"0" placeholder:"SIZE" help:"Maximum size of all repositories, 0 for no limit."`
	MaxOwnerBytes    int64         `group:"Limits:" default:"0" placeholder:"SIZE" help:"Maximum size of one owner's repositories, 0 for no limit."`
	MaxPushBytes     int64         `group:"Limits:" default:"512MiB" placeholder:"SIZE" help:"Maximum size of one push."`
	MaxGitMemory     int64         `group:"Limits:" default:"2GiB" placeholder:"SIZE" help:"Memory of all git processes."`
	StagedBytes      int64         `group:"Limits:" default:"4GiB" placeholder:"SIZE" help:"Maximum size of pushes whose pull request has not arrived."`
	DomainConcurrent int           `group:"Limits:" default:"5" placeholder:"NUMBER" help:"Concurrent requests to one git server."`
	DomainRate       int           `group:"Limits:" default:"30" placeholder:"NUMBER" help:"Requests per minute to one git server."`
	DomainLimit      []domainLimit `group:"Limits:" sep:" " placeholder:"HOST:N,N" help:"Limits of one git server, host:concurrent,rate; spaces separate several."`
	Rules            string        `group:"Limits:" placeholder:"FILE" help:"File of rules, read again on SIGHUP."`

	LogFormat    string        `group:"Log:" enum:"text,json" default:"text" placeholder:"FORMAT" help:"Format of the log, text or json."`
	LogLevel     string        `group:"Log:" enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"Lowest level in the log: debug, info, warn, error."`
	SummaryEvery time.Duration `group:"Log:" default:"1m" placeholder:"TIME" help:"Time between two summaries, which appear only after changes."`

	Listen         string         `group:"Advanced:" default:"127.0.0.1:7334" placeholder:"ADDRESS" help:"Address to listen on."`
	AdminListen    string         `group:"Advanced:" placeholder:"ADDRESS" help:"Address of the status page or off, default port after -listen."`
	TrustedProxy   []netip.Prefix `group:"Advanced:" placeholder:"CIDR" help:"Proxies whose header is trusted, default all private addresses."`
	AllowNet       []netip.Prefix `group:"Advanced:" placeholder:"CIDR" help:"Private addresses to connect to."`
	AllowPlaintext bool           `group:"Advanced:" help:"Connect to ws:// relays and http:// git servers."`
	GraspLists     bool           `group:"Advanced:" help:"Accept lists of preferred GRASP servers (kind 10317) by anybody."`
	OneSided       bool           `group:"Advanced:" help:"Accept listed maintainers that have not accepted the role."`
	FsckAllow      []string       `group:"Advanced:" placeholder:"FAULT" help:"Faults of objects to accept, such as hasDotgit."`
	Maintenance    bool           `group:"Advanced:" default:"true" negatable:"" help:"Repack repositories and delete unreferenced objects."`
	Grace          time.Duration  `group:"Advanced:" default:"336h" placeholder:"TIME" help:"Time that unreferenced objects are kept."`
	Expiry         time.Duration  `group:"Advanced:" default:"30m" placeholder:"TIME" help:"Time that an event waits for its git data."`
	StageHold      time.Duration  `group:"Advanced:" default:"20m" placeholder:"TIME" help:"Time that a push for a pull request waits for its event."`
	BatchWindow    time.Duration  `group:"Advanced:" default:"5s" placeholder:"TIME" help:"Time to gather changes before relays are asked."`
	BaseBackoff    time.Duration  `group:"Advanced:" default:"5s" placeholder:"TIME" help:"Wait after a failed connection, doubling."`
	RestartPause   time.Duration  `group:"Advanced:" default:"1m" placeholder:"TIME" help:"Minimum time between connections to a relay across a restart."`
	FetchBackoff   time.Duration  `group:"Advanced:" default:"20s" placeholder:"TIME" help:"Wait after an incomplete fetch of git data, doubling."`

	reload <-chan os.Signal // signals to read Rules again
}

func (o *options) AfterApply() error {
	if len(o.TrustedProxy) > 0 {
		o.ClientHeader = cmp.Or(o.ClientHeader, gitserve.DefaultClientHeader)
	}
	if o.ClientHeader != "" && !httpguts.ValidHeaderFieldName(o.ClientHeader) {
		return fmt.Errorf("-client-header %q: want the name of a header, such as X-Real-IP", o.ClientHeader)
	}
	if i := slices.IndexFunc(o.Bootstrap, graspsync.RelayURL.Plaintext); i >= 0 && !o.AllowPlaintext {
		return fmt.Errorf("-bootstrap %s: plaintext URL, needs -allow-plaintext", o.Bootstrap[i])
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("-listen %q: want host:port, such as 127.0.0.1:7334", o.Listen)
	}
	if ip, err := netip.ParseAddr(host); o.Domain == "" && (host == "" || err == nil && ip.IsUnspecified()) {
		return fmt.Errorf("-domain is missing: announcements cannot list %s; set for example -domain grasp.example.com", o.Listen)
	}
	_, err = identityOf(*o)
	return err
}

func parsers() []kong.Option {
	return []kong.Option{
		kong.KindMapper(reflect.String, parsed("", func(s string) (string, error) { return s, nil })),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), parsed("a time with a unit, such as 90s, 30m or 24h", time.ParseDuration)),
		kong.TypeMapper(reflect.TypeFor[int64](), parsed("a size, such as 500MB, 10G or 2GiB", humanize.ParseBytes)),
		kong.TypeMapper(reflect.TypeFor[int](), parsed("a whole number, such as 5", strconv.Atoi)),
		kong.TypeMapper(reflect.TypeFor[graspsync.PubKey](), parsed("", nip34.ParsePubKey)),
		kong.TypeMapper(reflect.TypeFor[graspsync.RelayURL](), parsed("", graspsync.ParseRelayURL)),
		kong.TypeMapper(reflect.TypeFor[netip.Prefix](), parsed("a CIDR, such as 127.0.0.0/8 or ::1/128", netip.ParsePrefix)),
		kong.TypeMapper(reflect.TypeFor[domainLimit](), parsed("host:concurrent,rate with numbers above 0, such as github.com:10,60", parseLimit)),
	}
}

// parsed makes a mapper of kong. want replaces errors of parse. A number may be 0 only by default.
func parsed[T any](want string, parse func(string) (T, error)) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		token, err := ctx.Scan.PopValue("")
		if err != nil {
			return errors.New("a value is missing")
		}
		text := strings.TrimSpace(token.String())
		v, err := parse(text)
		if err != nil && want != "" {
			err = errors.New("want " + want)
		}
		if err == nil {
			target.Set(reflect.ValueOf(v).Convert(target.Type()))
			if target.CanInt() && (target.Int() < 0 || target.Int() == 0 && ctx.Value.Default != "0") {
				err = errors.New("want more than 0")
			}
		}
		if err != nil {
			err = fmt.Errorf("%.100q: %w", text, err)
		}
		return err
	}
}

type domainLimit struct {
	server graspsync.HostPort
	limit  purgatory.Limit
}

func (d domainLimit) String() string {
	return fmt.Sprintf("%s:%d,%d", d.server, d.limit.Concurrent, d.limit.PerMinute)
}

func parseLimit(s string) (d domainLimit, err error) {
	colon := strings.LastIndexByte(s, ':')
	concurrent, rate, _ := strings.Cut(s[colon+1:], ",")
	u, err := graspsync.ParseCloneURL(s[:max(colon, 0)])
	d.server = u.HostPort()
	d.limit.Concurrent, _ = strconv.Atoi(concurrent)
	d.limit.PerMinute, _ = strconv.Atoi(rate)
	if err != nil || d.limit.Concurrent <= 0 || d.limit.PerMinute <= 0 {
		err = errors.New("not a limit")
	}
	return d, err
}

const prefix = "GRASPSERVER_"

func variable(flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

type setting struct{ value, source string }

// settings are the values of the environment by variable, and of the file by flag.
type settings map[string]setting

func readEnvironment(environ []string) settings {
	s := make(settings)
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if strings.HasPrefix(strings.ToUpper(name), prefix) && value != "" {
			s[name] = setting{value, "environment"}
		}
	}
	return s
}

// readFile adds the settings of a file. # begins a comment.
func (s settings) readFile(r io.Reader) (kong.Resolver, error) {
	lines, read := bufio.NewScanner(r), make(settings) // kong may read a file twice
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(" "+lines.Text(), " #")
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		source := fmt.Sprintf("file, line %d", n)
		switch _, twice := read[name]; {
		case strings.TrimSpace(line) == "":
		case !ok:
			return nil, fmt.Errorf("%s: want name = value", source)
		case twice:
			return nil, fmt.Errorf("%s: %.100q is set twice", source, name)
		default:
			read[name] = setting{strings.TrimSpace(value), source}
		}
	}
	maps.Copy(s, read)
	return s, lines.Err()
}

// of returns the setting of a flag, of the environment before the file.
func (s settings) of(flag string) (setting, bool) {
	v, ok := s[variable(flag)]
	if !ok {
		v, ok = s[flag]
	}
	return v, ok
}

func (s settings) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	v, ok := s.of(flag.Name)
	switch {
	case !ok || flag.Name == "help":
		return nil, nil
	case isSecret(v.value):
		return nil, errSecret
	}
	return v.value, nil
}

// Validate implements [kong.Resolver]. A misspelled setting is an error.
func (s settings) Validate(app *kong.Application) error {
	known := []string{adminKey}
	for _, command := range app.Children {
		for _, f := range command.Flags {
			known = append(known, f.Name, variable(f.Name))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if slices.Contains(known, key) {
			continue
		}
		like := key
		if upper := strings.ToUpper(key); strings.HasPrefix(upper, prefix) {
			like = upper
		}
		return fmt.Errorf("%s: %.100q is an unknown setting, the nearest is %s", s[key].source, key, nearest.Of(like, known))
	}
	return nil
}

func (s settings) explain(err error) error {
	if path := new(fs.PathError); errors.As(err, &path) {
		return fmt.Errorf("-config: %w", err)
	}
	flag, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "--"), ": ")
	if v, ok := s.of(flag); ok {
		return fmt.Errorf("%s: %w", v.source, err)
	}
	return err
}

var errSecret = errors.New("secret key in a setting: use the npub, and replace the key because it may be known now")

func isSecret(s string) bool { return strings.Contains(strings.ToLower(s), "nsec1") }
