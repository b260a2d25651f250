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
// announcements list domain, such as "grasp.example.com", with an optional port. The folder
// contains records in "state" and decisions of the operator in "rules". Only one process can use
// it, and it must be on the disk of the events and the repositories. bootstrap lists URLs or hosts
// of relays to follow from the start.
//
// Open logs to [log/slog.Default] and enables NIP-77. With a domain on loopback the server also
// connects to loopback and without TLS. ctx limits Open only.
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
