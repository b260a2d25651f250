package grasp

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip11"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/control"
	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/adapter/internal/server"
	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// Server is a relay with the repositories that its events tell of. It is made by [New].
// All methods may be called concurrently.
type Server struct {
	sync     *khatruadapter.Sync
	parts    *server.Parts
	relay    http.Handler
	gate     *gate.Gate
	log      *slog.Logger
	identity nip34.Identity
	paths    []string // of the identity; the longest come first
	whole    bool     // it has a host to itself as well, or paths is empty
	outside  http.Handler
}

// New makes a server of a relay that is reached as identity and keeps its events in
// backend, on which Init was called and which must be durable when it says that
// something is stored. What was being done when the process was killed is put in order
// before New returns; ctx bounds that only. The error names what is wrong with the
// arguments; it wraps [gitfetch.ErrGit] if there is no git that can be used. The relay is then unchanged.
func New(ctx context.Context, relay *khatru.Relay, backend eventstore.Store, identity nip34.Identity, cfg Config) (_ *Server, err error) {
	s := &Server{identity: identity, paths: identity.Paths()}
	s.whole = len(s.paths) == 0 || len(identity.HostPorts()) > 0
	s.outside = gitserve.Everywhere(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = gitserve.WriteMissing(w, s.paths[0]+"/") // the client is gone if this fails
	}))
	slices.SortStableFunc(s.paths, func(a, b string) int { return len(b) - len(a) })
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	var errs []error
	if cfg.Dir == "" {
		errs = append(errs, errors.New("Dir is empty"))
	}
	if s.parts, err = server.Open(ctx, server.Config{
		Identity: identity, Dir: cfg.Dir, State: cfg.State, Egress: cfg.Egress, Membership: cfg.Membership, GRASPLists: cfg.GRASPLists,
		Rules: cfg.Rules, Audit: cfg.Audit, Logger: cfg.Logger,
		Sync: cfg.Sync, Purgatory: cfg.Purgatory, Fetch: cfg.Fetch, Repositories: cfg.Repositories, Serve: cfg.Serve,
	}, errs...); err != nil {
		return nil, err
	}
	whole := s.parts.Config
	var embed func()
	if s.sync, embed, err = khatruadapter.Prepare(relay, backend, identity, khatruadapter.Config{
		GateDirect: true, Egress: whole.Egress, Sync: whole.Sync, Free: s.parts.Free, MinFree: cfg.Serve.MinFreeDisk,
	}); err != nil {
		return nil, err
	}
	if err := s.parts.Join(ctx, server.Relay{
		Manager: s.sync.Manager(), Store: s.sync.Store(), Release: s.sync.Release, Remove: s.sync.Remove, Room: s.sync.Room,
		Writable: s.sync.Writable, Run: s.sync.Run, Close: s.sync.Close, Collect: s.sync.Collector,
	}); err != nil {
		return nil, err
	}
	embed() // nothing may fail any more: a relay whose New failed is to be one that another New can have
	relay.OverwriteRelayInformation = append(relay.OverwriteRelayInformation, s.describes)
	withheld{whole.Rules}.wire(relay)
	relay.OnEventSaved = append(relay.OnEventSaved, func(_ context.Context, e *nostr.Event) { told(s.parts.Arrived, e) })
	relay.DeleteEvent = append(relay.DeleteEvent, func(_ context.Context, e *nostr.Event) error {
		told(s.parts.Departed, e)
		return nil
	})
	if cfg.Criteria == "" {
		cfg.Criteria = criteria
	}
	about := map[string]any{
		"supported_grasps":         []string{"GRASP-01", "GRASP-02"},
		"repo_acceptance_criteria": cfg.Criteria,
	}
	if cfg.Curation != "" { // else nobody curates it
		about["curation"] = cfg.Curation
	}
	if cfg.Gate.Client == nil {
		cfg.Gate.Client = cfg.Serve.Client
	}
	if cfg.Gate.Logger == nil {
		cfg.Gate.Logger = whole.Logger
	}
	s.log = whole.Logger
	cfg.Gate.Identity, cfg.Gate.MaxMessage, cfg.Gate.MaxContent = identity, relay.MaxMessageSize, s.sync.Store().MaxContent()
	s.gate = gate.New(khatruadapter.Information(relay, about), cfg.Gate)
	limits := khatruadapter.Limit(relay, s.sync.Store().PageSize())
	maps.Copy(limits, s.gate.Limits())
	about["limitation"] = limits
	s.gate.Pace(relay)
	s.relay = front{relay, s.gate, s.parts.Commands, s.whole, cfg.Criteria, cfg.Curation}
	return s, nil
}

// describes is what the relay says of itself, with what was changed while it ran.
func (s *Server) describes(_ context.Context, _ *http.Request, info nip11.RelayInformationDocument) nip11.RelayInformationDocument {
	s.parts.Commands.About(&info.Name, &info.Description, &info.Icon)
	return info
}

// told has a purgatory told of an event that the relay has, or had. What is none is of no repository.
func told(of func(graspsync.Event), e *nostr.Event) {
	if ev, err := graspsync.ParseEvent(e); err == nil {
		of(ev)
	}
}

