package sync

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/seconds"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// Status is what a [SyncManager] knows at one moment. It must not be changed.
type Status struct {
	At time.Time `json:"at"`
	// Synced reports whether nothing is missing that could be fetched: at least one relay is
	// followed, each relay that can be reached was fetched from to its end and brings its new
	// events, all received events were dealt with, and Git.Missing is 0.
	Synced bool `json:"synced"`
	// Git counts the repositories by their git data. It is zero without [Config].Lacking.
	Git   GitStatus `json:"git"`
	Repos int       `json:"repos"` // followed in full
	Roots int       `json:"roots"` // their patches, pull requests and issues
	// Unread: what is stored was not read yet. Before that it is not known whom to follow.
	Unread bool `json:"unread,omitempty"`
	// StoreError is why the Store could not be read last, "" if it could. It is tried again.
	StoreError string `json:"store_error,omitempty"`
	// Failures are the dependencies whose last call failed, such as "store save", "policy judge" and
	// "state write".
	Failures []graspsync.Failure `json:"failures,omitempty"`
	Relays   []RelayStatus       `json:"relays"`
	Events   EventStatus         `json:"events"`
	// OwnFeed is nil without [Config.OwnRelay].
	OwnFeed *OwnFeedStatus `json:"own_feed,omitempty"`

	gone    RelayStatus // counts of forgotten relays that shared the label "other"
	goneAny bool        // there were any
	last    bool        // Run has returned
}

// GitStatus counts the repositories whose stored or held announcements list us.
type GitStatus struct {
	Complete int `json:"complete"` // have the git data of their newest state and pull requests
	Missing  int `json:"missing"`  // lack git data that a git server may still have
	// Unobtainable repositories lack git data that none of their git servers gave when it was
	// asked, or that no event names.
	Unobtainable int `json:"unobtainable"`
	// SecondsLeft is about how long it takes until Missing is 0, at the pace seen so far.
	// It is 0 if the pace is unknown.
	SecondsLeft int64 `json:"seconds_left,omitempty"`
}

// All returns the number of repositories.
func (g GitStatus) All() int { return g.Complete + g.Missing + g.Unobtainable }

// gitPace is when the number of complete repositories was first seen since no git data was
// missing, for an estimate.
type gitPace struct {
	mu       sync.Mutex
	since    time.Time // guarded by mu
	complete int       // guarded by mu
}

// paceLeast is for how long a pace must be seen.
const paceLeast = 5 * time.Second

// left returns the time until no git data is missing, 0 if it is unknown.
func (p *gitPace) left(now time.Time, g GitStatus) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.Missing == 0 || p.since.IsZero() || g.Complete < p.complete {
		p.since, p.complete = now, g.Complete
	}
	passed, came := now.Sub(p.since), g.Complete-p.complete
	if passed < paceLeast || came == 0 {
		return 0
	}
	return passed / time.Duration(came) * time.Duration(g.Missing)
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
		case r.Connected():
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
	Claimed    uint64            `json:"claimed"` // ids that one relay was asked for, and no other meanwhile
	Lapsed     uint64            `json:"lapsed"`  // times that a relay sent too little of what was claimed for it
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
	// some filters can't be sent at all; "" while nothing is, since it is not connected, or
	// refuses all.
	Following string `json:"following"`

	// Learned is what the relay taught by refusing and answering, by name:
	// no_negentropy, max_filters, page_size, ... It is believed for a while.
	Learned map[string]int `json:"learned,omitempty"`

	Method   string `json:"method"` // REQ, NIP-77 or both
	Software string `json:"software"`
	Events   uint64 `json:"events"`       // received
	Stored   uint64 `json:"stored"`       // newly, that came from here first
	Bytes    uint64 `json:"bytes"`        // received
	Unserved uint64 `json:"unserved"`     // events that it has by its own word and did not serve when asked for them
	Seconds  uint64 `json:"full_seconds"` // that hold more events than a page
	Gaps     uint64 `json:"gaps"`         // events that came as history, and that a live subscription should have brought
	Lasting  uint64 `json:"lasting_gaps"` // of these, found by the daily pass only
	// Lacks counts what is the relay's own loss: events of repositories that list it which we
	// have and it does not, as reconciliations found (NIP-77), the last at ComparedAt (zero: it was
	// never compared): that of a catch-up compares what is recent only. At most 2,048 are counted,
	// and none that had been here for less than ten minutes.
	Lacks      int           `json:"lacks"`
	ComparedAt time.Time     `json:"compared_at,omitzero"`
	Strikes    uint64        `json:"strikes"` // proofs of hostility
	SyncTime   time.Duration `json:"-"`       // sync_seconds: from connected to synced, 0 before

	Attempts       uint64 `json:"attempts"`
	Connects       uint64 `json:"connects"` // attempts that succeeded
	FailedAttempts uint64 `json:"failed_attempts"`
	Disconnects    uint64 `json:"disconnects"`
	Reconnects     uint64 `json:"reconnects"`
	Failures       int    `json:"failures"` // in a row
	// Uptime and Downtime are how long it was connected and not since the first
	// attempt; UptimeShare is the share of the former, from 0 to 1.
	Uptime      time.Duration `json:"-"` // uptime_seconds
	Downtime    time.Duration `json:"-"` // downtime_seconds
	UptimeShare float64       `json:"uptime_share"`

	LastError        string    `json:"last_error"`
	LastAttempt      time.Time `json:"last_attempt,omitzero"`
	NextAttempt      time.Time `json:"next_attempt,omitzero"`
	RateLimitedUntil time.Time `json:"rate_limited_until,omitzero"`
	NextPass         time.Time `json:"next_pass,omitzero"` // over the whole history

	phase    plan.Phase
	health   health.State
	labelled bool // it has metrics of its own
}

// plainRelayStatus is a RelayStatus without its methods.
type plainRelayStatus RelayStatus

// relayStatusText is a RelayStatus as JSON has it.
type relayStatusText struct {
	plainRelayStatus
	SyncTime seconds.Seconds `json:"sync_seconds"`
	Uptime   seconds.Seconds `json:"uptime_seconds"`
	Downtime seconds.Seconds `json:"downtime_seconds"`
}

// MarshalJSON has durations in seconds.
func (r RelayStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(relayStatusText{
		plainRelayStatus(r), seconds.Seconds(r.SyncTime), seconds.Seconds(r.Uptime), seconds.Seconds(r.Downtime),
	})
}

// UnmarshalJSON reads what MarshalJSON gives.
func (r *RelayStatus) UnmarshalJSON(text []byte) error {
	var t relayStatusText
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	*r = RelayStatus(t.plainRelayStatus)
	r.SyncTime, r.Uptime, r.Downtime = time.Duration(t.SyncTime), time.Duration(t.Uptime), time.Duration(t.Downtime)
	return nil
}

// Connected reports whether the relay is connected. It goes by Phase: Health is about earlier
// connections as well.
func (r RelayStatus) Connected() bool {
	return r.Phase == plan.Syncing.String() || r.Phase == plan.Live.String() || r.Phase == plan.LiveWithGaps.String()
}

// Missing returns the number of items that are not complete.
func (r RelayStatus) Missing() int { return max(0, r.Wanted-r.Confirmed) }

func (r RelayStatus) dead() bool { return r.health == health.Dead }
