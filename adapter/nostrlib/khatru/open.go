package khatruadapter

import (
	"errors"
	"fmt"

	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/khatru"

	"github.com/graspsync/graspsync/adapter/internal/settings"
)

// Open is New with strings and defaults, like the Open of adapter/khatru.
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
