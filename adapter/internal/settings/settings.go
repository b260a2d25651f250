// Package settings reads the string arguments of the Open functions of the adapters.
package settings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Settings are the parsed arguments and the opened records.
type Settings struct {
	Identity nip34.Identity
	Sync     relaysync.Config
	Egress   egress.Config // allows loopback addresses and plaintext if the domain is on loopback
	Records  *state.DB     // the caller closes them
	Logger   *slog.Logger
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

var (
	errNoDomain = errors.New(`the domain is empty, want the host of this server in announcements, such as "grasp.example.com"`)
	errNoFolder = errors.New(`the folder is empty, want one that only this server writes to, such as "data"`)
)

// Open parses the arguments and opens the records in folder.
func Open(domain, folder string, bootstrap []string) (Settings, error) {
	s := Settings{Logger: slog.Default()} //nolint:forbidigo // Open has no Logger parameter; New has
	var errs []error
	var err error
	if domain == "" {
		errs = append(errs, errNoDomain)
	} else if s.Identity, err = nip34.ParseIdentity(domain); err != nil {
		errs = append(errs, err)
	}
	for _, spec := range bootstrap {
		u, err := graspsync.ParseRelayURL(spec)
		if err != nil {
			errs = append(errs, fmt.Errorf("bootstrap relay %q: %w", spec, err))
		}
		s.Sync.Bootstrap = append(s.Sync.Bootstrap, u)
	}
	if folder == "" {
		errs = append(errs, errNoFolder)
	}
	if len(errs) > 0 {
		return Settings{}, errors.Join(errs...)
	}
	if onThisMachine(s.Identity) {
		s.Egress.Allow, s.Egress.AllowPlaintext = loopback, true
		s.Logger.Info("domain is on loopback, connections to loopback and without TLS are allowed", "domain", domain)
	}
	s.Logger.Info("hosting repositories whose announcement lists relay and clone URL", "relay", s.Identity.RelayURL(),
		"clone", s.Identity.CloneBase()+"/<npub>/<identifier>.git", "bootstrap_relays", len(s.Sync.Bootstrap))
	if s.Records, err = state.Open(filepath.Join(folder, "state"), state.Config{Logger: s.Logger}); err != nil {
		return Settings{}, fmt.Errorf("opening the records: %w", err)
	}
	s.Sync.Logger, s.Sync.State = s.Logger, s.Records
	return s, nil
}

// OpenRules opens the operator's rules in a database that survives the loss of the records. Opened
// contains both.
func (s Settings) OpenRules(ctx context.Context, folder string) (*rules.RuleSet, Opened, error) {
	decided, err := state.Open(filepath.Join(folder, "rules"), state.Config{Logger: s.Logger})
	if err != nil {
		return nil, nil, fmt.Errorf("opening the rules: %w", err)
	}
	ruleSet, err := rules.Open(ctx, decided, rules.File{})
	if err != nil {
		return nil, nil, errors.Join(err, decided.Close())
	}
	return ruleSet, both{s.Records, decided}, nil
}

// Opened are records that the adapter closes.
type Opened interface {
	io.Closer
	Collector(namespace string) prometheus.Collector
}

type both struct {
	*state.DB
	rules *state.DB
}

func (b both) Close() error { return errors.Join(b.DB.Close(), b.rules.Close()) }

// Collector implements [Opened]. The metrics of the rules have "_rules" appended to the namespace.
func (b both) Collector(namespace string) prometheus.Collector {
	return Collectors{b.DB.Collector(namespace), b.rules.Collector(strings.TrimPrefix(namespace+"_rules", "_"))}
}

func onThisMachine(identity nip34.Identity) bool {
	us, err := graspsync.ParseURL(identity.RelayURL(), graspsync.RelaySchemes)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(us.HostPort.Host)
	return us.HostPort.Host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Collectors is a list of collectors as one collector.
type Collectors []prometheus.Collector

// Describe implements [prometheus.Collector].
func (a Collectors) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range a {
		c.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (a Collectors) Collect(ch chan<- prometheus.Metric) {
	for _, c := range a {
		c.Collect(ch)
	}
}
