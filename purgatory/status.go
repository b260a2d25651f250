package purgatory

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
)

// Status is a snapshot of a [Purgatory].
type Status struct {
	At      time.Time    `json:"at"`
	Waiting []EventState `json:"waiting"` // the first [StatusEntries] to expire
	// Number of held events by class, and their size in bytes.
	Announcements           int   `json:"announcements"`
	States                  int   `json:"states"`
	PullRequests            int   `json:"pull_requests"`
	MaintainerAnnouncements int   `json:"maintainer_announcements"` // of maintainers whom a held announcement lists
	Bytes                   int64 `json:"bytes"`
	// Counters since the start.
	Held       uint64               `json:"held"`
	Ended      map[EventCode]uint64 `json:"ended"`   // holds by reason
	Fetches    uint64               `json:"fetches"` // requests for git data
	Failed     uint64               `json:"failed"`  // failed fetches
	Objects    uint64               `json:"objects"` // received objects that were missing
	Fetched    uint64               `json:"fetched_bytes"`
	Dropped    map[string]uint64    `json:"dropped"`    // by limit
	Unreadable uint64               `json:"unreadable"` // unreadable records on the disk
	Panics     map[string]uint64    `json:"panics"`     // contained panics by component; each is a bug
	// Failures are the dependencies whose last call failed, for example "relay save".
	Failures []graspsync.Failure `json:"failures,omitempty"`

	// Unconfirmed is the number of repositories for which [Purgatory.Ready] returns [ErrLost].
	Unconfirmed int `json:"unconfirmed_departures,omitempty"`

	// Queue is the number of repositories that wait for git data.
	Queue int `json:"queue"`
	// Domains are up to 200 git servers that received requests since the start. The last entry,
	// "other", sums up the rest.
	Domains []DomainStatus `json:"domains"`

	Maintenance MaintenanceStatus `json:"maintenance"`
}

// DomainStatus counts the requests to one git server.
type DomainStatus struct {
	Domain   string `json:"domain"` // host and port
	InFlight int    `json:"in_flight"`
	Requests uint64 `json:"requests"`
	Failed   uint64 `json:"failed"` // failed requests
	// LastRequest is a start. LastError is one printable line that may quote the server.
	LastRequest time.Time `json:"last_request,omitzero"`
	LastFailure time.Time `json:"last_failure,omitzero"`
	LastError   string    `json:"last_error,omitempty"`

	failing time.Time // start of the failures; zero: the last request succeeded
}

// StatusEntries is the maximum number of entries in a [Status].
const StatusEntries = 100

// EventState is the state of one event. That of an expired event is stored, so no JSON field changes
// its meaning. Copies of it from relays are ignored until Deadline.
type EventState struct {
	Now      time.Time           `json:"now,omitzero"` // when the state was read
	ID       graspsync.EventID   `json:"id"`
	Is       EventCode           `json:"is"`
	Reason   string              `json:"reason,omitempty"`
	At       time.Time           `json:"at,omitzero"`     // end of the hold
	Class    string              `json:"class,omitempty"` // announcement, state, pull request, maintainer announcement
	Author   graspsync.PubKey    `json:"author,omitzero"`
	Repos    []graspsync.RepoRef `json:"repos,omitempty"`
	ByUser   bool                `json:"by_user"`
	Since    time.Time           `json:"since,omitzero"`
	Deadline time.Time           `json:"deadline,omitzero"`
	Missing  int                 `json:"missing,omitempty"` // git objects that its repositories lacked at the last release
	// Data are the states of the repositories of a held event. For an expired event they have only
	// servers.
	Data []DataState `json:"data,omitempty"`
}

// DataState lists the git data that a repository lacks, and the attempts to fetch it.
type DataState struct {
	Now time.Time         `json:"now,omitzero"`
	Ref graspsync.RepoRef `json:"ref"`
	// Missing are up to 20 missing git objects, as of the last release. More is the number of
	// others.
	Missing []MissingObject `json:"missing,omitempty"`
	More    int             `json:"more,omitempty"`
	// Servers are the git servers that may have the objects, and servers that were asked for
	// expired events.
	Servers []ServerState `json:"servers,omitempty"`
	// Attempts is the number of consecutive incomplete attempts. The next one starts at Next unless
	// one is Running.
	Attempts int       `json:"attempts"`
	Running  bool      `json:"running"`
	Next     time.Time `json:"next,omitzero"`
	// Waiting are up to 20 events held for the data.
	Waiting []EventState `json:"waiting,omitempty"`
	// Ended are up to 20 events that are no longer held, the newest first.
	Ended []EventState `json:"ended,omitempty"`
	// GivenUp are up to 20 expired events, also before a restart, the newest first. An event is
	// listed for the first 4 of its repositories.
	GivenUp []EventState `json:"given_up,omitempty"`
}

// MissingObject is a missing git object.
type MissingObject struct {
	ID string `json:"id"`
	// For are up to 3 names of the object: refs of held states, or ids of pull requests.
	For []string `json:"for,omitempty"`
}

