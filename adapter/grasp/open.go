package grasp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"

	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/adapter/internal/settings"
)

// Open makes a GRASP server of a relay with the defaults of a public server. It hosts the repositories
// whose announcements list domain, such as "grasp.example.com", with an optional port or path. The
// folder has git data in "git", records in "state", and the operator's decisions in "rules". Only one
// process can use it, and it must be on the disk of the events. bootstrap lists relays to follow from
// the start. ctx limits Open only.
//
// Open logs to [log/slog.Default], enables NIP-77, and completes name and NIPs of the relay's
// document. With a domain on loopback the server also connects to loopback and without TLS.
func Open(ctx context.Context, relay *khatru.Relay, backend eventstore.Store, domain, folder string, bootstrap ...string) (*Server, error) {
	set, err := settings.Open(domain, folder, bootstrap)
	if err != nil {
		return nil, fmt.Errorf("GRASP server: %w", err)
	}
	ruleSet, kept, err := set.OpenRules(ctx, folder)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("GRASP server: %w", err), set.Records.Close())
	}
	s, err := New(ctx, relay, backend, set.Identity, Config{
		Dir: filepath.Join(folder, "git"), State: set.Records, Rules: ruleSet, Egress: set.Egress, Logger: set.Logger, Sync: set.Sync,
	})
	if err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	s.parts.Records = kept
	relay.Negentropy = true
	relay.Info.Name = cmp.Or(relay.Info.Name, domain)
	relay.Info.AddSupportedNIPs([]int{34, 62})
	if reflect.ValueOf(relay.ManagementAPI).IsZero() { // khatru lists NIP-86 also without a method
		relay.Info.SupportedNIPs = slices.DeleteFunc(relay.Info.SupportedNIPs, func(n any) bool { return n == 86 })
	}
	return s, nil
}

// ListenAndServe serves at an address until ctx ends, see [gate.Serve]. Call Close after it.
func (s *Server) ListenAndServe(ctx context.Context, address string) error {
	return gate.ListenAndServe(ctx, address, s.Handler(), func(ctx context.Context) error {
		s.log.Info("serving", "address", address)
		return s.Run(ctx)
	})
}
