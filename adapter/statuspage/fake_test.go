package statuspage_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

// server is one whose state tests decide.
type server struct {
	mu     sync.Mutex
	status relaysync.Status
	git    purgatory.Status
	refs   []graspsync.RepoRef

	statuses, outlines atomic.Int64
}

func (s *server) Status() relaysync.Status {
	s.statuses.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *server) RepoRefs(context.Context) ([]graspsync.RepoRef, error) { return s.refs, nil }

func (s *server) RepoStatus(_ context.Context, refs ...graspsync.RepoRef) (out []relaysync.RepoStatus, err error) {
	s.outlines.Add(1)
	for _, ref := range refs {
		r, err := s.of(ref)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func (s *server) of(ref graspsync.RepoRef) (relaysync.RepoStatus, error) {
	i := slices.Index(s.refs, ref)
	if i < 0 {
		return relaysync.RepoStatus{}, relaysync.ErrUnknownRepo
	}
	r := relaysync.RepoStatus{Ref: ref, Level: "full", Roots: i % 40, Wanted: 30, Confirmed: 30 - i%3, InFlight: i % 3}
	for n := range min(4, len(s.status.Relays)) {
		rel := s.status.Relays[(i+n)%len(s.status.Relays)]
		r.Relays = append(r.Relays, relaysync.RepoRelay{
			URL: rel.URL, Phase: rel.Phase, Live: rel.Phase == "live", Wanted: 8, Confirmed: 7,
		})
	}
	return r, nil
}

// gitOf is the purgatory of a server.
type gitOf struct{ *server }

func (s gitOf) Status() purgatory.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.git
}

// change changes what a server says.
func (s *server) change(f func(*relaysync.Status, *purgatory.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Relays = slices.Clone(s.status.Relays)
	f(&s.status, &s.git)
}

// large is a server with so many relays and repositories.
func large(relays, repos int) *server {
	now := time.Now()
	s := &server{status: relaysync.Status{At: now, Repos: repos, Roots: 9 * repos, Events: relaysync.EventStatus{
		Received: 1_234_567, Verified: 330_000, Stored: 210_000, InFlight: 37, Waiting: 12,
		Rejected: map[string]uint64{"blocked: announcement does not list this service": 5312, "blocked: too large": 3},
		Dropped:  map[string]uint64{"relays_listed": 41, "not_dialed": 17, "unsaved": 2, "named_later": 1},
		Panics:   map[string]uint64{}, Learned: map[string]uint64{"max_filters": 12},
		Sources: map[string]uint64{"live": 1200, "catchup": 208_000, "daily": 4, "direct": 796},
	}}}
	phases, healths := []string{"live", "live", "live with gaps", "syncing", "disconnected", "connecting"}, []string{"healthy", "healthy", "degraded", "healthy", "dead", "disconnected"}
	for i := range relays {
		u, err := graspsync.ParseRelayURL(fmt.Sprintf("wss://relay%03d.example.com", i))
		if err != nil {
			panic(err)
		}
		k := (i * 7) % 6
		r := relaysync.RelayStatus{
			URL: u, Phase: phases[k], Health: healths[k], Bootstrap: i == 0, Repos: 3 + i%50, Wanted: 120 + i, Confirmed: 120 + i - (i*13)%60,
			InFlight: 4, LiveSubscriptions: 3, LiveFilters: 12, Following: "live", Method: "NIP-77", Software: "strfry 1.0.4",
			Events: uint64(1000 * i), Stored: uint64(90 * i), Bytes: uint64(400_000 * i), Gaps: uint64(i % 3), UptimeShare: 0.97,
			Connects: 3, FailedAttempts: 1,
		}
		if k == 4 {
			r.Failures, r.LastError, r.NextAttempt, r.UptimeShare = 7, "dial tcp: lookup relay.example.com: no such host", now.Add(42*time.Minute), 0.1
			r.Lasting = 3
		}
		s.status.Relays = append(s.status.Relays, r)
	}
	for i := range repos {
		var owner graspsync.PubKey
		owner[0], owner[1], owner[31] = byte(i), byte(i>>8), 1
		s.refs = append(s.refs, graspsync.RepoRef{Owner: owner, Identifier: fmt.Sprintf("project-%04d", i)})
	}
	slices.SortFunc(s.refs, graspsync.RepoRef.Compare)
	s.git = purgatory.Status{
		At: now, Announcements: 14, States: 33, PullRequests: 120, Held: 900, Ended: map[purgatory.EventCode]uint64{purgatory.Released: 700, purgatory.Expired: 31}, Fetches: 812, Failed: 97, Fetched: 3 << 30, Queue: 9,
		Dropped: map[string]uint64{"busy": 12, "author": 4}, Panics: map[string]uint64{},
	}
	for i := range min(100, repos) {
		s.git.Waiting = append(s.git.Waiting, purgatory.EventState{
			ID: graspsync.EventID{byte(i), 17}, Class: []string{"state", "pull request", "announcement"}[i%3], Repos: s.refs[i : i+1],
			Since: now.Add(-time.Duration(i) * time.Minute), Deadline: now.Add(time.Duration(i+1) * time.Minute), Missing: i % 4,
		})
	}
	for i := range min(60, relays) {
		d := purgatory.DomainStatus{Domain: fmt.Sprintf("git%02d.example.com:443", i), Requests: uint64(40 + i), Failed: uint64(i % 9), LastRequest: now.Add(-time.Duration(i) * time.Minute)}
		if d.Failed > 0 {
			d.LastFailure, d.LastError = now.Add(-time.Duration(i)*time.Hour), "repository not found"
		}
		s.git.Domains = append(s.git.Domains, d)
	}
	return s
}
