package sync

import (
	"log/slog"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// statusBuilder makes the Status and makes a new one only after changes. It belongs to the loop.
type statusBuilder struct {
	m     *SyncManager
	stats map[graspsync.RelayURL]*relayStats // of the loop

	changed      bool
	publishedAt  time.Time
	publishPause time.Duration // minimum time until the next snapshot
	publishTook  time.Duration // time that the last snapshot took
	publishedFor uint64        // events received before the last snapshot
	healthLost   uint64        // dropped health records that are already counted

	unread   bool   // the Store was not read yet
	storeErr string // the error of the last attempt
}

// publish makes a new snapshot if publishPause is over and something has changed, at least once per
// statusMost.
func (o *statusBuilder) publish(now time.Time, p *plan.Plan, known bool) {
	age := now.Sub(o.publishedAt)
	received, busy := o.m.telemetry.received.Load(), o.m.ingest.inflight.unsettled.Load() > 0
	if age < o.publishPause || !o.changed && !busy && received == o.publishedFor && age < statusMost {
		return
	}
	o.renew(now, p, known)
}

func (o *statusBuilder) renew(now time.Time, p *plan.Plan, known bool) *Status {
	o.changed, o.publishedFor = o.m.ingest.inflight.unsettled.Load() > 0, o.m.telemetry.received.Load()
	began := time.Now() // now may be the time of an older tick
	s := o.status(now, p, known)
	o.m.snapshot.Store(s)
	o.publishedAt = now
	o.paused(time.Since(began))
	return s
}

// paused delays the next snapshot by 20 times the time of one, because snapshots are expensive with
// very many relays. It uses the shorter of the last two times, because a time may include a wait
// for a processor.
func (o *statusBuilder) paused(took time.Duration) {
	o.publishPause = max(statusLeast, statusShare*min(took, o.publishTook))
	o.publishTook = took
}

// status returns the status at now. known reports whether the index is complete.
func (o *statusBuilder) status(now time.Time, by *plan.Plan, known bool) *Status {
	g, k := o.m.ingest, o.m.telemetry
	lost := o.m.health.Dropped()
	k.drop("health", int(lost-o.healthLost))
	o.healthLost = lost
	s := &Status{At: now, Unread: o.unread, StoreError: o.storeErr, Events: EventStatus{
		Received: k.received.Load(), Duplicates: k.duplicates.Load(), Verified: k.verified.Load(),
		Forged: k.forged.Load(), Stored: k.results[graspsync.Stored].Load(), Superseded: k.results[graspsync.Superseded].Load(),
		Deleted: k.results[graspsync.Deleted].Load(), Refused: k.results[graspsync.Refused].Load(),
		Held: k.held.Load(), Failed: k.failed.Load(),
		Claimed:  g.inflight.claims.claimed.Load(),
		InFlight: g.inflight.unsettled.Load(), Waiting: g.waiting.Load(),
	}}
	k.reasons(&s.Events)
	s.OwnFeed = o.m.own.status()
	s.Relays = []RelayStatus{}
	s.Repos, s.Roots = by.Repos()
	quiet := known && !o.m.self.pending() && s.Events.InFlight == 0 && g.rejected.Unsaved() == 0 &&
		(s.OwnFeed == nil || s.OwnFeed.Complete && s.OwnFeed.Connected)
	s.Synced = quiet
	some := false // relays whose history is complete
	for _, p := range by.Status() {
		r := o.relayStatus(p)
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

func (o *statusBuilder) relayStatus(p plan.RelayStatus) RelayStatus {
	h := o.m.health.Status(p.Relay)
	r := RelayStatus{
		URL: p.Relay, Phase: p.Phase.String(), Health: h.State.String(), phase: p.Phase, health: h.State,
		Bootstrap: p.Bootstrap, Repos: p.Repos, Examples: p.Examples,
		Wanted: p.Wanted, InFlight: p.InFlight, Confirmed: p.Confirmed,
		Descendants: p.Descendants, DescendantsLive: p.DescendantsLive,
		LiveSubscriptions: p.LiveSubs, LiveFilters: p.LiveFilters, Unfollowed: p.Unfollowed,
		Attempts: h.Attempts, Connects: h.Connections, FailedAttempts: h.FailedAttempts,
		Disconnects: h.Disconnects, Reconnects: h.Reconnects,
		Failures: h.Failures, LastAttempt: h.LastAttempt, NextPass: p.DailyAt,
		Parked: p.Parked, GapBatches: p.Gaps,
		UptimeSeconds: h.Uptime.Seconds(), DowntimeSeconds: h.Downtime.Seconds(), UptimeShare: h.UptimeShare(),
		Following: following(p),
	}
	if p.Phase == plan.Disconnected {
		r.NextAttempt = p.RetryAt
	}
	if p.CoolUntil.After(time.Now()) {
		r.RateLimitedUntil = p.CoolUntil
	}
	if st := o.stats[p.Relay]; st != nil {
		st.fill(&r)
	}
	if r.LastError == "" && h.Failures > 0 && p.Phase == plan.Disconnected { // an earlier process has logged it
		r.LastError = h.LastError
	}
	return r
}

// following returns [RelayStatus].Following.
func following(p plan.RelayStatus) string {
	switch {
	case p.Phase < plan.Syncing, p.LiveSubs == 0 && p.LiveMethod != plan.LivePolling:
		return "" // nothing is followed
	case p.Unfollowed > 0 && p.LiveMethod == plan.LiveAll:
		return "live in part"
	}
	return p.LiveMethod.String()
}

func (o *statusBuilder) repoStatus(p plan.RepoStatus, listers map[graspsync.RelayURL]graspsync.PubKey) RepoStatus {
	s := RepoStatus{
		Ref: p.Ref, Level: levelFull, Roots: p.Roots,
		Wanted: p.Wanted, InFlight: p.InFlight, Confirmed: p.Confirmed, Relays: []RepoRelay{},
	}
	if p.Level == plan.LevelStateOnly {
		s.Level = "state only"
	}
	for _, r := range p.Relays {
		relay := RepoRelay{
			URL: r.Relay, ListedBy: listers[r.Relay], Phase: r.Phase.String(), Live: r.Live,
			Wanted: r.Wanted, InFlight: r.InFlight, Confirmed: r.Confirmed,
		}
		if st := o.stats[r.Relay]; st != nil {
			relay.Lacks, relay.Missed, relay.ComparedAt = st.completeness.of(p.Ref)
		}
		s.Relays = append(s.Relays, relay)
	}
	return s
}

// LogValue implements [slog.LogValuer]. It returns a group for a log line that is written once a
// minute. Counts are since the start.
func (s Status) LogValue() slog.Value {
	connected, synced, dead := 0, 0, 0
	for _, r := range s.Relays {
		connected += b2i(r.Connected())
		synced += b2i(r.Synced)
		dead += b2i(r.dead())
	}
	return slog.GroupValue(
		slog.Bool("synced", s.Synced), slog.Bool("store_unread", s.Unread),
		slog.Int("git_complete", s.Git.Complete), slog.Int("git_missing", s.Git.Missing),
		slog.Int("git_unobtainable", s.Git.Unobtainable),
		slog.Int("relays_connected", connected), slog.Int("relays_known", len(s.Relays)),
		slog.Int("relays_synced", synced), slog.Int("relays_dead", dead),
		slog.Int("repos", s.Repos), slog.Int("roots", s.Roots),
		slog.Uint64("stored", s.Events.Stored), slog.Uint64("rejected", total(s.Events.Rejected)),
		slog.Uint64("dropped", total(s.Events.Dropped)), slog.Uint64("failed", s.Events.Failed),
		slog.Int64("waiting", s.Events.Waiting), slog.Int64("in_flight", s.Events.InFlight),
	)
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
