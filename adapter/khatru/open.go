package khatruadapter

import (
	"errors"
	"fmt"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"

	"github.com/graspsync/graspsync/adapter/internal/settings"
)

// Open embeds graspsync with defaults in a relay that stores only repositories whose announcements list
// domain, such as "grasp.example.com", with an optional port or path. Records go to "state" in the
// folder, which only one process can use. bootstrap lists relays to follow from the start. Open logs to
// [log/slog.Default] and enables NIP-77. With a domain on loopback it connects to loopback, also
// without TLS.
func Open(relay *khatru.Relay, backend eventstore.Store, domain, folder string, bootstrap ...string) (*Sync, error) {
	set, err := settings.Open(domain, folder, bootstrap)
	if err != nil {
		return nil, fmt.Errorf("khatru adapter: %w", err)
	}
	s, err := New(relay, backend, set.Identity, Config{ApplyPolicyToClients: true, Egress: set.Egress, Sync: set.Sync})
	if err != nil {
		return nil, errors.Join(err, set.Records.Close())
	}
	s.core.Records = set.Records
	relay.Negentropy = true
	return s, nil
}
