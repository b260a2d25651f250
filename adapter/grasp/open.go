package grasp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"

	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/adapter/internal/settings"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/state/filestate"
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
	kept := closers{set.Records}
	decided, err := filestate.Open(filepath.Join(folder, "rules"), filestate.Config{Logger: set.Logger})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("GRASP server: opening the rules: %w", err), kept.Close())
	}
	kept = append(kept, decided)
	s, err := openWith(ctx, relay, backend, set, folder, decided)
	if err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	s.records = kept
	relay.Negentropy = true
	return s, nil
}

// openWith has the rules in records of their own: those of a server may be lost, and who is blocked is
// not to come back by that.
func openWith(
	ctx context.Context, relay *khatru.Relay, backend eventstore.Store, set settings.Settings, folder string, decided state.Store,
) (*Server, error) {
	if _, err := rules.Move(ctx, set.Records, decided); err != nil { // it was among them once
		return nil, err
	}
	book, err := rules.Open(ctx, decided, rules.Config{})
	if err != nil {
		return nil, err
	}
	return New(ctx, relay, backend, set.Identity, Config{
		Dir: filepath.Join(folder, "git"), State: set.Records, Rules: book, Egress: set.Egress, Logger: set.Logger,
		Sync: relaysync.Config{Bootstrap: set.Bootstrap, AllowPlaintext: set.Plaintext},
	})
}

// closers are closed together.
type closers []io.Closer

// Close implements [io.Closer].
func (all closers) Close() error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// ListenAndServe runs the server, at an address such as "127.0.0.1:3334", until ctx ends; see
// [gate.Serve]. Close is to be called after it.
func (s *Server) ListenAndServe(ctx context.Context, address string) error {
	return gate.ListenAndServe(ctx, address, s.Handler(), s.Run)
}
