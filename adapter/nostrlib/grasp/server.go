package graspadapter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/khatru"
	"fiatjaf.com/nostr/khatru/grasp"
	"fiatjaf.com/nostr/nip11"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/control"
	"github.com/graspsync/graspsync/adapter/internal/server"
	khatruadapter "github.com/graspsync/graspsync/adapter/nostrlib/khatru"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// Server is a GraspServer with sync and purgatory behind it. It is made by [New]. All methods may be
// called concurrently.
type Server struct {
	sync  *khatruadapter.Sync
	parts *server.Parts
	relay *khatru.Relay
	about func(context.Context, *http.Request, nip11.RelayInformationDocument) nip11.RelayInformationDocument // the relay's; may be nil
}

// New gives a GraspServer, which grasp.New has made, sync and purgatory. Its relay is reached as identity and
// keeps its events in backend, on which Init was called and which must be durable when it says that
// something is stored. What was being done when the process was killed is put in order
// before New returns; ctx bounds that only. The error names what is wrong with the
// arguments; it wraps [gitfetch.ErrGit] if there is no git that can be used. The relay is then unchanged.
func New(ctx context.Context, gs *grasp.GraspServer, backend eventstore.Store, identity nip34.Identity, cfg Config) (_ *Server, err error) {
	c := server.Config{
		Identity: identity, State: cfg.State, Egress: cfg.Egress, Membership: cfg.Membership, Rules: cfg.Rules, Audit: cfg.Audit, Logger: cfg.Logger,
		Sync: cfg.Sync, Purgatory: cfg.Purgatory, Fetch: cfg.Fetch, Repositories: cfg.Repositories, Serve: cfg.Serve,
	}
	c.Repositories.PlainNames = true
	errs := wrong(gs, identity)
	if gs != nil {
		c.Dir = gs.RepositoryDir
	}
	s := &Server{}
	if s.parts, err = server.Open(ctx, c, errs...); err != nil {
		return nil, err
	}
	s.relay, s.about = gs.Relay, gs.Relay.OverwriteRelayInformation
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	c = s.parts.Config
	var embed func()
	if s.sync, embed, err = khatruadapter.Prepare(gs.Relay, backend, identity, khatruadapter.Config{
		GateDirect: true, Egress: c.Egress, Sync: c.Sync, Store: cfg.Store, MaxQuery: cfg.MaxQuery,
		Free: s.parts.Free, MinFree: cfg.Serve.MinFreeDisk, Stored: s.parts.Arrived, Removed: s.parts.Departed,
		Withholds: func(e graspsync.Event) bool { _, is := c.Rules.Withholds(e); return is },
	}); err != nil {
		return nil, err
	}
	if err := s.parts.Join(ctx, server.Relay{
		Manager: s.sync.Manager(), Store: s.sync.Store().Store, Release: s.sync.Release, Remove: s.sync.Remove, Room: s.sync.Room,
		Writable: s.sync.Writable, Run: s.sync.Run, Close: s.sync.Close, Collect: s.sync.Collector,
	}); err != nil {
		return nil, err
	}
	embed() // last of all: a relay whose New failed is to be one that another New can have
	gs.Relay.OverwriteRelayInformation = s.describes
	gs.Relay.SetRouter(routes(gs, s.parts.Git, c.Rules, identity))
	if info := gs.Relay.Info; info != nil && !slices.Contains(info.SupportedGrasps, "GRASP-02") {
		info.SupportedGrasps = append(info.SupportedGrasps, "GRASP-02")
	}
	return s, nil
}

// Explain answers why something is here, or is not, as package explain does, and which rule keeps it out.
func (s *Server) Explain(ctx context.Context, text string) (control.Explanation, error) {
	return s.parts.Explain(ctx, text)
}

// Control returns the control of the server in the hands of somebody: an npub, or whatever the program
// calls what acts.
func (s *Server) Control(by string) control.Control { return s.parts.Commands.By(by) }

// describes is what the relay says of itself, with what was changed while it ran.
func (s *Server) describes(ctx context.Context, r *http.Request, info nip11.RelayInformationDocument) nip11.RelayInformationDocument {
	if s.about != nil {
		info = s.about(ctx, r, info)
	}
	s.parts.Commands.About(&info.Name, &info.Description, &info.Icon)
	return info
}

// Sync is what follows other relays: its status, its metrics, its store.
func (s *Server) Sync() *khatruadapter.Sync { return s.sync }

// Purgatory is what holds events: its status, its metrics.
func (s *Server) Purgatory() *purgatory.Purgatory { return s.parts.Purgatory() }

// Fetcher is what fetches git data: its metrics, the version of git.
func (s *Server) Fetcher() *gitfetch.Fetcher { return s.parts.Fetcher }

// Staging has what was pushed for events that are not here: its metrics.
func (s *Server) Staging() *gitserve.Staging { return s.parts.Repos.Staging() }

// GitHandler is what serves the repositories: its metrics.
func (s *Server) GitHandler() *gitserve.Handler { return s.parts.Git }

// Run works until ctx ends and returns what ended it; [relaysync.ErrRunning] if it was
// called before, and what khatruadapter's Run returns for a hook of the relay that was set
// after New. It leaves no goroutine.
func (s *Server) Run(ctx context.Context) error {
	if reflect.ValueOf(s.relay.OverwriteRelayInformation).Pointer() != reflect.ValueOf(s.describes).Pointer() {
		return fmt.Errorf("GRASP server: OverwriteRelayInformation: %w", khatruadapter.ErrReplaced)
	}
	return s.parts.Run(ctx, khatruadapter.ErrReplaced)
}

// Close ends what is left: requests for repositories that are under way, child processes, and the use
// of the backend, which may be closed then. What comes later is refused. It is called after
// Run; a second call does nothing.
func (s *Server) Close() error { return s.parts.Close() }

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
// without it. What Config.State keeps, and a gate before the relay, have collectors of their own. With [Open] that of the
// records is among these, and that of its rules with "_rules" behind the namespace.
func (s *Server) Collector(namespace string) prometheus.Collector {
	return s.parts.Collector(namespace)
}
