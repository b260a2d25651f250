package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// Errors of operator actions.
var (
	// ErrUnknownRelay reports that a relay is not followed.
	ErrUnknownRelay = errors.New("relay not followed")
	// ErrUnusableRelay reports that a relay cannot be followed because it is this server, or not
	// encrypted although encryption is required.
	ErrUnusableRelay = errors.New("relay can't be followed")
)

// Retry dials a relay in the next free slot in spite of earlier failures, and repeats its
// unanswered requests. The attempt limit of its address (package egress) still applies. Retry
// blocks until Run has accepted the request. The error is that of ctx, [ErrNotRunning], or wraps
// [ErrUnknownRelay].
func (m *SyncManager) Retry(ctx context.Context, relay graspsync.RelayURL) error {
	return m.order(ctx, &relayOrder{relay: relay, in: plan.Retry{Relay: relay}})
}

// Resync compares all targets of a relay again. A disconnected relay is dialed immediately.
// Blocking and errors are as for Retry.
func (m *SyncManager) Resync(ctx context.Context, relay graspsync.RelayURL) error {
	return m.order(ctx, &relayOrder{relay: relay, in: plan.Resync{Relay: relay}})
}

// ResyncRepository fetches all events of a repository again from all its relays. Disconnected
// relays are dialed immediately. The error is that of ctx, [ErrNotRunning], or wraps
// [ErrUnknownRepo].
func (m *SyncManager) ResyncRepository(ctx context.Context, ref graspsync.RepoRef) error {
	q := &repoResync{ref: ref}
	err := m.ask(ctx, q)
	switch {
	case err != nil:
		return fmt.Errorf("asking for %s again: %w", ref, err)
	case !q.known:
		return fmt.Errorf("%w: %s", ErrUnknownRepo, ref)
	}
	return nil
}

type repoResync struct {
	ref   graspsync.RepoRef
	known bool // the answer
}

func (q *repoResync) handle(ctx context.Context, l *loop) {
	var status plan.RepoStatus
	if status, q.known = l.plan.RepoStatus(q.ref); !q.known {
		return
	}
	l.step(ctx, plan.ResyncRepo{Ref: q.ref})
	for _, r := range status.Relays {
		if l.conns[r.Relay] == nil {
			l.forgive(r.Relay)
			l.step(ctx, plan.Retry{Relay: r.Relay})
		}
	}
}

// AddBootstrap follows a relay like [Config.Bootstrap] until Run ends or RemoveBootstrap is called.
// A blocked relay is followed after its block is lifted. The error is that of ctx, [ErrNotRunning],
// or wraps [ErrUnusableRelay].
func (m *SyncManager) AddBootstrap(ctx context.Context, relay graspsync.RelayURL) error {
	switch t := m.relayFilter; {
	case relay.IsZero(), t.ours(relay):
		return fmt.Errorf("%w: %q is ourselves, or none", ErrUnusableRelay, relay)
	case t.tooPlain(relay):
		return fmt.Errorf("%w: %s is not encrypted", ErrUnusableRelay, relay)
	}
	return m.ask(ctx, &bootstrapChange{relay: relay})
}

// RemoveBootstrap ends the special treatment of a bootstrap relay. The relay is dropped unless a
// repository lists it. The error is that of ctx, [ErrNotRunning], or wraps [ErrUnknownRelay] if it
// was no bootstrap relay.
func (m *SyncManager) RemoveBootstrap(ctx context.Context, relay graspsync.RelayURL) error {
	q := &bootstrapChange{relay: relay, remove: true}
	err := m.ask(ctx, q)
	if err == nil && !q.was {
		return fmt.Errorf("%w as a bootstrap relay: %s", ErrUnknownRelay, relay)
	}
	return err
}

// RulesChanged must be called after a change of [Config.Rules]. When it returns, blocked relays are
// disconnected. The hosted repositories are updated later, after the Store was read again. Events
// that wait for a dependency in lifted ([graspsync.OnRuleRemoved], [graspsync.OnOperatorRequest])
// are judged or requested again. The error is that of ctx, or [ErrNotRunning].
func (m *SyncManager) RulesChanged(ctx context.Context, lifted ...graspsync.Dependency) error {
	if err := m.ask(ctx, rulesChange{}); err != nil {
		return err
	}
	m.ingest.reprocess.wakeFor(pending.KeysOf(lifted))
	return nil
}

// relayOrder passes the plan an input about a followed relay.
type relayOrder struct {
	relay graspsync.RelayURL
	in    plan.Input
	known bool // the answer
}

func (q *relayOrder) handle(ctx context.Context, l *loop) {
	if q.known = l.plan.Knows(q.relay); q.known {
		l.forgive(q.relay)
		l.step(ctx, q.in)
	}
}

func (m *SyncManager) order(ctx context.Context, q *relayOrder) error {
	err := m.ask(ctx, q)
	if err == nil && !q.known {
		err = fmt.Errorf("%w: %s", ErrUnknownRelay, q.relay)
	}
	return err
}

func (l *loop) forgive(u graspsync.RelayURL) {
	l.m.health.Forgive(u)
	l.m.persistence.health(u)
}

type bootstrapChange struct {
	relay  graspsync.RelayURL
	remove bool
	was    bool // the answer: it was a bootstrap relay
}

func (q *bootstrapChange) handle(ctx context.Context, l *loop) {
	i := slices.Index(l.bootstrap, q.relay)
	q.was = i >= 0
	switch {
	case !q.remove:
		if !q.was {
			l.bootstrap = append(l.bootstrap, q.relay)
		}
		l.followBootstrap(ctx)
		return
	case q.was:
		l.bootstrap = slices.Delete(l.bootstrap, i, i+1)
	}
	l.step(ctx, plan.Bootstrap{Relay: q.relay, Not: true})
}

func (l *loop) followBootstrap(ctx context.Context) {
	if !l.started {
		return
	}
	for _, u := range l.bootstrap {
		l.step(ctx, plan.Bootstrap{Relay: u, Not: l.m.relayFilter.blocked(u)})
	}
}

// rulesChange applies changed rules: to relays immediately, to repositories after the Store is
// read.
type rulesChange struct{}

func (rulesChange) handle(ctx context.Context, l *loop) {
	if !l.started {
		l.scanAgain = l.scanning // the scan may have used the old rules
		return
	}
	l.followBootstrap(ctx)
	l.m.self.tellAll()
	l.window = nil
	l.closeWindow(ctx)
	if l.scanAgain = l.scanning; !l.scanning {
		l.scan(ctx)
	}
}
