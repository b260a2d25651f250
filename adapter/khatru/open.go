package khatruadapter

import (
	"errors"
	"fmt"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"

	"github.com/graspsync/graspsync/adapter/internal/settings"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Open is the short way to [New]: it embeds graspsync in a relay for git repositories, of which
// announcements list the domain ("grasp.example.com", or with a port or a path), and nothing else.
// What is to survive a restart goes into "state" in the folder, which belongs to this process.
// Relays to begin with are URLs, or just their hosts. What happens is logged by
// [log/slog.Default], and the relay speaks NIP-77. A domain such as "127.0.0.1:3334" is for trying it out: relays on this
// machine are followed then, without encryption as well, which else nobody is.
//
// A relay that keeps other events as well, and whoever wants anything else otherwise, takes New.
func Open(relay *khatru.Relay, backend eventstore.Store, domain, folder string, bootstrap ...string) (*Sync, error) {
	set, err := settings.Open(domain, folder, bootstrap)
	if err != nil {
		return nil, fmt.Errorf("khatru adapter: %w", err)
	}
	s, err := New(relay, backend, set.Identity, Config{
		GateDirect: true, Egress: set.Egress,
		Sync: relaysync.Config{Bootstrap: set.Bootstrap, AllowPlaintext: set.Plaintext, Logger: set.Logger, State: set.Records},
	})
	if err != nil {
		return nil, errors.Join(err, set.Records.Close())
	}
	s.core.Records = set.Records
	relay.Negentropy = true
	return s, nil
}
