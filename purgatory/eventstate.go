package purgatory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
)

// EventCode is what became of an event: one of the constants below, or the text of a [EndReason].
type EventCode string

// The codes of an [EventState] besides the end reasons.
const (
	IsWaiting EventCode = "waits"          // for git data
	IsSoft    EventCode = "expired softly" // an announcement that a new state or another submission revives
	IsNotHeld EventCode = "not held"       // Submit refused it, as Reason says
	IsUnknown EventCode = "unknown"
)

// EventState is what purgatory knows of one event.
type EventState struct {
	Now    time.Time           `json:"now,omitzero"` // when the state was read
	ID     graspsync.EventID   `json:"id"`
	Is     EventCode           `json:"is"`
	Reason string              `json:"reason,omitempty"`
	At     time.Time           `json:"at,omitzero"`     // when it ceased to wait
	Class  string              `json:"class,omitempty"` // as in [EntryStatus]
	Repos  []graspsync.RepoRef `json:"repos,omitempty"`
	ByUser bool                `json:"by_user"`
	// Since is when it began to wait. Deadline is the earliest time at which it expires.
	Since    time.Time `json:"since,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"`
	// Data are the states of the repositories of an event that waits. Of an event that has expired they have the servers only.
	Data []DataState `json:"data,omitempty"`

	more   bool      // there are more repositories
	gaveUp time.Time // when it expired last, though something else may have happened since
}

// DataState is which git data a repository lacks, and what is done to get it.
type DataState struct {
	Now time.Time         `json:"now,omitzero"`
	Ref graspsync.RepoRef `json:"ref"`
	// Missing are up to 20 git objects that the repository lacked when it was examined last. More is the number of others.
	Missing []MissingObject `json:"missing,omitempty"`
	More    int             `json:"more,omitempty"`
	// Servers are the git servers that may have the objects, and those that were asked for data that was given up.
	Servers []ServerState `json:"servers,omitempty"`
	// Attempts is the number of incomplete attempts in a row. The next one starts at Next unless one is Running.
	Attempts int       `json:"attempts"`
	Running  bool      `json:"running"`
	Next     time.Time `json:"next,omitzero"`
	// Waiting are up to 20 events that wait for the data.
	Waiting []EntryStatus `json:"waiting,omitempty"`
	// Ended are up to 20 events that ceased to wait, the newest first.
	Ended []EventState `json:"ended,omitempty"`
	// GivenUp are up to 20 events that expired, also before a restart, the newest first. Copies of them from relays
	// are ignored for a week. GivenUpUnknown is the number of such events whose repository is not known.
	GivenUp        []EventState `json:"given_up,omitempty"`
	GivenUpUnknown int          `json:"given_up_unknown,omitempty"`
}

// MissingObject is a git object that a repository lacks.
type MissingObject struct {
	ID string `json:"id"`
	// For are up to 3 refs of waiting states, or ids of pull requests, that name the object. It is empty if a served state does.
	For []string `json:"for,omitempty"`
}

// ServerState is what one git server was asked for a repository.
type ServerState struct {
	URL graspsync.CloneURL `json:"url"`
	// Asked is when the last request ended, zero if there is no record of one. Wanted objects were requested, and Missing
	// of them did not arrive. Error is why the request failed. Local reports whether the failure was ours.
	Asked   time.Time `json:"asked,omitzero"`
	Wanted  int       `json:"wanted,omitempty"`
	Missing int       `json:"missing,omitempty"`
	Error   string    `json:"error,omitempty"`
	Local   bool      `json:"local,omitempty"`
	// Skipped is why a later request was not sent: a reason of purgatory_dropped_total, or an error.
	Skipped string `json:"skipped,omitempty"`
	Asking  bool   `json:"asking"` // a request is in flight
	Queued  bool   `json:"queued"` // other requests come first
	// Until is when the next request may be sent.
	Until time.Time `json:"until,omitzero"`
}

const (
	maxMissing = 20
	maxFor     = 3
	maxListed  = 20
	maxServers = 64 // with those that were asked for data that was given up
)

func endingOf(e refplan.Entry, is EventCode, reason string) EventState {
	return EventState{
		ID: e.ID, Is: is, Reason: reason, At: time.Now(), Class: e.Class.String(), Repos: e.Repos, ByUser: e.ByUser, Since: e.Seen,
	}
}

