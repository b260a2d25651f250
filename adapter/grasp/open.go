package grasp

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"

	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/adapter/internal/settings"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Open is the short way to [New]: it makes a GRASP server of a relay, for the repositories whose
// announcements list the domain ("grasp.example.com", or with a port or a path). Their git data
// goes into "git" in the folder, what is to survive a restart into "state", and what an operator decides
// by [Server.Control] into "rules"; the folder belongs to this process, and is on the same disk as the
// events. Relays to begin with are URLs, or just their
// hosts. What happens is logged by [log/slog.Default], and the relay speaks NIP-77. A domain such as "127.0.0.1:3334" is for
// trying it out: relays and git servers on this machine are reached then, without encryption as
// well, which else nobody is. ctx bounds Open only.
//
// Whoever wants anything otherwise takes New.
func Open(ctx context.Context, relay *khatru.Relay, backend eventstore.Store, domain, folder string, bootstrap ...string) (*Server, error) {
	set, err := settings.Open(domain, folder, bootstrap)
	if err != nil {
		return nil, fmt.Errorf("GRASP server: %w", err)
	}
	book, kept, err := set.OpenRules(ctx, folder)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("GRASP server: %w", err), set.Records.Close())
	}
	s, err := New(ctx, relay, backend, set.Identity, Config{
		Dir: filepath.Join(folder, "git"), State: set.Records, Rules: book, Egress: set.Egress, Logger: set.Logger,
		Sync: relaysync.Config{Bootstrap: set.Bootstrap, AllowPlaintext: set.Plaintext},
	})
	if err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	s.parts.Records = kept
	relay.Negentropy = true
	return s, nil
}

// ListenAndServe runs the server, at an address such as "127.0.0.1:3334", until ctx ends; see
// [gate.Serve]. Close is to be called after it.
func (s *Server) ListenAndServe(ctx context.Context, address string) error {
	return gate.ListenAndServe(ctx, address, s.Handler(), s.Run)
}
