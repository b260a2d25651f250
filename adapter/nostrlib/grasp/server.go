package graspadapter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/khatru/grasp"
	"fiatjaf.com/nostr/nip11"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/server"
	khatruadapter "github.com/graspsync/graspsync/adapter/nostrlib/khatru"
	"github.com/graspsync/graspsync/adapter/pages"
	"github.com/graspsync/graspsync/nip34"
)

// Server is a GraspServer with sync and purgatory. It is safe for concurrent use, and has also the methods
// Control, Explain, Purgatory, Fetcher, Staging, GitHandler and Ready.
type Server struct {
	server.Methods
	sync  *khatruadapter.Sync
	parts *server.Parts
}

// New adds sync and purgatory to a GraspServer made by grasp.New, whose relay clients reach as identity.
// backend is initialized, and its SaveEvent durable. ctx limits New only. If New fails, the relay is
// unchanged. The error wraps [gitfetch.ErrGit] if no usable git is installed.
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
	s.Methods = s.parts.Methods()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	c = s.parts.Config
	store := cfg.Store
	store.Hides = func(e graspsync.Event) bool { _, is := c.Rules.ServeBlock(e); return is }
	if s.sync, err = khatruadapter.Prepare(gs.Relay, backend, identity, khatruadapter.Config{
		ApplyPolicyToClients: true, Egress: c.Egress, Sync: c.Sync, Store: store, MaxQuery: cfg.MaxQuery,
		Free: s.parts.Free, MinFree: cfg.Serve.MinFreeDisk, Stored: s.parts.NotifyStored, Removed: s.parts.NotifySuperseded,
	}); err != nil {
		return nil, err
	}
	if err := s.parts.Join(ctx, server.Relay{
		Sync: s.sync.Sync, Store: s.sync.Store().Store, Run: s.sync.Run,
		About: func() pages.About { return about(gs.Relay.Info) },
	}); err != nil {
		return nil, err
	}
	s.sync.Embed() // nothing can fail after this line: if New fails, the relay must be usable for another New
	gs.Relay.SetRouter(routes(gs, s.parts.Git, s.parts.Pages, identity))
	if info := gs.Relay.Info; info != nil && !slices.Contains(info.SupportedGrasps, "GRASP-02") {
		info.SupportedGrasps = append(info.SupportedGrasps, "GRASP-02")
	}
	return s, nil
}

func about(i *nip11.RelayInformationDocument) (a pages.About) {
	if i == nil {
		return a
	}
	a = pages.About{Name: i.Name, Description: i.Description, Contact: i.Contact, Icon: i.Icon, Version: i.Version, GRASPs: i.SupportedGrasps}
	for _, n := range i.SupportedNIPs {
		a.NIPs = append(a.NIPs, fmt.Sprint(n))
	}
	return a
}

// Sync returns the part that follows other relays.
func (s *Server) Sync() *khatruadapter.Sync { return s.sync }

// Run blocks until ctx ends and returns the error that ended it, or [khatruadapter.ErrReplaced], wrapped.
func (s *Server) Run(ctx context.Context) error {
	return s.parts.Run(ctx, khatruadapter.ErrReplaced)
}

// Close ends requests and child processes. Call it after Run, before closing the backend.
func (s *Server) Close() error { return s.parts.Close() }

// ErrStarting is wrapped by the error of Ready until Run has read the store.
var ErrStarting = server.ErrStarting

// Collector returns the metrics of all parts, and after [Open] of the records and, with the prefix
// namespace_rules, of the rules. Metrics of purgatory have no namespace.
func (s *Server) Collector(namespace string) prometheus.Collector {
	return s.parts.Collector(namespace)
}