// EventState returns what an event waits for, or how that ended. It asks Run for the attempts to get the data, if
// Run is running. The error is that of ctx.
func (p *Purgatory) EventState(ctx context.Context, id graspsync.EventID) (EventState, error) {
	out := EventState{ID: id, Is: IsUnknown}
	e, waits := p.pending.get(id)
	if waits {
		out = endingOf(e, IsWaiting, "")
		out.At, out.Deadline = time.Time{}, e.Deadline
		if e.Soft {
			out.Is = IsSoft
		}
	} else if last, ok := p.report.ending(id); ok {
		out = last
	} else if p.pending.hasExpired(id) {
		out.Is = EventCode(Expired.String())
	}
	out.Now, out.Repos = time.Now(), slices.Clone(out.Repos)
	expired := out.Is == EventCode(Expired.String())
	if out.Is != IsWaiting && !expired {
		return out, nil
	}
	for _, ref := range out.Repos {
		r, err := p.DataState(ctx, ref)
		if err != nil {
			return EventState{}, err
		}
		r.Waiting, r.Ended, r.GivenUp, r.GivenUpUnknown = nil, nil, nil, 0
		if expired {
			r = DataState{Now: r.Now, Ref: ref, Servers: r.Servers}
		}
		if !expired || len(r.Servers) > 0 {
			out.Data = append(out.Data, r)
		}
	}
	return out, nil
}

// DataState returns which git data a repository lacks, and what is done to get it. It asks as EventState does.
func (p *Purgatory) DataState(ctx context.Context, ref graspsync.RepoRef) (DataState, error) {
	now := time.Now()
	out := DataState{Now: now, Ref: ref}
	need := p.table.lacked(ref)
	entries := p.pending.of(ref)
	names := p.names(entries)
	for _, id := range need.IDs[:min(len(need.IDs), maxMissing)] {
		out.Missing = append(out.Missing, MissingObject{ID: id.String(), For: names[id.String()]})
	}
	out.More = len(need.IDs) - len(out.Missing)
	for _, e := range entries[:min(len(entries), maxListed)] {
		out.Waiting = append(out.Waiting, p.pending.status(e))
	}
	out.Ended = p.report.endingsOf(func(s EventState) bool { return slices.Contains(s.Repos, ref) })
	out.Ended = out.Ended[:min(len(out.Ended), maxListed)]
	out.GivenUp, out.GivenUpUnknown = p.givenUp(ref)
	out.GivenUp = out.GivenUp[:min(len(out.GivenUp), maxListed)]
	about, err := p.ask(ctx, ref)
	if err != nil && !errors.Is(err, errNotRunning) {
		return DataState{}, fmt.Errorf("explaining %s: %w", graspsync.Printable(ref.String()), err)
	}
	out.Attempts, out.Running, out.Next = about.Attempts, about.Running, about.Due
	if out.Running {
		out.Next = time.Time{}
	}
	if patient := p.servers.vain(ref); err == nil && !about.Waits && patient.Waits(now) && len(need.IDs) > 0 {
		out.Next = patient.Until
	}
	urls := need.URLs()
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
	return out, nil
}

// server returns the state of one git server.
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

// names returns what names the objects that events wait for.
func (p *Purgatory) names(entries []refplan.Entry) map[string][]string {
	out := make(map[string][]string)
	add := func(id, name string) {
		if len(out[id]) < maxFor {
			out[id] = append(out[id], graspsync.Printable(name))
		}
	}
	for _, e := range entries {
		switch e.Class { //nolint:exhaustive // the others name no objects
		case refplan.State:
			s := e.State
			refs := make([]string, 0, len(s.Refs))
			for name := range s.Refs {
				refs = append(refs, name.String())
			}
			slices.Sort(refs)
			for _, name := range refs {
				if ref, err := nip34.ParseRefName(name); err == nil {
					add(s.Refs[ref].String(), name)
				}
			}
		case refplan.PullRequest:
			add(e.Pull.Tip.String(), "pull request "+e.ID.String())
		}
	}
	return out
}

// gaveUp returns all events that are known to have expired for a repository and are still ignored.
func (p *Purgatory) gaveUp(ref graspsync.RepoRef) (ids []graspsync.EventID) {
	all, _ := p.givenUp(ref)
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids
}

// givenUp returns the expired events of a repository that are still ignored, and the number of those whose
// repositories are not all known.
func (p *Purgatory) givenUp(ref graspsync.RepoRef) (out []EventState, unknown int) {
	unknown = p.pending.countExpired()
	for _, s := range p.report.endingsOf(func(s EventState) bool { return !s.gaveUp.IsZero() && p.pending.hasExpired(s.ID) }) {
		if !s.more {
			unknown--
		}
		if slices.Contains(s.Repos, ref) {
			s.Is, s.Reason, s.At = EventCode(Expired.String()), "", s.gaveUp
			out = append(out, s)
		}
	}
	return out, max(unknown, 0)
}
