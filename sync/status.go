package sync

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// Status is a snapshot of a [SyncManager]. It must not be changed.
type Status struct {
	At time.Time `json:"at"`
	// Synced reports whether everything obtainable is stored: at least one relay is followed, each
	// reachable relay was fetched completely and is followed live, no received event waits in the
	// pipeline, and Git.Missing is 0.
	Synced bool `json:"synced"`
	// Git counts the repositories by their git data. It is zero without [Config].Lacking.
	Git   GitStatus `json:"git"`
	Repos int       `json:"repos"` // repositories followed in full
	Roots int       `json:"roots"` // patches, pull requests and issues of these repositories
	// Unread reports that the Store has not been read since the start, so the targets are unknown.
	Unread bool `json:"unread,omitempty"`
	// StoreError is the error of the last attempt to read the Store, "" after a success. Reading is
	// retried.
	StoreError string `json:"store_error,omitempty"`
	// Failures are the dependencies whose last call failed, such as "store save", "policy judge"
	// and "state write".
	Failures []graspsync.Failure `json:"failures,omitempty"`
	Relays   []RelayStatus       `json:"relays"`
	Events   EventStatus         `json:"events"`
	// OwnFeed is nil without [Config.OwnRelay].
	OwnFeed *OwnFeedStatus `json:"own_feed,omitempty"`
}

// GitStatus counts the repositories whose stored or held announcements list this server.
type GitStatus struct {
	Complete int `json:"complete"` // have the git data of their newest state and pull requests
	Missing  int `json:"missing"`  // lack git data that a git server may still have
	// Unobtainable repositories lack git data that none of their git servers returned, or that no
	// event names.
	Unobtainable int `json:"unobtainable"`
}

// All returns the total number of repositories.
func (g GitStatus) All() int { return g.Complete + g.Missing + g.Unobtainable }

// EventStatus counts events since the start.
type EventStatus struct {
	Received   uint64            `json:"received"`   // received from relays, copies included
	Duplicates uint64            `json:"duplicates"` // dropped before the signature check
	Verified   uint64            `json:"verified"`   // signatures checked
	Forged     uint64            `json:"forged"`     // wrong id or signature
	Stored     uint64            `json:"stored"`     // newly stored
	Superseded uint64            `json:"superseded"`
	Deleted    uint64            `json:"deleted"`
	Refused    uint64            `json:"refused"` // refused by the Store
	Held       uint64            `json:"held"`    // held by the Policy
	Failed     uint64            `json:"failed"`  // could not be judged or saved; retried
	Claimed    uint64            `json:"claimed"` // ids requested from one of several relays that have them
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
	// Examples are up to three of these repositories.
	Examples []graspsync.RepoRef `json:"examples,omitempty"`
	Synced   bool                `json:"synced"`

	// Items are repositories and root events. With [Config].HostedStatesOnly the states of each
	// repository are another item.
	Wanted     int `json:"wanted"`
	InFlight   int `json:"in_flight"`
	Confirmed  int `json:"confirmed"`
	Parked     int `json:"parked"`      // failed batches that wait for a retry
	GapBatches int `json:"gap_batches"` // batches of this pass that ended with gaps

	// Descendants is the number of followed replies: events that refer to a root event, directly or
	// through other replies. DescendantsLive of them are followed live, the others are polled.
	Descendants     int `json:"descendants"`
	DescendantsLive int `json:"descendants_live"`

	LiveSubscriptions int `json:"live_subscriptions"`
	LiveFilters       int `json:"live_filters"`
	Unfollowed        int `json:"unfollowed"` // filters without room or refused by the relay
	// Following is the way in which new events arrive. "live" means subscriptions for all targets.
	// If the relay has no room for these, "live+kinds" means one subscription for all kinds, and
	// "live+polling" means polling in turn. "live in part" means that some filters cannot be sent.
	// "" means no connection, or that the relay refuses all subscriptions.
	Following string `json:"following"`

	// Learned contains limits learned from answers and refusals by name, such as no_negentropy,
	// max_filters and page_size. They expire.
	Learned map[string]int `json:"learned,omitempty"`

	Method   string `json:"method"` // REQ, NIP-77 or both
	Software string `json:"software"`
	Events   uint64 `json:"events"`       // received
	Stored   uint64 `json:"stored"`       // newly stored, first received from this relay
	Bytes    uint64 `json:"bytes"`        // received
	Unserved uint64 `json:"unserved"`     // announced events that the relay did not serve on request
	Seconds  uint64 `json:"full_seconds"` // seconds with more events than a page
	Gaps     uint64 `json:"gaps"`         // events of history that a live subscription should have delivered
	Lasting  uint64 `json:"lasting_gaps"` // those of Gaps that only the daily pass found
	// Lacks is the number of stored events of its repositories that the relay lacked in the last
	// reconciliation (NIP-77), which ended at ComparedAt (zero: never). Catch-up compares only
	// recent events. At most 2,048 events are counted, and only events that are ten minutes old.
	Lacks      int       `json:"lacks"`
	ComparedAt time.Time `json:"compared_at,omitzero"`
	Strikes    uint64    `json:"strikes"` // proofs of hostility

	Attempts       uint64 `json:"attempts"`
	Connects       uint64 `json:"connects"` // successful attempts
	FailedAttempts uint64 `json:"failed_attempts"`
	Disconnects    uint64 `json:"disconnects"`
	Reconnects     uint64 `json:"reconnects"`
	Failures       int    `json:"failures"` // consecutive failures
	// UptimeSeconds and DowntimeSeconds are the connected and the disconnected time since the first
	// attempt. UptimeShare is the connected share, from 0 to 1.
	UptimeSeconds   float64 `json:"uptime_seconds"`
	DowntimeSeconds float64 `json:"downtime_seconds"`
	UptimeShare     float64 `json:"uptime_share"`

	LastError        string    `json:"last_error"`
	LastAttempt      time.Time `json:"last_attempt,omitzero"`
	NextAttempt      time.Time `json:"next_attempt,omitzero"`
	RateLimitedUntil time.Time `json:"rate_limited_until,omitzero"`
	NextPass         time.Time `json:"next_pass,omitzero"` // next pass over the whole history

	phase  plan.Phase
	health health.State
}

// Connected reports whether the relay is connected. It depends on Phase, because Health also covers
// earlier connections.
func (r RelayStatus) Connected() bool {
	return r.Phase == plan.Syncing.String() || r.Phase == plan.Live.String() || r.Phase == plan.LiveWithGaps.String()
}

// Missing returns the number of unconfirmed items.
func (r RelayStatus) Missing() int { return max(0, r.Wanted-r.Confirmed) }

func (r RelayStatus) dead() bool { return r.health == health.Dead }
