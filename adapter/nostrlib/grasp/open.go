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

// Open adds sync and purgatory with defaults to a GraspServer. It hosts the repositories whose
// announcements list domain, such as "grasp.example.com", which may have a port. The folder
// contains records that survive a restart in "state", and decisions of the operator
// ([Server.Control]) in "rules". Only one process can use it, and it must be on the same disk as
// the events and the repositories. bootstrap lists URLs or hosts of relays to follow before a
// repository is known.
//
// Open logs to [log/slog.Default] and enables NIP-77. With a domain on loopback, such as
// "127.0.0.1:3334", the server also connects to relays and git servers on loopback and without TLS.
// ctx limits Open only. For other settings call [New].
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
