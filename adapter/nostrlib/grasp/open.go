package graspadapter

import (
	"context"
	"errors"
	"fmt"

	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/khatru/grasp"

	"github.com/graspsync/graspsync/adapter/internal/settings"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Open is the short way to [New]: it gives a GraspServer sync and purgatory, for the repositories whose
// announcements list the domain ("grasp.example.com", or with a port). What is to survive a restart goes
// into "state" in the folder, and what an operator decides by [Server.Control] into "rules"; the folder
// belongs to this process, and is on the same disk as the events and the repositories. Relays to begin with are
// URLs, or just their hosts. What happens is logged by [log/slog.Default], and the relay speaks NIP-77. A domain
// such as "127.0.0.1:3334" is for trying it out: relays and git servers on this machine are reached then, without
// encryption as well, which else nobody is. ctx bounds Open only.
//
// Whoever wants anything otherwise takes New.
func Open(ctx context.Context, gs *grasp.GraspServer, backend eventstore.Store, domain, folder string, bootstrap ...string) (*Server, error) {
	set, err := settings.Open(domain, folder, bootstrap)
	if err != nil {
		return nil, fmt.Errorf("GRASP server: %w", err)
	}
	book, kept, err := set.OpenRules(ctx, folder)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("GRASP server: %w", err), set.Records.Close())
	}
	s, err := New(ctx, gs, backend, set.Identity, Config{
		State: set.Records, Rules: book, Egress: set.Egress, Logger: set.Logger,
		Sync: relaysync.Config{Bootstrap: set.Bootstrap, AllowPlaintext: set.Plaintext},
	})
	if err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	s.parts.Records = kept
	gs.Relay.Negentropy = true
	return s, nil
}
