package grasp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip11"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/control"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/adapter/internal/names"
	"github.com/graspsync/graspsync/adapter/internal/readiness"
	"github.com/graspsync/graspsync/adapter/internal/settings"
	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Server is a relay with the repositories that its events tell of. It is made by [New].
// All methods may be called concurrently.
type Server struct {
	sync      *khatruadapter.Sync
	purgatory *purgatory.Purgatory

	commands control.Control // in the hands of nobody
	lists    func(*nip34.Announcement) bool

	relay   http.Handler
	gate    *gate.Gate
	git     *gitserve.Handler
	fetcher *gitfetch.Fetcher
	repos   *gitserve.Repositories

	readiness *readiness.Readiness

	identity nip34.Identity
	paths    []string // of the identity; the longest come first
	whole    bool     // it has a host to itself as well, or paths is empty
	outside  http.Handler
	records  settings.Opened // nil if they are whose Config it is
}

// New makes a server of a relay that is reached as identity and keeps its events in
// backend, on which Init was called and which must be durable when it says that
// something is stored. What was being done when the process was killed is put in order
// before New returns; ctx bounds that only. The error names what is wrong with the
// arguments; it wraps [gitfetch.ErrGit] if there is no git that can be used. The relay is then unchanged.
func New(ctx context.Context, relay *khatru.Relay, backend eventstore.Store, identity nip34.Identity, cfg Config) (_ *Server, err error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	cfg, err = cfg.withDefaults(identity)
	if err != nil {
		return nil, err
	}
	configured := cfg.Sync.Bootstrap
	if cfg, err = cfg.withRules(ctx); err != nil {
		return nil, err
	}
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
	if err := s.openGit(ctx, cfg); err != nil {
		return nil, err
	}
	policy := purgatoryadapter.NewPolicy(cfg.Sync.Policy)
	cfg.Sync = policy.Configure(cfg.Sync)
	var embed func()
	if s.sync, embed, err = khatruadapter.Prepare(relay, backend, identity, khatruadapter.Config{
		GateDirect: true, Egress: cfg.Egress, Sync: cfg.Sync,
		Free: func() (uint64, error) { return disk.Free(cfg.Dir) }, MinFree: cfg.Serve.MinFreeDisk,
	}); err != nil {
		return nil, err
	}
	manager := s.sync.Manager()
	host := purgatoryadapter.Host{
		Store: s.sync.Store(), Release: s.sync.Release, Held: manager.Held, Removed: s.removed,
		Postponed: manager.Postponed, Lists: policy.Lists,
	}
	tell := cfg.Purgatory.Observe
	cfg.Purgatory.Observe = func(o purgatory.Observation) {
		host.Observe(o)
		if tell != nil {
			tell(o)
		}
	}
	if s.purgatory, err = purgatory.Open(ctx, host.Relay(), s.repos, s.fetcher, cfg.State, cfg.Purgatory); err != nil {
		return nil, err
	}
	authority := purgatoryadapter.Authority{Store: s.sync.Store(), Purgatory: s.purgatory}
	if cfg.Serve.Describe == nil {
		cfg.Serve.Describe = authority.Describe
	}
	if s.git, err = gitserve.New(s.repos, authority, cfg.Serve); err != nil {
		return nil, err
	}
	s.lists = policy.Lists
	if s.commands, err = control.New(control.Config{
		Rules: cfg.Rules, Sync: manager, Store: s.sync.Store(), Remove: s.sync.Remove, Purgatory: s.purgatory,
		Repositories: s.repos, Lists: s.lists, Bootstrap: configured, Audit: cfg.Audit, Logger: cfg.Logger,
	}); err != nil {
		return nil, err
	}
	embed() // nothing may fail any more: a relay whose New failed is to be one that another New can have
	relay.OverwriteRelayInformation = append(relay.OverwriteRelayInformation, s.describes)
	withheld{cfg.Rules}.wire(relay)
	policy.Join(bounded{s.purgatory, s.sync.Room})
	relay.OnEventSaved = append(relay.OnEventSaved, func(_ context.Context, e *nostr.Event) { told(s.purgatory.Arrived, e) })
	relay.DeleteEvent = append(relay.DeleteEvent, func(_ context.Context, e *nostr.Event) error {
		told(s.purgatory.Departed, e) // moderation and expiry store nothing that would tell
		return nil
	})
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
		cfg.Gate.Logger = cfg.Logger
	}
	cfg.Gate.Identity, cfg.Gate.MaxMessage, cfg.Gate.MaxContent = identity, relay.MaxMessageSize, s.sync.Store().MaxContent()
	s.gate = gate.New(khatruadapter.Information(relay, about), cfg.Gate)
	limits := khatruadapter.Limit(relay, s.sync.Store().PageSize())
	maps.Copy(limits, s.gate.Limits())
	about["limitation"] = limits
	s.gate.Pace(relay)
	s.relay = front{relay, s.gate, s.commands, s.whole, cfg.Criteria, cfg.Curation}
	s.readiness = readiness.New(manager.Ready(), func() error { return errors.Join(s.sync.Writable(), s.purgatory.Ready()) }, cfg.State, s.repos.Writable)
	return s, nil
}

