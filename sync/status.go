package sync

import (
	"errors"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// Status is a snapshot of a [SyncManager]. It must not be changed.
type Status struct {
	At time.Time `json:"at"`
	// Synced reports whether at least one relay is followed, each reachable relay was fetched
	// completely and is followed live, no received event waits in the pipeline, and Git.Missing is
	// 0.
	Synced bool `json:"synced"`
	// Git counts the repositories by their git data. It is zero without [Config].Lacking.
	Git   GitStatus `json:"git"`
	Repos int       `json:"repos"` // repositories followed in full
	Roots int       `json:"roots"` // patches, pull requests and issues of these repositories
	// Unread reports that the Store has not been read since the start.
	Unread bool `json:"unread,omitempty"`
	// StoreError is the error of the last attempt to read the Store, "" after a success.
	StoreError string `json:"store_error,omitempty"`
	// Failures are the dependencies whose last call failed, such as "store save".
	Failures []graspsync.Failure `json:"failures,omitempty"`
	Relays   []RelayStatus       `json:"relays"`
	Events   EventStatus         `json:"events"`
}

// GitStatus counts the repositories whose stored or held announcements list this server.
type GitStatus struct {
	Complete int `json:"complete"` // have the git data of their newest state and pull requests
	Missing  int `json:"missing"`  // lack git data that a git server may still have
	// Unobtainable repositories lack git data that none of their servers returned, or that no event
	// names.
	Unobtainable int `json:"unobtainable"`
}

// All returns the total number of repositories.
func (g GitStatus) All() int { return g.Complete + g.Missing + g.Unobtainable }

// EventStatus counts events since the start.
type EventStatus struct {
	Received   uint64            `json:"received"` // received from relays, copies included
	Verified   uint64            `json:"verified"` // signatures checked
	Forged     uint64            `json:"forged"`   // wrong id or signature
	Stored     uint64            `json:"stored"`   // newly stored
	Superseded uint64            `json:"superseded"`
	Deleted    uint64            `json:"deleted"`
	Refused    uint64            `json:"refused"` // refused by the Store
	Held       uint64            `json:"held"`    // held by the Policy
	Failed     uint64            `json:"failed"`  // could not be judged or saved; retried
	InFlight   int64             `json:"in_flight"`
	Waiting    int64             `json:"waiting"` // events that wait for their dependencies
	Rejected   map[string]uint64 `json:"rejected"`
	Dropped    map[string]uint64 `json:"dropped"` // dropped by a limit, by reason
	Panics     map[string]uint64 `json:"panics"`  // recovered panics by component: store, policy, ..., connection
	Learned    map[string]uint64 `json:"learned"` // learned limits of relays, by name
	// Sources counts newly stored events by source: direct, live, catchup, daily.
	Sources map[string]uint64 `json:"sources"`
}

// RelayStatus is the state of one relay.
type RelayStatus struct {
	URL       graspsync.RelayURL `json:"url"`
	Phase     string             `json:"phase"`  // disconnected, connecting, syncing, live, live with gaps
	Health    string             `json:"health"` // healthy, disconnected, degraded, dead, rate limited
	Bootstrap bool               `json:"bootstrap"`
	Repos     int                `json:"repos"` // number of repositories that list it
	Synced    bool               `json:"synced"`

	// Items are repositories and root events.
	Wanted     int `json:"wanted"`
	InFlight   int `json:"in_flight"`
	Confirmed  int `json:"confirmed"`
	GapBatches int `json:"gap_batches"` // batches of this pass that ended with gaps

	// Descendants is the number of followed replies to root events, direct or indirect.
	Descendants int `json:"descendants"`

	LiveSubscriptions int `json:"live_subscriptions"`
	LiveFilters       int `json:"live_filters"`
	Unfollowed        int `json:"unfollowed"` // filters without room or refused by the relay
	// Following is the way in which new events arrive. "live" means subscriptions for all targets.
	// "live+kinds" means one subscription for all kinds if these have no room, and "live+polling"
	// requests in turn. "live in part" means that some filters cannot be sent, "" that the relay is
	// not connected or refuses all subscriptions.
	Following string `json:"following"`

	// Learned contains the limits learned from answers and refusals, by name. They expire.
	Learned map[string]int `json:"learned,omitempty"`

	Method   string `json:"method"` // REQ, NIP-77 or both
	Software string `json:"software"`
	Events   uint64 `json:"events"`       // received
	Stored   uint64 `json:"stored"`       // newly stored, first received from this relay
	Bytes    uint64 `json:"bytes"`        // received
	Unserved uint64 `json:"unserved"`     // announced events that the relay did not serve on request
	Seconds  uint64 `json:"full_seconds"` // seconds with more events than a page
	Gaps     uint64 `json:"gaps"`         // events of history that a live subscription should have delivered
	Lasting  uint64 `json:"lasting_gaps"` // Gaps that only the daily pass found
	Strikes  uint64 `json:"strikes"`      // proofs of hostility

	Connects       uint64 `json:"connects"` // successful attempts
	FailedAttempts uint64 `json:"failed_attempts"`
	Disconnects    uint64 `json:"disconnects"`
	Reconnects     uint64 `json:"reconnects"`
	Failures       int    `json:"failures"` // consecutive failures
	// UptimeShare is the connected share of the time since the first attempt, from 0 to 1.
	UptimeShare float64 `json:"uptime_share"`

	LastError   string    `json:"last_error"`
	NextAttempt time.Time `json:"next_attempt,omitzero"`

	phase  plan.Phase
	health health.State
}

// Connected reports whether the relay is connected.
func (r RelayStatus) Connected() bool {
	return r.Phase == plan.Syncing.String() || r.Phase == plan.Live.String() || r.Phase == plan.LiveWithGaps.String()
}

// Missing returns the number of unconfirmed items.
func (r RelayStatus) Missing() int { return max(0, r.Wanted-r.Confirmed) }

func (r RelayStatus) dead() bool { return r.health == health.Dead }

// Errors of questions about repositories.
var (
	// ErrUnknownRepo reports that a repository is not followed.
	ErrUnknownRepo = errors.New("repository not followed")
	// ErrNotRunning reports that Run has returned.
	ErrNotRunning = errors.New("not running")
)

// RepoStatus is the state of one repository.
type RepoStatus struct {
	Ref graspsync.RepoRef `json:"ref"`
	// Level is "full", or "state only" while the Policy holds its announcement.
	Level string `json:"level"`
	Roots int    `json:"roots"` // patches, pull requests and issues
	// Git is "complete", "missing" or "unobtainable", see [GitStatus], or "" without
	// [Config].Lacking.
	Git string `json:"git,omitempty"`

	// Items are the repository and its root events, once per relay, see [RelayStatus].
	Wanted    int `json:"wanted"`
	InFlight  int `json:"in_flight"`
	Confirmed int `json:"confirmed"`

	// Maintainers are the members of the maintainer set and the invited authors. Unled is the
	// reason why no author may change the refs, or 0.
	Maintainers []nip34.Person   `json:"maintainers,omitempty"`
	Unled       nip34.LeadSearch `json:"unled,omitzero"`

	Relays []RepoRelay `json:"relays"`
}

// RepoRelay is the state of a repository at one relay.
type RepoRelay struct {
	URL graspsync.RelayURL `json:"url"`
	// ListedBy is the author whose announcement lists the relay: the owner, or a maintainer listed
	// directly or indirectly. It is zero if the announcements have just changed.
	ListedBy  graspsync.PubKey `json:"listed_by,omitzero"`
	Phase     string           `json:"phase"` // as in [RelayStatus]
	Live      bool             `json:"live"`  // all items are followed live
	Wanted    int              `json:"wanted"`
	InFlight  int              `json:"in_flight"`
	Confirmed int              `json:"confirmed"`
}

// publish makes a new snapshot if something has changed, at least once per maxStatusPause.
func (l *loop) publish(now time.Time) {
	age := now.Sub(l.publishedAt)
	received, busy := l.m.telemetry.received.Load(), l.m.ingest.inflight.unsettled.Load() > 0
	if age < l.publishPause || !l.changed && !busy && received == l.publishedFor && age < maxStatusPause {
		return
	}
	l.changed, l.publishedFor, l.publishedAt = busy, received, now
	began := time.Now() // now may be the time of an older tick
	l.m.snapshot.Store(l.status(now))
	l.publishPause = max(minStatusPause, min(statusShare*time.Since(began), maxStatusPause))
}

func (l *loop) status(now time.Time) *Status {
	g, k := l.m.ingest, l.m.telemetry
	lost := l.m.health.Dropped()
	k.drop("health", int(lost-l.healthLost))
	l.healthLost = lost
	s := &Status{At: now, Unread: !l.started, StoreError: l.storeErr, Events: EventStatus{
		Received: k.received.Load(), Verified: k.verified.Load(),
		Forged: k.forged.Load(), Stored: k.results[graspsync.Stored].Load(), Superseded: k.results[graspsync.Superseded].Load(),
		Deleted: k.results[graspsync.Deleted].Load(), Refused: k.results[graspsync.Refused].Load(),
		Held: k.held.Load(), Failed: k.failed.Load(),
		InFlight: g.inflight.unsettled.Load(), Waiting: int64(g.rejected.Waiting()),
	}}
	k.reasons(&s.Events)
	s.Relays = []RelayStatus{}
	s.Repos, s.Roots = l.plan.Repos()
	quiet := l.started && !l.scanning && !l.m.self.pending() && s.Events.InFlight == 0 && g.rejected.Unsaved() == 0 &&
		(l.m.cfg.OwnRelay.IsZero() || l.m.own.connected.Load())
	s.Synced = quiet
	some := false // relays whose history is complete
	for _, p := range l.plan.Status() {
		r := l.relayStatus(p)
		r.Synced = quiet && (p.Phase == plan.Live || p.Phase == plan.LiveWithGaps) && p.InFlight == 0 &&
			p.Wanted == p.Confirmed && r.Following != ""
		unreachable := p.Phase <= plan.Connecting && r.Failures > 0
		s.Synced = s.Synced && (r.Synced || unreachable)
		some = some || r.Synced
		s.Relays = append(s.Relays, r)
	}
	s.Synced = s.Synced && some
	return s
}

func (l *loop) relayStatus(p plan.RelayStatus) RelayStatus {
	h := l.m.health.Status(p.Relay)
	r := RelayStatus{
		URL: p.Relay, Phase: p.Phase.String(), Health: h.State.String(), phase: p.Phase, health: h.State,
		Bootstrap: p.Bootstrap, Repos: p.Repos,
		Wanted: p.Wanted, InFlight: p.InFlight, Confirmed: p.Confirmed,
		Descendants:       p.Descendants,
		LiveSubscriptions: p.LiveSubs, LiveFilters: p.LiveFilters, Unfollowed: p.Unfollowed,
		Connects: h.Connections, FailedAttempts: h.FailedAttempts,
		Disconnects: h.Disconnects, Reconnects: h.Reconnects,
		Failures: h.Failures, GapBatches: p.Gaps, UptimeShare: h.UptimeShare(),
		Following: following(p),
	}
	if p.Phase == plan.Disconnected {
		r.NextAttempt = p.RetryAt
	}
	if st := l.stats[p.Relay]; st != nil {
		st.fill(&r)
		if _, _, cooled := st.learned(time.Now()); time.Now().Before(cooled.Until) && (h.Connected || h.Failures == 0) {
			r.health = health.RateLimited
			r.Health = r.health.String()
		}
	}
	if r.LastError == "" && h.Failures > 0 && p.Phase == plan.Disconnected { // an earlier process has logged it
		r.LastError = h.LastError
	}
	return r
}

func following(p plan.RelayStatus) string {
	switch {
	case p.Phase < plan.Syncing, p.LiveSubs == 0 && p.LiveMethod != plan.LivePolling:
		return "" // nothing is followed
	case p.Unfollowed > 0 && p.LiveMethod == plan.LiveAll:
		return "live in part"
	}
	return p.LiveMethod.String()
}

const levelFull = "full"

func repoStatus(p plan.RepoStatus, listers map[graspsync.RelayURL]graspsync.PubKey) RepoStatus {
	s := RepoStatus{
		Ref: p.Ref, Level: levelFull, Roots: p.Roots,
		Wanted: p.Wanted, InFlight: p.InFlight, Confirmed: p.Confirmed, Relays: []RepoRelay{},
	}
	if p.Level == plan.LevelStateOnly {
		s.Level = "state only"
	}
	for _, r := range p.Relays {
		s.Relays = append(s.Relays, RepoRelay{
			URL: r.Relay, ListedBy: listers[r.Relay], Phase: r.Phase.String(), Live: r.Live,
			Wanted: r.Wanted, InFlight: r.InFlight, Confirmed: r.Confirmed,
		})
	}
	return s
}

func b2i(is bool) int {
	if is {
		return 1
	}
	return 0
}

func total(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
