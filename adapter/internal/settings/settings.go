// Package settings reads what the short ways into an adapter are told, as strings.
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
)

// Settings are what an adapter is opened with.
type Settings struct {
	Identity  nip34.Identity
	Bootstrap []graspsync.RelayURL
	// Egress lets us reach this machine if the identity is on it and nowhere else; Plaintext
	// goes with that. Nobody else can list such a server: somebody tries it out.
	Egress    egress.Config
	Plaintext bool
	Records   *state.DB // what survives a restart; to be closed
	Logger    *slog.Logger
}

// loopback is this machine.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// errNoDomain and errNoFolder say what is missing.
var (
	errNoDomain = errors.New(`the domain is empty, want what announcements call this server, such as "grasp.example.com"`)
	errNoFolder = errors.New(`the folder is empty, want one that only this server writes to, such as "data"`)
)

// Open reads them, and opens the records in a folder. The error names all that is wrong.
func Open(domain, folder string, bootstrap []string) (Settings, error) {
	s := Settings{Logger: slog.Default()} //nolint:forbidigo // the short way is to speak; whoever injects a logger calls New
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
		s.Bootstrap = append(s.Bootstrap, u)
	}
	if folder == "" {
		errs = append(errs, errNoFolder)
	}
	if len(errs) > 0 {
		return Settings{}, errors.Join(errs...)
	}
	if s.Plaintext = onThisMachine(s.Identity); s.Plaintext {
		s.Egress.Allow = loopback
		s.Logger.Info("the domain is on this machine: relays and git servers on it are reached, unencrypted as well", "domain", domain)
	}
	s.Logger.Info("hosting repositories whose announcement lists both", "relay", s.Identity.RelayURL(),
		"clone", s.Identity.CloneBase()+"/<npub>/<identifier>.git", "bootstrap_relays", len(s.Bootstrap))
	if s.Records, err = state.Open(filepath.Join(folder, "state"), state.Config{Logger: s.Logger}); err != nil {
		return Settings{}, fmt.Errorf("opening the records: %w", err)
	}
	return s, nil
}

// OpenRules opens what an operator has decided, in records of its own in the folder: those of a server may be lost, and
// who is blocked is not to come back by that. What was opened is both records.
func (s Settings) OpenRules(ctx context.Context, folder string) (*rules.Book, Opened, error) {
	decided, err := state.Open(filepath.Join(folder, "rules"), state.Config{Logger: s.Logger})
	if err != nil {
		return nil, nil, fmt.Errorf("opening the rules: %w", err)
	}
	_, err = rules.Move(ctx, s.Records, decided) // it was among them once
	var book *rules.Book
	if err == nil {
		book, err = rules.Open(ctx, decided, rules.Config{})
	}
	if err != nil {
		return nil, nil, errors.Join(err, decided.Close())
	}
	return book, both{s.Records, decided}, nil
}

// Opened is what belongs to whoever had it opened: nobody else can close it, or has its metrics.
type Opened interface {
	io.Closer
	Collector(namespace string) prometheus.Collector
}

// both are the records of a server and those of its rules.
type both struct{ records, rules *state.DB }

// Close implements [io.Closer].
func (b both) Close() error { return errors.Join(b.records.Close(), b.rules.Close()) }

// Collector has the metrics of both: those of the rules have "_rules" behind the namespace.
func (b both) Collector(namespace string) prometheus.Collector {
	return Collectors{b.records.Collector(namespace), b.rules.Collector(strings.TrimPrefix(namespace+"_rules", "_"))}
}

// onThisMachine reports whether nobody else can reach an identity.
func onThisMachine(identity nip34.Identity) bool {
	us, err := graspsync.ParseURL(identity.RelayURL(), graspsync.RelaySchemes)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(us.HostPort.Host)
	return us.HostPort.Host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Collectors are collected one after the other.
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
