package sync

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// Status is what a [SyncManager] knows at one moment. It must not be changed.
type Status struct {
	At time.Time `json:"at"`
	// Synced: every relay that can be reached was fetched from to its end, and
	// nothing that came is on its way any more. Never while there are relays and none
	// can be reached.
	Synced bool          `json:"synced"`
	Repos  int           `json:"repos"` // followed in full
	Roots  int           `json:"roots"` // their patches, pull requests and issues
	Relays []RelayStatus `json:"relays"`
	Events EventStatus   `json:"events"`
	// OwnFeed is nil without [Config.OwnRelay].
	OwnFeed *OwnFeedStatus `json:"own_feed,omitempty"`

	gone    RelayStatus // counts of forgotten relays that shared the label "other"
	goneAny bool        // there were any
	last    bool        // Run has returned
}

// statusAge is how old the times of a status may be.
const statusAge = time.Second

// at returns what the status is at now: what depends on nothing but the time that has
// passed since, which is not worth a new one.
func (s *Status) at(now time.Time) *Status {
	passed := now.Sub(s.At)
	if s.last || s.At.IsZero() || passed < statusAge {
		return s
	}
	t := *s
	t.At = now
	t.Relays = slices.Clone(s.Relays)
	for i := range t.Relays {
		r := &t.Relays[i]
		switch {
		case r.connected():
			r.Uptime += passed
		case r.Attempts > 0:
			r.Downtime += passed
		}
		r.UptimeShare = health.Status{Uptime: r.Uptime, Downtime: r.Downtime}.UptimeShare()
		if !r.RateLimitedUntil.After(now) {
			r.RateLimitedUntil = time.Time{}
		}
	}
	return &t
}

// EventStatus counts events since the start.
type EventStatus struct {
	Received   uint64            `json:"received"`   // from relays, copies included
	Duplicates uint64            `json:"duplicates"` // dropped before their signature was checked
	Verified   uint64            `json:"verified"`   // signatures checked
	Forged     uint64            `json:"forged"`     // wrong id or signature
	Stored     uint64            `json:"stored"`     // newly
	Superseded uint64            `json:"superseded"`
	Deleted    uint64            `json:"deleted"`
	Refused    uint64            `json:"refused"` // by the Store
	Held       uint64            `json:"held"`    // by the Policy
	Failed     uint64            `json:"failed"`  // could not be judged or saved; tried again
	InFlight   int64             `json:"in_flight"`
	Waiting    int64             `json:"waiting"` // for what they depend on
	Rejected   map[string]uint64 `json:"rejected"`
	Dropped    map[string]uint64 `json:"dropped"` // by a bound
	Panics     map[string]uint64 `json:"panics"`  // contained, by whose code: store, policy, ..., connection
	Learned    map[string]uint64 `json:"learned"` // from relays, by fact
	// Sources counts what was newly stored by the way it came: direct, live, catchup,
	// daily.
	Sources map[string]uint64 `json:"sources"`
}

