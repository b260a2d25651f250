package khatruadapter

import (
	"errors"
	"fmt"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"

	"github.com/graspsync/graspsync/adapter/internal/settings"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Open embeds graspsync with defaults in a relay that stores only git repositories whose
// announcements list domain, such as "grasp.example.com", which may have a port or a path. Records
// that survive a restart go to "state" in the folder. Only one process can use the folder.
// bootstrap lists URLs or hosts of relays to follow before a repository is known.
//
// Open logs to [log/slog.Default] and enables NIP-77. With a domain on loopback, such as
// "127.0.0.1:3334", it also connects to relays on loopback and without TLS. For other settings, or
// a relay that stores other events too, call [New].
func Open(relay *khatru.Relay, backend eventstore.Store, domain, folder string, bootstrap ...string) (*Sync, error) {
	set, err := settings.Open(domain, folder, bootstrap)
	if err != nil {
		return nil, fmt.Errorf("khatru adapter: %w", err)
	}
	s, err := New(relay, backend, set.Identity, Config{
		ApplyPolicyToClients: true, Egress: set.Egress,
		Sync: relaysync.Config{Bootstrap: set.Bootstrap, AllowPlaintext: set.Plaintext, Logger: set.Logger, State: set.Records},
	})
	if err != nil {
		return nil, errors.Join(err, set.Records.Close())
	}
	s.core.Records = set.Records
	relay.Negentropy = true
	return s, nil
}
