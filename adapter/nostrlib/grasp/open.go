package graspadapter

import (
	"context"
	"errors"
	"fmt"

	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/khatru/grasp"

	"github.com/graspsync/graspsync/adapter/internal/settings"
)

// Open is New with strings and defaults, like the Open of adapter/grasp, for a domain without path.
// The repositories stay in the folder of the GraspServer.
func Open(ctx context.Context, gs *grasp.GraspServer, backend eventstore.Store, domain, folder string, bootstrap ...string) (*Server, error) {
	set, err := settings.Open(domain, folder, bootstrap)
	if err != nil {
		return nil, fmt.Errorf("GRASP server: %w", err)
	}
	ruleSet, kept, err := set.OpenRules(ctx, folder)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("GRASP server: %w", err), set.Records.Close())
	}
	s, err := New(ctx, gs, backend, set.Identity, Config{
		State: set.Records, Rules: ruleSet, Egress: set.Egress, Logger: set.Logger, Sync: set.Sync,
	})
	if err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	s.parts.Records = kept
	gs.Relay.Negentropy = true
	return s, nil
}
