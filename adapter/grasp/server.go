package grasp

import (
	"cmp"
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
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/adapter/internal/server"
	"github.com/graspsync/graspsync/adapter/internal/web"
	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	"github.com/graspsync/graspsync/adapter/pages"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// Server is a relay with the repositories that its events announce. It is safe for concurrent use, and
// has also the methods Control, Explain, Purgatory, Fetcher, Staging, GitHandler and Ready.
type Server struct {
	server.Methods
	sync     *khatruadapter.Sync
	parts    *server.Parts
	relay    http.Handler
	gate     *gate.Gate
	log      *slog.Logger
	identity nip34.Identity
	paths    []string // of the identity, longest first
	whole    bool     // the identity has a whole host, or no paths
	outside  http.Handler
}

// New returns a server for a relay that clients reach as identity. backend is initialized, and its
// SaveEvent durable. ctx limits New only. If New fails, the relay is unchanged. The error wraps
// [gitfetch.ErrGit] if no usable git is installed.
func New(ctx context.Context, relay *khatru.Relay, backend eventstore.Store, identity nip34.Identity, cfg Config) (_ *Server, err error) {
	s, root := &Server{identity: identity, paths: identity.Paths()}, "/"
	s.whole = len(s.paths) == 0 || len(identity.HostPorts()) > 0
	if len(s.paths) > 0 {
		root = s.paths[0] + "/"
	}
	slices.SortStableFunc(s.paths, func(a, b string) int { return len(b) - len(a) })
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	cfg.Criteria = cmp.Or(cfg.Criteria, criteria)
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
	s.Methods = s.parts.Methods()
	whole := s.parts.Config
	hides := func(e graspsync.Event) bool { _, is := whole.Rules.ServeBlock(e); return is }
	if s.sync, err = khatruadapter.Prepare(relay, backend, identity, khatruadapter.Config{
		ApplyPolicyToClients: true, Egress: whole.Egress, Sync: whole.Sync, Free: s.parts.Free, MinFree: cfg.Serve.MinFreeDisk,
		Store: eventstoreadapter.Config{Hides: hides}, Stored: s.parts.NotifyStored, Removed: s.parts.NotifySuperseded,
	}); err != nil {
		return nil, err
	}
	if err := s.parts.Join(ctx, server.Relay{
		Sync: s.sync.Sync, Store: s.sync.Store(), Run: s.sync.Run,
		About: func() pages.About { return about(relay.Info, cfg.Criteria, cfg.Curation) },
	}); err != nil {
		return nil, err
	}
	s.outside = gitserve.AllowCORS(s.parts.Git.Page(s.parts.Pages.MissingBelow(root)))
	s.sync.Embed() // nothing can fail after this line: if New fails, the relay must be usable for another New
	more := map[string]any{
		"supported_grasps":         grasps,
		"repo_acceptance_criteria": cfg.Criteria,
	}
	if cfg.Curation != "" { // NIP-11: without the field, the server is not curated
		more["curation"] = cfg.Curation
	}
	if cfg.Gate.Client == nil {
		cfg.Gate.Client = cfg.Serve.Client
	}
	if cfg.Gate.Logger == nil {
		cfg.Gate.Logger = whole.Logger
	}
	s.log = whole.Logger
	cfg.Gate.Identity, cfg.Gate.Relay, cfg.Gate.MaxContent = identity, relay, s.sync.Store().MaxContent()
	s.gate = gate.New(khatruadapter.Information(relay, more), cfg.Gate)
	limits := khatruadapter.Limit(relay, s.sync.Store().PageSize())
	maps.Copy(limits, s.gate.Limits())
	more["limitation"] = limits
	s.relay = front{relay, s.gate, s.parts.Git.Page(http.HandlerFunc(s.parts.Pages.Front)), s.whole}
	return s, nil
}

// Handler serves the repositories at /<npub>/<identifier>.git, and the relay at other paths. Answers use
// the names of the identity, whatever Host a client sends.
func (s *Server) Handler() http.Handler { return s.Git(s.Relay()) }

// Relay serves the relay, its NIP-11 document, and a page at / unless its router has one. A pubkey in
// that document is the NIP-05 name "_", unless the identity has paths only.
func (s *Server) Relay() http.Handler { return server.Named(s.identity, s.relay) }

// Git serves the repositories and calls next for other requests. A path of the identity is removed for
// next. Do not put a ServeMux before Git, because it redirects unusual identifiers.
func (s *Server) Git(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, asked *http.Request) {
		site := s.parts.Git.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r = r.WithContext(r.Context())
			r.Host, r.Header = asked.Host, asked.Header
			next.ServeHTTP(w, r) // next can use the Host that the client sent
		}))
		server.Named(s.identity, s.inside(site)).ServeHTTP(w, asked)
	})
}

func (s *Server) inside(site http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, path := range s.paths {
			if below, ok := below(r, path); ok {
				site.ServeHTTP(w, below)
				return
			}
		}
		switch taken := strings.TrimSuffix(web.BasePath(r), "/"); {
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

// below returns a request without the escaped path prefix, or false.
func below(r *http.Request, path string) (*http.Request, bool) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), path)
	if !ok || rest != "" && rest[0] != '/' {
		return r, false
	}
	if rest == "" {
		rest = "/" // the URL of a relay has no trailing slash
	}
	decoded, err := url.PathUnescape(rest)
	if err != nil {
		return r, false
	}
	out := r.Clone(r.Context())
	out.URL.Path, out.URL.RawPath = decoded, rest
	return out, true
}

// Sync returns the part that follows other relays.
func (s *Server) Sync() *khatruadapter.Sync { return s.sync }

// Gate returns the gate.
func (s *Server) Gate() *gate.Gate { return s.gate }

// Run blocks until ctx ends and returns the error that ended it.
func (s *Server) Run(ctx context.Context) error {
	s.gate.TapBroadcasts() // before sync and purgatory publish events
	return s.parts.Run(ctx)
}

// Close ends connections, requests and git. Call it after Run, before closing the backend.
func (s *Server) Close() error {
	if s.gate != nil {
		s.gate.Close()
	}
	return s.parts.Close()
}

// ErrStarting is wrapped by the error of Ready until Run has read the store.
var ErrStarting = server.ErrStarting

// Collector returns the metrics of all parts, and after [Open] of the records and, with the prefix
// namespace_rules, of the rules. Metrics of purgatory have no namespace.
func (s *Server) Collector(namespace string) prometheus.Collector {
	return s.parts.Collector(namespace, s.gate.Collector(namespace))
}
