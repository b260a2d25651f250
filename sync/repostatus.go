package sync

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// Sentinels of what is asked about repositories.
var (
	// ErrUnknownRepo is wrapped by what RepoStatus returns for a repository that is
	// not followed.
	ErrUnknownRepo = errors.New("repository not followed")
	// ErrNotRunning is returned by questions that only Run can answer, once it has
	// returned.
	ErrNotRunning = errors.New("not running")
)

// RepoStatus is what is known of one repository.
type RepoStatus struct {
	Ref graspsync.RepoRef `json:"ref"`
	// Level is "full", or "state only" while its announcement is held by the Policy.
	Level string `json:"level"`
	Roots int    `json:"roots"` // patches, pull requests and issues

	// Items are the repository and its roots, of each relay; its states are one more
	// with [Config].NarrowLayer1.
	Wanted    int `json:"wanted"`
	InFlight  int `json:"in_flight"`
	Confirmed int `json:"confirmed"`

	// Authority says who has a say about its refs and why, or why nobody has, a line for
	// each; who is invited and has not agreed is named as well. It is nil if the Policy is no
	// [Authorizer].
	Authority []string `json:"authority,omitempty"`

	// Ours is how many events we have of it and its roots: those that tag them.
	Ours   int         `json:"ours"`
	Relays []RepoRelay `json:"relays"`
}

// RepoRelay is what one relay has to do with a repository.
type RepoRelay struct {
	URL graspsync.RelayURL `json:"url"`
	// ListedBy is whose announcement names it: the owner's, or that of somebody whom the
	// owner lists, recursively. Of several who name it who comes first by right counts. It is
	// zero if that has changed just now.
	ListedBy  graspsync.PubKey `json:"listed_by,omitzero"`
	Phase     string           `json:"phase"` // as in [RelayStatus]
	Live      bool             `json:"live"`  // all of it is followed live
	Wanted    int              `json:"wanted"`
	InFlight  int              `json:"in_flight"`
	Confirmed int              `json:"confirmed"`

	// Missed counts its events that the relay had and we should have had by then.
	Missed int `json:"missed"`
	// Lacks counts the events that we have and the relay has not, as of ComparedAt,
	// when its last reconciliation ended; Coverage is the share that it has, from 0 to
	// 1. All three are zero for a relay without NIP-77: nobody knows.
	Lacks      int       `json:"lacks"`
	Coverage   float64   `json:"coverage"`
	ComparedAt time.Time `json:"compared_at,omitzero"`
}

// RepoStatus returns what is known of one repository. It asks Run, so it waits for
// it to be called, and then the Store: about as long as reading the stamps of the
// repository's events. The error is that of ctx or the Store, [ErrNotRunning], or
// wraps [ErrUnknownRepo].
func (m *SyncManager) RepoStatus(ctx context.Context, ref graspsync.RepoRef) (RepoStatus, error) {
	var s RepoStatus
	known := false
	err := m.ask(ctx, func(l *loop) {
		var p plan.RepoStatus
		if p, known = l.plan.RepoStatus(ref); known {
			s = l.repoStatus(p)
		}
	})
	if err != nil {
		return RepoStatus{}, fmt.Errorf("asking about %s: %w", ref, err)
	}
	if !known {
		return RepoStatus{}, fmt.Errorf("%w: %s", ErrUnknownRepo, ref)
	}
	if policy, can := m.cfg.Policy.(Authorizer); can {
		if a := policy.Authority(ref, m.index); a != nil {
			s.Authority = strings.Split(strings.TrimSpace(a.String()), "\n")
		}
	}
	roots := m.index.rootsOf(ref)
	if s.Ours, err = m.count(ctx, append(filters.Repos([]graspsync.RepoRef{ref}), filters.Roots(roots)...)); err != nil {
		return RepoStatus{}, fmt.Errorf("counting the events of %s: %w", ref, err)
	}
	for i := range s.Relays {
		r := &s.Relays[i]
		if r.ComparedAt.IsZero() {
			continue
		}
		r.Coverage = 1
		if s.Ours > 0 {
			r.Coverage = max(0, 1-float64(r.Lacks)/float64(s.Ours))
		}
	}
	return s, nil
}