// RelayStatus is what is known of one relay.
type RelayStatus struct {
	URL       graspsync.RelayURL `json:"url"`
	Phase     string             `json:"phase"`  // disconnected, connecting, syncing, live, live with gaps
	Health    string             `json:"health"` // healthy, disconnected, degraded, dead, rate limited
	Bootstrap bool               `json:"bootstrap"`
	Repos     int                `json:"repos"` // that list it
	// Examples are up to three of these.
	Examples []graspsync.RepoRef `json:"examples,omitempty"`
	Synced   bool                `json:"synced"`

	// Items: layer 1, repositories and root events; the states of each repository with
	// [Config].NarrowLayer1.
	Wanted    int `json:"wanted"`
	InFlight  int `json:"in_flight"`
	Confirmed int `json:"confirmed"`
	// Batches of items are under way; Queries, their filters, have not ended; of
	// these so many Requests for pages and ids are open, and so many reconcile.
	Batches     int `json:"batches"`
	Queries     int `json:"queries"`
	Requests    int `json:"requests"`
	Reconciling int `json:"reconciling"`
	Parked      int `json:"parked"`      // batches that failed and wait to be tried again
	GapBatches  int `json:"gap_batches"` // batches of this pass that ended with gaps

	// Descendants are answers to root events, answers to these, and so on, about which it is
	// asked besides; DescendantsLive of these are followed, the others asked about in turn.
	Descendants     int `json:"descendants"`
	DescendantsLive int `json:"descendants_live"`

	LiveSubscriptions int `json:"live_subscriptions"`
	LiveFilters       int `json:"live_filters"`
	Unfollowed        int `json:"unfollowed"` // filters that found no room, or that the relay refuses
	// Following says how what is wanted is followed: "live" by standing
	// subscriptions; where the relay has no room for all, "live+kinds" by one for all
	// that is of our kinds, or "live+polling" by asking in rotation; "live in part" if
	// some filters can't be sent at all; "" while it is not connected.
	Following string `json:"following"`

	// Learned is what the relay taught by refusing and answering, by name:
	// no_negentropy, max_filters, page_size, ... It is believed for a while.
	Learned map[string]int `json:"learned,omitempty"`

	Method   string `json:"method"` // REQ, NIP-77 or both
	Software string `json:"software"`
	Events   uint64 `json:"events"`       // received
	Stored   uint64 `json:"stored"`       // newly, that came from here first
	Bytes    uint64 `json:"bytes"`        // received
	Missing  uint64 `json:"missing"`      // events that it announced and did not serve
	Seconds  uint64 `json:"full_seconds"` // that hold more events than a page
	Gaps     uint64 `json:"gaps"`         // events that a live subscription should have brought
	Lasting  uint64 `json:"lasting_gaps"` // of these, found by the daily pass only
	// Lacks counts the events of repositories that list the relay which we have and
	// it does not, as its last pass over history found by NIP-77, at ComparedAt (zero:
	// it was never compared). At most 2,048 are counted.
	Lacks      int           `json:"lacks"`
	ComparedAt time.Time     `json:"compared_at,omitzero"`
	Strikes    uint64        `json:"strikes"`      // proofs of hostility
	SyncTime   time.Duration `json:"sync_time_ns"` // from connected to synced, 0 before

	Attempts       uint64 `json:"attempts"`
	Connects       uint64 `json:"connects"` // attempts that succeeded
	FailedAttempts uint64 `json:"failed_attempts"`
	Disconnects    uint64 `json:"disconnects"`
	Reconnects     uint64 `json:"reconnects"`
	Failures       int    `json:"failures"` // in a row
	// Uptime and Downtime are how long it was connected and not since the first
	// attempt; UptimeShare is the share of the former, from 0 to 1.
	Uptime      time.Duration `json:"uptime_ns"`
	Downtime    time.Duration `json:"downtime_ns"`
	UptimeShare float64       `json:"uptime_share"`

	LastError        string    `json:"last_error"`
	NextAttempt      time.Time `json:"next_attempt,omitzero"`
	RateLimitedUntil time.Time `json:"rate_limited_until,omitzero"`
	NextPass         time.Time `json:"next_pass,omitzero"` // over the whole history

	phase    plan.Phase
	health   health.State
	labelled bool // it has metrics of its own
}

// publish makes a new snapshot for readers, if anything has happened and the last one is
// old enough: with very many relays it costs so much that it may take no more than a
// small share of the time.
func (l *loop) publish(now time.Time) {
	age := now.Sub(l.publishedAt)
	received, busy := l.m.counters.received.Load(), l.m.ingest.unsettled.Load() > 0
	if age < l.publishPause || !l.changed && !busy && received == l.publishedFor && age < statusMost {
		return
	}
	l.changed, l.publishedFor = busy, received
	l.m.snapshot.Store(l.status(now))
	l.publishedAt = now
	l.publishPause = max(statusLeast, statusShare*time.Since(now))
}

// status says what there is at now.
func (l *loop) status(now time.Time) *Status {
	g, k := l.m.ingest, l.m.counters
	lost := l.m.health.Dropped()
	k.drop("health", int(lost-l.healthLost))
	l.healthLost = lost
	s := &Status{At: now, Events: EventStatus{
		Received: k.received.Load(), Duplicates: k.duplicates.Load(), Verified: k.verified.Load(),
		Forged: k.forged.Load(), Stored: k.results[graspsync.Stored].Load(), Superseded: k.results[graspsync.Superseded].Load(),
		Deleted: k.results[graspsync.Deleted].Load(), Refused: k.results[graspsync.Refused].Load(),
		Held: k.held.Load(), Failed: k.failed.Load(),
		InFlight: g.unsettled.Load(), Waiting: g.waiting.Load(),
	}}
	k.reasons(&s.Events)
	s.Events.Sources = k.bySource()
	s.OwnFeed = l.m.own.status()
	s.Relays = []RelayStatus{}
	s.Repos, s.Roots = l.plan.Repos()
	quiet := l.started && !l.scanning && !l.m.feed.pending() && s.Events.InFlight == 0 && g.owed.Load() == 0 &&
		(s.OwnFeed == nil || s.OwnFeed.Complete && s.OwnFeed.Connected)
	s.Synced = quiet
	some := false // relays that were fetched from to their end
	for _, p := range l.plan.Status() {
		if st := l.stats[p.Relay]; st != nil {
			l.label(st)
		}
		r := l.relayStatus(p)
		r.Synced = quiet && (p.Phase == plan.Live || p.Phase == plan.LiveWithGaps) && p.InFlight == 0 &&
			p.Wanted == p.Confirmed
		if st := l.stats[p.Relay]; st != nil {
			news := st.noteSynced(now, r.Synced)
			r.SyncTime = st.syncTime()
			if news {
				l.m.observe(RelaySynced{Relay: p.Relay, Duration: r.SyncTime})
			}
			if r.Synced {
				l.peerLacks(p.Relay, st, now)
			}
		}
		unreachable := p.Phase <= plan.Connecting && r.Failures > 0
		s.Synced = s.Synced && (r.Synced || unreachable)
		some = some || r.Synced
		s.Relays = append(s.Relays, r)
	}
	s.Synced = s.Synced && (some || len(s.Relays) == 0)
	s.gone, s.goneAny = l.gone, l.goneAny
	return s
}