// ServerState is the last request to one git server, and the next one.
type ServerState struct {
	URL graspsync.CloneURL `json:"url"`
	// Asked is the end of the last request. Of the Wanted objects, Missing did not arrive. Local is
	// true if our own git or disk failed.
	Asked   time.Time `json:"asked,omitzero"`
	Wanted  int       `json:"wanted,omitempty"`
	Missing int       `json:"missing,omitempty"`
	Error   string    `json:"error,omitempty"`
	Local   bool      `json:"local,omitempty"`
	// Skipped is the reason why a later request was not sent: a reason of purgatory_dropped_total,
	// or an error.
	Skipped string    `json:"skipped,omitempty"`
	Asking  bool      `json:"asking"` // a request is in flight
	Queued  bool      `json:"queued"` // other requests come first
	Until   time.Time `json:"until,omitzero"`
}

const (
	maxMissing = 20
	maxFor     = 3
	maxListed  = 20
	maxServers = 64 // with servers asked for expired events
)

func endingOf(e refplan.Entry, is EventCode, reason string) EventState {
	return EventState{
		ID: e.ID, Is: is, Reason: reason, At: time.Now(), Class: e.Class.String(), Author: e.Author, Repos: e.Repos, ByUser: e.ByUser, Since: e.Seen,
	}
}

// EventState returns the state of an event, and of the attempts to fetch its data.
func (p *Purgatory) EventState(id graspsync.EventID) EventState {
	out := EventState{ID: id, Is: IsUnknown}
	e, held := p.pending.get(id)
	if held {
		out = p.pending.status(e)
	} else if last, ok := p.report.ending(id); ok {
		out = last
	} else if last, ok := p.pending.expiredState(id); ok {
		out = last
	}
	out.Now, out.Repos = time.Now(), slices.Clone(out.Repos)
	expired := out.Is == Expired
	if out.Is != IsWaiting && !expired {
		return out
	}
	for _, ref := range out.Repos {
		r := p.DataState(ref)
		r.Waiting, r.Ended, r.GivenUp = nil, nil, nil
		if expired {
			r = DataState{Now: r.Now, Ref: ref, Servers: r.Servers}
		}
		if !expired || len(r.Servers) > 0 {
			out.Data = append(out.Data, r)
		}
	}
	return out
}

// DataState returns the [DataState] of a repository.
func (p *Purgatory) DataState(ref graspsync.RepoRef) DataState {
	now := time.Now()
	out := DataState{Now: now, Ref: ref}
	need := p.table.get(ref).need
	entries := p.pending.of(ref)
	for _, id := range need.IDs[:min(len(need.IDs), maxMissing)] {
		out.Missing = append(out.Missing, MissingObject{ID: id.String(), For: namesOf(id, entries)})
	}
	out.More = len(need.IDs) - len(out.Missing)
	for _, e := range entries[:min(len(entries), maxListed)] {
		out.Waiting = append(out.Waiting, p.pending.status(e))
	}
	out.Ended = p.report.endingsOf(ref)
	out.Ended = out.Ended[:min(len(out.Ended), maxListed)]
	out.GivenUp = p.pending.givenUp(ref)
	out.GivenUp = out.GivenUp[:min(len(out.GivenUp), maxListed)]
	about := p.about(ref)
	out.Attempts, out.Running, out.Next = about.Attempts, about.Running, about.Due
	if out.Running {
		out.Next = time.Time{}
	}
	urls := slices.Clone(need.MemberURLs)
	for _, u := range slices.Concat(need.PullURLs...) {
		if !slices.Contains(urls, u) {
			urls = append(urls, u)
		}
	}
	if len(out.GivenUp) > 0 {
		for _, u := range p.report.repliers(ref) {
			if len(urls) < maxServers && !slices.Contains(urls, u) {
				urls = append(urls, u)
			}
		}
	}
	for _, u := range urls {
		out.Servers = append(out.Servers, p.serverState(now, ref, u, about.Servers[u]))
	}
	return out
}

func (p *Purgatory) serverState(now time.Time, ref graspsync.RepoRef, u graspsync.CloneURL, is syncqueue.AboutServer) ServerState {
	s := p.report.reply(ref, u)
	s.URL, s.Asking, s.Queued = u, is.Asking, is.Queued
	for _, until := range []time.Time{is.BrokenUntil, is.Opens} {
		if until.After(now) && until.After(s.Until) {
			s.Until = until
		}
	}
	return s
}

// namesOf returns the first names of an object: refs of held states, and pull requests.
func namesOf(id nip34.ObjectID, entries []refplan.Entry) (names []string) {
	for _, e := range entries {
		switch {
		case e.State != nil:
			for name, at := range e.State.Refs {
				if at == id {
					names = append(names, graspsync.Printable(name.String()))
				}
			}
		case e.Pull != nil && e.Pull.Tip == id:
			names = append(names, "pull request "+e.ID.String())
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), maxFor)]
}
