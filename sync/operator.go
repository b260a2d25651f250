package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// Sentinels of what an operator wants done.
var (
	// ErrUnknownRelay is wrapped where a relay is not followed.
	ErrUnknownRelay = errors.New("relay not followed")
	// ErrUnusableRelay is wrapped where a relay can't be one to begin with: it is ourselves, or
	// is reached without encryption, and that is not allowed.
	ErrUnusableRelay = errors.New("relay can't be followed")
)

// Retry has a relay dialed as soon as there is room for one more attempt, however often it failed,
// and what it failed to answer asked again. That the budget of its address allows the attempt
// (package egress) is not for us to say. It waits for Run to be called and returns when that has
// taken note. The error is that of ctx, [ErrNotRunning], or wraps [ErrUnknownRelay].
func (m *SyncManager) Retry(ctx context.Context, relay graspsync.RelayURL) error {
	return m.withRelay(ctx, relay, func(ctx context.Context, l *loop) {
		l.forgive(relay)
		l.step(ctx, plan.Retry{Relay: relay})
	})
}

// Resync has everything compared again that a relay has for us: on the connection that stands, or
// with the next one, which is tried at once. What it says of time and errors is that of Retry.
func (m *SyncManager) Resync(ctx context.Context, relay graspsync.RelayURL) error {
	return m.withRelay(ctx, relay, func(ctx context.Context, l *loop) {
		l.forgive(relay)
		l.step(ctx, plan.Resync{Relay: relay})
	})
}

// ResyncRepository has all relays of a repository asked again for all that belongs to it. One that
// is not connected is tried at once. The error is that of ctx, [ErrNotRunning], or wraps
// [ErrUnknownRepo].
func (m *SyncManager) ResyncRepository(ctx context.Context, ref graspsync.RepoRef) error {
	known := false
	err := m.command(ctx, func(ctx context.Context, l *loop) {
		var status plan.RepoStatus
		if status, known = l.plan.RepoStatus(ref); !known {
			return
		}
		l.step(ctx, plan.ResyncRepo{Ref: ref})
		for _, r := range status.Relays {
			if l.conns[r.Relay] == nil {
				l.forgive(r.Relay)
				l.step(ctx, plan.Retry{Relay: r.Relay})
			}
		}
	})
	switch {
	case err != nil:
		return fmt.Errorf("asking for %s again: %w", ref, err)
	case !known:
		return fmt.Errorf("%w: %s", ErrUnknownRepo, ref)
	}
	return nil
}

// AddBootstrap has a relay followed as [Config.Bootstrap] has it, until Run ends or RemoveBootstrap
// is called. One that is blocked is once it is not any more. The error is that of ctx,
// [ErrNotRunning], or wraps [ErrUnusableRelay].
func (m *SyncManager) AddBootstrap(ctx context.Context, relay graspsync.RelayURL) error {
	switch t := m.loop.env.targeting; {
	case relay.IsZero(), t.ours(relay):
		return fmt.Errorf("%w: %q is ourselves, or none", ErrUnusableRelay, relay)
	case t.tooPlain(relay):
		return fmt.Errorf("%w: %s is not encrypted", ErrUnusableRelay, relay)
	}
	return m.command(ctx, func(ctx context.Context, l *loop) { l.addBootstrap(ctx, relay) })
}

// RemoveBootstrap has a relay be one like any other: it is left unless a repository lists it. The
// error is that of ctx, [ErrNotRunning], or wraps [ErrUnknownRelay] if it was no bootstrap relay.
func (m *SyncManager) RemoveBootstrap(ctx context.Context, relay graspsync.RelayURL) error {
	was := false
	err := m.command(ctx, func(ctx context.Context, l *loop) { was = l.removeBootstrap(ctx, relay) })
	if err == nil && !was {
		return fmt.Errorf("%w as a bootstrap relay: %s", ErrUnknownRelay, relay)
	}
	return err
}

// Reconsider must be called after [Config.Rules] have changed. Relays that are blocked are left when
// it returns; which repositories are ours is known a moment later, when the Store was read again.
// What is fulfilled by lifted, as [graspsync.OnLifted] or [graspsync.OnAsked], is judged again, or asked for again. The
// error is that of ctx, or [ErrNotRunning].
func (m *SyncManager) Reconsider(ctx context.Context, lifted ...graspsync.Dependency) error {
	err := m.command(ctx, func(ctx context.Context, l *loop) { l.reconsider(ctx) })
	if err != nil {
		return err
	}
	m.ingest.news.wakeFor(pending.KeysOf(lifted))
	return nil
}

// withRelay has the loop do something about a relay that is followed.
func (m *SyncManager) withRelay(ctx context.Context, relay graspsync.RelayURL, do func(ctx context.Context, l *loop)) error {
	known, meant := false, graspsync.RelayURL{}
	err := m.command(ctx, func(ctx context.Context, l *loop) {
		if known = l.plan.Knows(relay); known {
			do(ctx, l)
		} else if other := otherScheme(relay); l.plan.Knows(other) {
			meant = other
		}
	})
	switch {
	case err != nil || known:
		return err
	case !meant.IsZero():
		return fmt.Errorf("%w: %s; did you mean %s?", ErrUnknownRelay, relay, meant)
	}
	return fmt.Errorf("%w: %s", ErrUnknownRelay, relay)
}

// otherScheme is a relay at the same host and port with the other scheme, the zero RelayURL if that
// is none.
func otherScheme(u graspsync.RelayURL) graspsync.RelayURL {
	scheme := "ws://"
	if u.Plaintext() {
		scheme = "wss://"
	}
	_, rest, _ := strings.Cut(u.String(), "://")
	other, err := graspsync.ParseRelayURL(scheme + rest)
	if err != nil {
		return graspsync.RelayURL{}
	}
	return other
}

// forgive has a relay's failures of the past keep it from nothing.
func (l *loop) forgive(u graspsync.RelayURL) {
	l.env.health.Forgive(u)
	l.env.remember.health(u)
}

func (l *loop) addBootstrap(ctx context.Context, u graspsync.RelayURL) {
	if !slices.Contains(l.bootstrap, u) {
		l.bootstrap = append(l.bootstrap, u)
	}
	l.followBootstrap(ctx)
}

func (l *loop) removeBootstrap(ctx context.Context, u graspsync.RelayURL) (was bool) {
	n := len(l.bootstrap)
	l.bootstrap = slices.DeleteFunc(l.bootstrap, func(o graspsync.RelayURL) bool { return o == u })
	l.step(ctx, plan.Bootstrap{Relay: u, Not: true})
	return len(l.bootstrap) < n
}

// followBootstrap has the plan know the relays that are followed in any case, once it is known what
// is stored.
func (l *loop) followBootstrap(ctx context.Context) {
	if !l.started {
		return
	}
	for _, u := range l.bootstrap {
		l.step(ctx, plan.Bootstrap{Relay: u, Not: l.env.targeting.blocked(u)})
	}
}

// reconsider acts on other rules: at once on what they say of relays, and once the Store was read on
// what they say of repositories.
func (l *loop) reconsider(ctx context.Context) {
	if !l.started {
		l.scanAgain = l.scanning // it may have asked the rules already
		return
	}
	l.followBootstrap(ctx)
	l.env.feed.tellAll()
	l.window = nil
	l.closeWindow(ctx)
	if l.scanAgain = l.scanning; !l.scanning {
		l.scan(ctx)
	}
}