// Handler serves the repositories at /<npub>/<identifier>.git, with a page for browsers, and
// the relay with its NIP-11 document everywhere else.
//
// Whatever a client or a proxy writes into Host, the server calls itself as the identity does.
func (s *Server) Handler() http.Handler { return s.Git(s.Relay()) }

// Relay serves the relay, its NIP-11 document, and a page at / for browsers, unless the relay
// has one of its own. Where the relay says who is responsible for it, _ of its domain is them
// (NIP-05), unless it is reached under a path: the domain is somebody else's then. Under a
// path the relay is there only, not also at what is below.
func (s *Server) Relay() http.Handler { return server.Named(s.identity, s.relay) }

// Git serves the repositories; what is not for one of them next is asked for. Both are under
// the paths of the identity, if it has any, which next does not see, and nothing is anywhere
// else: a proxy must leave paths as they are. An [http.StripPrefix] may take them away. It
// must come before a ServeMux, which would have an odd identifier redirected.
func (s *Server) Git(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, asked *http.Request) {
		site := s.parts.Git.Before(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r = r.WithContext(r.Context())
			r.Host, r.Header = asked.Host, asked.Header
			next.ServeHTTP(w, r) // it may go by what the client wrote
		}))
		server.Named(s.identity, s.inside(site)).ServeHTTP(w, asked)
	})
}

// inside has site answer what is under the paths of the identity.
func (s *Server) inside(site http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, path := range s.paths {
			if below, ok := below(r, path); ok {
				site.ServeHTTP(w, below)
				return
			}
		}
		switch taken := strings.TrimSuffix(gitserve.Root(r), "/"); {
		case s.whole:
			site.ServeHTTP(w, r)
		case slices.Contains(s.paths, taken):
			inside, _ := below(r, "")
			site.ServeHTTP(w, inside)
		default:
			s.outside.ServeHTTP(w, r)
		}
	})
}

// below returns a request without the path under which we are reached, which is escaped,
// if it is under that.
func below(r *http.Request, path string) (*http.Request, bool) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), path)
	if !ok || rest != "" && rest[0] != '/' {
		return r, false
	}
	if rest == "" {
		rest = "/" // the address of a relay has no slash at its end
	}
	decoded, err := url.PathUnescape(rest)
	if err != nil {
		return r, false
	}
	out := r.Clone(r.Context())
	out.URL.Path, out.URL.RawPath = decoded, rest
	return out, true
}

// Control returns the control of the server in the hands of somebody: an npub, or whatever the program
// calls what acts.
func (s *Server) Control(by string) control.Control { return s.parts.Commands.By(by) }

// Explain answers why something is here, or is not, as package explain does, and which rule keeps it out.
func (s *Server) Explain(ctx context.Context, text string) (control.Explanation, error) {
	return s.parts.Explain(ctx, text)
}

// Sync is what follows other relays: its status, its metrics, its store.
func (s *Server) Sync() *khatruadapter.Sync { return s.sync }

// Purgatory is what holds events: its status, its metrics.
func (s *Server) Purgatory() *purgatory.Purgatory { return s.parts.Purgatory() }

// Fetcher is what fetches git data: its metrics, the version of git.
func (s *Server) Fetcher() *gitfetch.Fetcher { return s.parts.Fetcher }

// Staging has what was pushed for events that are not here: its metrics.
func (s *Server) Staging() *gitserve.Staging { return s.parts.Repos.Staging() }

// Gate is what stands before the relay: its metrics.
func (s *Server) Gate() *gate.Gate { return s.gate }

// GitHandler is what serves the repositories: its metrics.
func (s *Server) GitHandler() *gitserve.Handler { return s.parts.Git }

// Run works until ctx ends and returns what ended it; [relaysync.ErrRunning] if it was
// called before. It leaves no goroutine but one that Close ends.
func (s *Server) Run(ctx context.Context) error {
	s.gate.Hear() // before sync and purgatory publish
	return s.parts.Run(ctx)
}

// Close ends what is left: connections, requests under way, child processes, and the use of the
// backend, which may be closed then. What comes later is refused. It is called after Run; a
// second call does nothing.
func (s *Server) Close() error {
	if s.gate != nil {
		s.gate.Close()
	}
	return s.parts.Close()
}

// ErrStarting is wrapped by what [Server.Ready] returns until Run has read the store.
var ErrStarting = server.ErrStarting

// Ready returns why the server can't do its work now, so that clients are better sent elsewhere; nil
// if it can. The error wraps [ErrStarting] until Run has read the store, and says later which of
// store, records and repositories can't be written to; one that wraps [khatruadapter.ErrRoom] is
// about the disk being full. It writes a few bytes to find out, at most once in 5 s; what the store
// can't do it knows from what failed. It returns within 5 s, also if the disk hangs.
func (s *Server) Ready(ctx context.Context) error { return s.parts.Ready(ctx) }

// Collector has the metrics of all parts, for a registry of the caller's. namespace goes before
// their names, without an underscore; those of the purgatory have the names that operators know,
// without it. What Config.State keeps has a collector of its own. With [Open] that of the
// records is among these, and that of its rules with "_rules" behind the namespace.
func (s *Server) Collector(namespace string) prometheus.Collector {
	return s.parts.Collector(namespace, s.gate.Collector(namespace))
}