// label gives a relay metrics of its own, as long as there are labels left. It keeps
// them until it is forgotten, so that no counter ever goes down.
func (l *loop) label(st *relayStats) {
	if !st.labelled && l.labels < l.m.cfg.Limits.MaxLabels {
		st.labelled = true
		l.labels++
	}
}

// forget drops what is known of a relay. What it counted under the shared label
// stays.
func (l *loop) forget(u graspsync.RelayURL) {
	if st := l.stats[u]; st != nil && st.labelled {
		l.labels--
	} else {
		r := l.relayStatus(plan.RelayStatus{Relay: u})
		l.goneAny = true
		l.gone.Gaps += r.Gaps
		l.gone.Lasting += r.Lasting
		l.gone.Disconnects += r.Disconnects
		l.gone.Reconnects += r.Reconnects
		l.gone.Connects += r.Connects
		l.gone.FailedAttempts += r.FailedAttempts
	}
	if st := l.stats[u]; st != nil {
		l.m.remember.setAllowances(u, st, time.Now())
	}
	delete(l.stats, u)
	l.m.observe(RelayForgotten{Relay: u})
	l.m.health.Forget(u)
	l.m.remember.forget(u)
}

func (l *loop) relayStatus(p plan.RelayStatus) RelayStatus {
	h := l.m.health.Status(p.Relay)
	r := RelayStatus{
		URL: p.Relay, Phase: p.Phase.String(), Health: h.State.String(), phase: p.Phase, health: h.State,
		Bootstrap: p.Bootstrap, Repos: p.Repos, Examples: p.Examples,
		Wanted: p.Wanted, InFlight: p.InFlight, Confirmed: p.Confirmed,
		Descendants: p.Descendants, DescendantsLive: p.DescendantsLive,
		LiveSubscriptions: p.LiveSubs, LiveFilters: p.LiveFilters, Unfollowed: p.Unfollowed,
		Attempts: h.Attempts, Connects: h.Connections, FailedAttempts: h.FailedAttempts,
		Disconnects: h.Disconnects, Reconnects: h.Reconnects,
		Failures: h.Failures, NextPass: p.DailyAt,
		Batches: p.Batches, Parked: p.Parked, GapBatches: p.Gaps,
		Uptime: h.Uptime, Downtime: h.Downtime, UptimeShare: h.UptimeShare(),
		Following: following(p),
	}
	if p.Phase == plan.Disconnected {
		r.NextAttempt = p.RetryAt
	}
	if p.CoolUntil.After(time.Now()) {
		r.RateLimitedUntil = p.CoolUntil
	}
	if st := l.stats[p.Relay]; st != nil {
		r.labelled = st.labelled
		st.fill(&r)
	}
	return r
}

// following says how a relay is followed.
func following(p plan.RelayStatus) string {
	switch {
	case p.Phase < plan.Syncing:
		return ""
	case p.Unfollowed > 0 && p.LiveMethod == plan.LiveAll:
		return "live in part"
	}
	return p.LiveMethod.String()
}

// fill copies the counts into a status.
func (s *relayStats) fill(r *RelayStatus) {
	r.Events, r.Stored, r.Bytes = s.events.Load(), s.stored.Load(), s.bytes.Load()
	r.Missing, r.Seconds, r.Strikes = s.missing.Load(), s.seconds.Load(), s.strikes.Load()
	r.Gaps, r.Lasting = s.gaps.Load(), s.lasting.Load()
	if r.connected() {
		r.Queries, r.Requests = int(s.queries.Load()), int(s.requests.Load())
		r.Reconciling = int(s.reconciling.Load())
	}
	s.coverage.fill(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Method, r.Software, r.LastError = s.method.String(), graspsync.Printable(s.software), s.lastErr
	r.Learned = s.known(time.Now())
}

func (s *relayStats) syncTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.syncedAt.IsZero() {
		return 0
	}
	return s.syncedAt.Sub(s.connectedAt)
}

func (r RelayStatus) connected() bool { return r.phase >= plan.Syncing }

func (r RelayStatus) dead() bool { return r.health == health.Dead }