// Repositories yields what is known of each repository, in the order of their
// addresses. What RepoStatus says about time and errors holds for each of them; after an
// error nothing follows. One that is given up meanwhile is left out.
func (m *SyncManager) Repositories(ctx context.Context) iter.Seq2[RepoStatus, error] {
	return func(yield func(RepoStatus, error) bool) {
		var refs []graspsync.RepoRef
		if err := m.ask(ctx, func(l *loop) { refs = l.plan.Refs() }); err != nil {
			yield(RepoStatus{}, fmt.Errorf("asking for the repositories: %w", err))
			return
		}
		for _, ref := range refs {
			s, err := m.RepoStatus(ctx, ref)
			if errors.Is(err, ErrUnknownRepo) {
				continue
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// ask has the loop answer a question.
func (m *SyncManager) ask(ctx context.Context, question func(l *loop)) error {
	select {
	case <-m.ended:
		return ErrNotRunning
	default:
	}
	answered := make(chan struct{})
	m.post(asked{func(l *loop) {
		question(l)
		close(answered)
	}})
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		// What the question writes to must be left alone: the loop may be at it.
		return context.Cause(ctx)
	case <-m.ended:
		return ErrNotRunning
	}
}

func (l *loop) repoStatus(p plan.RepoStatus) RepoStatus {
	s := RepoStatus{
		Ref: p.Ref, Level: "full", Roots: p.Roots,
		Wanted: p.Wanted, InFlight: p.InFlight, Confirmed: p.Confirmed, Relays: []RepoRelay{},
	}
	if p.Level == plan.LevelStateOnly {
		s.Level = "state only"
	}
	listers := l.listers(p.Ref)
	for _, r := range p.Relays {
		relay := RepoRelay{
			URL: r.Relay, ListedBy: listers[r.Relay], Phase: r.Phase.String(), Live: r.Live,
			Wanted: r.Wanted, InFlight: r.InFlight, Confirmed: r.Confirmed,
		}
		if st := l.stats[r.Relay]; st != nil {
			relay.Lacks, relay.Missed, relay.ComparedAt = st.coverage.of(p.Ref)
		}
		s.Relays = append(s.Relays, relay)
	}
	return s
}

// listers returns who names the relays of a repository.
func (l *loop) listers(ref graspsync.RepoRef) map[graspsync.RelayURL]graspsync.PubKey {
	s := l.m.newTargets()
	s.give(l.held)
	by := make(map[graspsync.RelayURL]graspsync.PubKey)
	relays, _ := s.of(ref)
	for _, r := range relays {
		by[r.Relay] = r.By
	}
	return by
}

// count counts the stored events that match any of the filters, each once.
func (m *SyncManager) count(ctx context.Context, fs []nostr.Filter) (n int, err error) {
	defer m.counters.recovered(&err, "store")
	seen := make(map[graspsync.EventID]struct{})
	for _, f := range fs {
		for st, err := range m.store.Stamps(ctx, f) {
			if err != nil {
				return 0, err
			}
			if len(seen) >= m.cfg.fixed.MaxSet {
				return len(seen), nil
			}
			seen[st.ID] = struct{}{}
		}
	}
	return len(seen), nil
}

// rootsOf returns the root events of a repository that are known.
func (x *index) rootsOf(ref graspsync.RepoRef) []graspsync.EventID {
	x.mu.RLock()
	defer x.mu.RUnlock()
	r := x.tables.repos[ref]
	if r == nil {
		return nil
	}
	ids := make([]graspsync.EventID, 0, len(r.roots))
	for id := range r.roots {
		ids = append(ids, id)
	}
	return ids
}