// describes is what the relay says of itself, with what was changed while it ran.
func (s *Server) describes(_ context.Context, _ *http.Request, info nip11.RelayInformationDocument) nip11.RelayInformationDocument {
	s.commands.About(&info.Name, &info.Description, &info.Icon)
	return info
}

// bounded is a purgatory that takes in nothing for which the disk has no room: neither its
// record nor its data could be kept, and what comes by sync is tried again.
type bounded struct {
	*purgatory.Purgatory
	room func(e graspsync.Event) error
}

// Submit is that of the purgatory.
func (b bounded) Submit(ctx context.Context, e graspsync.Event, src graspsync.Source) (purgatory.Answer, error) {
	if err := b.room(e); err != nil {
		return purgatory.Answer{}, err
	}
	return b.Purgatory.Submit(ctx, e, src)
}

// removed takes note of an event that waited and will not be served: a hook may have come
// to refuse its author when its data was here already.
func (s *Server) removed(e graspsync.Event) {
	s.sync.Manager().Removed(e)
	if s.purgatory != nil { // else it is being opened, and looks at everything
		s.purgatory.Departed(e)
	}
}

// told has a purgatory told of an event that the relay has, or had. What is none is of no repository.
func told(of func(graspsync.Event), e *nostr.Event) {
	if ev, err := graspsync.ParseEvent(e); err == nil {
		of(ev)
	}
}

// openGit opens the repositories, and what fetches into them.
func (s *Server) openGit(ctx context.Context, cfg Config) (err error) {
	if cfg.Fetch.Dialer, err = egress.NewDialer(cfg.Egress); err != nil {
		return err
	}
	cfg.Repositories.Memory = gitserve.NewMemory(cfg.Repositories)
	cfg.Fetch.Memory = cfg.Repositories.Memory
	if s.fetcher, err = gitfetch.New(ctx, cfg.Fetch); err != nil {
		return err
	}
	s.repos, err = gitserve.Open(cfg.Dir, cfg.Repositories)
	return err
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
func (s *Server) Relay() http.Handler { return names.Before(s.identity, s.relay) }

// Git serves the repositories; what is not for one of them next is asked for. Both are under
// the paths of the identity, if it has any, which next does not see, and nothing is anywhere
// else: a proxy must leave paths as they are. An [http.StripPrefix] may take them away. It
// must come before a ServeMux, which would have an odd identifier redirected.
func (s *Server) Git(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, asked *http.Request) {
		site := s.git.Before(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r = r.WithContext(r.Context())
			r.Host, r.Header = asked.Host, asked.Header
			next.ServeHTTP(w, r) // it may go by what the client wrote
		}))
		names.Before(s.identity, s.inside(site)).ServeHTTP(w, asked)
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
func (s *Server) Control(by string) control.Control { return s.commands.By(by) }

// Explain answers why something is here, or is not, as [explain.Explainer] does, and which rule keeps it
// out.
func (s *Server) Explain(ctx context.Context, text string) (control.Explanation, error) {
	return control.Explainer{
		Explainer: explain.Explainer{Sync: s.sync.Manager(), Purgatory: s.purgatory, Repositories: s.repos},
		Rules:     s.commands.Rules(), Store: s.sync.Store(),
	}.Explain(ctx, text)
}

// Sync is what follows other relays: its status, its metrics, its store.
func (s *Server) Sync() *khatruadapter.Sync { return s.sync }

// Purgatory is what holds events: its status, its metrics.
func (s *Server) Purgatory() *purgatory.Purgatory { return s.purgatory }

// Fetcher is what fetches git data: its metrics, the version of git.
func (s *Server) Fetcher() *gitfetch.Fetcher { return s.fetcher }

// Staging has what was pushed for events that are not here: its metrics.
func (s *Server) Staging() *gitserve.Staging { return s.repos.Staging() }

// Gate is what stands before the relay: its metrics.
func (s *Server) Gate() *gate.Gate { return s.gate }

// GitHandler is what serves the repositories: its metrics.
func (s *Server) GitHandler() *gitserve.Handler { return s.git }

// Run works until ctx ends and returns what ended it; [relaysync.ErrRunning] if it was
// called before. It leaves no goroutine but one that Close ends.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.gate.Hear() // before sync and purgatory publish
	var wg sync.WaitGroup
	var errs [2]error
	for i, run := range []func(context.Context) error{s.purgatory.Run, s.sync.Run} {
		wg.Go(func() {
			defer cancel() // one without the other would be half a server
			errs[i] = run(ctx)
		})
	}
	wg.Wait()
	if errors.Is(errs[1], relaysync.ErrRunning) {
		return errs[1]
	}
	return errs[0]
}

// Close ends what is left: connections, requests under way, child processes, and the use of the
// backend, which may be closed then. What comes later is refused. It is called after Run; a
// second call does nothing.
func (s *Server) Close() error {
	if s.gate != nil {
		s.gate.Close()
	}
	if s.git != nil {
		s.git.Close()
	}
	if s.fetcher != nil {
		s.fetcher.Close()
	}
	var errs [3]error
	if s.sync != nil { // now nobody asks it any more
		errs[0] = s.sync.Close()
	}
	if s.repos != nil {
		errs[1] = s.repos.Close()
	}
	if s.records != nil {
		errs[2] = s.records.Close()
	}
	return errors.Join(errs[:]...)
}
