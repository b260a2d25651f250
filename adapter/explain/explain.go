// Package explain answers why an event, a repository or a relay is here or is not, in one answer of what the
// parts of a server know: sync, purgatory, and the folder of repositories.
//
//	why := explain.Explainer{Sync: s.Manager(), Purgatory: held}
//	x, err := why.Explain(ctx, "nevent1...")
//	...
//	fmt.Println(x)
//
// A server of adapter/grasp, or of adapter/nostrlib/grasp, has an Explain that is made of it, by way of adapter/control.
package explain

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Explanation says all that a server knows about an event, a repository or a relay: why it is
// here, or is not. Of the fields from Event on those are set that have something to say.
type Explanation struct {
	Now     time.Time         `json:"now"`     // when this was so
	Asked   string            `json:"asked"`   // what it is about, as protocols spell it
	Subject nip34.SubjectKind `json:"subject"` // event, repository or relay
	// Author is whose the event is by who asked, who may be wrong: zero if that was not said.
	Author graspsync.PubKey `json:"author,omitzero"`
	// Is says in a word or two what became of it: as in [relaysync.EventState],
	// [relaysync.RepoFollowState] or [relaysync.RelayFollowState], or what purgatory says of an
	// event where that knows better.
	Is string `json:"is"`
	// Answer says it in sentences for people, the most important first. Of strangers there is
	// only printable text in it; who shows it escapes it as HTML wants.
	Answer []string `json:"answer"`

	Event      *relaysync.EventState       `json:"event,omitempty"`
	Repository *relaysync.RepoFollowState  `json:"repository,omitempty"`
	Relay      *relaysync.RelayFollowState `json:"relay,omitempty"`
	// Waiting is what purgatory knows of an event, Data what a repository lacks, and Git what
	// there is of it on the disk.
	Waiting *purgatory.EventState `json:"waiting,omitempty"`
	Data    *purgatory.DataState  `json:"data,omitempty"`
	Git     *gitserve.About       `json:"git,omitempty"`
}

// String is the answer, a line for each sentence.
func (x Explanation) String() string { return strings.Join(x.Answer, "\n") }

// Sync is what an Explainer wants of a [relaysync.SyncManager].
type Sync interface {
	EventState(ctx context.Context, id graspsync.EventID) (relaysync.EventState, error)
	RepoFollowState(ctx context.Context, ref graspsync.RepoRef) (relaysync.RepoFollowState, error)
	RelayFollowState(ctx context.Context, u graspsync.RelayURL) (relaysync.RelayFollowState, error)
	Status() relaysync.Status
}

// Purgatory is what an Explainer wants of a [purgatory.Purgatory].
type Purgatory interface {
	EventState(ctx context.Context, id graspsync.EventID) (purgatory.EventState, error)
	DataState(ctx context.Context, ref graspsync.RepoRef) (purgatory.DataState, error)
}

// Repositories is what an Explainer wants of a [gitserve.Repositories].
type Repositories interface {
	About(ref graspsync.RepoRef) (gitserve.About, error)
}

// Explainer asks the parts of a server. Sync must be set; without the others nothing is said of git data. Its
// method may be called concurrently.
type Explainer struct {
	Sync         Sync
	Purgatory    Purgatory
	Repositories Repositories
}

// Explain answers why something is here, or is not: an event, a repository or a relay in any
// spelling that [nip34.ParseSubject] reads, whose errors it returns. Any other error is that of
// ctx, of the backend or of the disk, or [relaysync.ErrNotRunning] after Run. Before Run it
// waits for that if it is asked about a repository or a relay.
func (e Explainer) Explain(ctx context.Context, text string) (Explanation, error) {
	about, err := nip34.ParseSubject(text)
	if err != nil {
		return Explanation{}, err
	}
	x := Explanation{Now: time.Now(), Asked: about.String(), Subject: about.Kind, Author: about.Author}
	switch about.Kind {
	case nip34.SubjectEvent:
		err = e.event(ctx, &x, about.Event)
	case nip34.SubjectRepo:
		err = e.repository(ctx, &x, about.Repo)
	case nip34.SubjectRelay:
		err = e.relay(ctx, &x, about.Relay)
	}
	if err != nil { // which names what was asked about
		return Explanation{}, err
	}
	return x, nil
}

func (e Explainer) event(ctx context.Context, x *Explanation, id graspsync.EventID) error {
	s, err := e.Sync.EventState(ctx, id)
	if err != nil {
		return err
	}
	t := text{now: x.Now}
	x.Event, x.Is = &s, string(s.Is)
	if e.Purgatory != nil {
		w, err := e.Purgatory.EventState(ctx, id)
		if err != nil {
			return err
		}
		if w.Is != purgatory.IsUnknown {
			x.Waiting = &w
		}
	}
	if x.Waiting != nil && knowsBetter(x.Waiting, &s) {
		x.Is = string(x.Waiting.Is)
		t.add("Event %s is not stored.", id)
	} else {
		t.event(s, e.Sync.Status())
	}
	if x.Waiting != nil {
		t.held(*x.Waiting)
	}
	x.Answer = t.lines
	return nil
}

// knowsBetter reports whether an event is not here for what purgatory says of it: not if it was
// released, or let in later without having to wait.
func knowsBetter(w *purgatory.EventState, s *relaysync.EventState) bool {
	switch s.Is { //nolint:exhaustive // the others say why
	case relaysync.IsHeld: // it was when sync was asked, and purgatory was asked after that
		return w.Is != purgatory.IsWaiting && w.Is != purgatory.EventCode(purgatory.Released.String())
	case relaysync.IsRemoved, relaysync.IsUnknown, relaysync.IsGone:
	default:
		return false
	}
	ended := s.At.IsZero() || w.At.IsZero() || w.At.After(s.At.Add(-time.Minute)) // its removal is told after that
	return ended && w.Is != purgatory.EventCode(purgatory.Released.String())
}

func (e Explainer) repository(ctx context.Context, x *Explanation, ref graspsync.RepoRef) error {
	r, err := e.Sync.RepoFollowState(ctx, ref)
	if err != nil {
		return err
	}
	x.Repository, x.Is = &r, string(r.Is)
	t := text{now: x.Now}
	t.repo(r, e.Sync.Status())
	if e.Repositories != nil {
		git, err := e.Repositories.About(ref)
		if err != nil {
			return fmt.Errorf("explaining %s: %w", ref, err)
		}
		x.Git = &git
		t.git(git)
	}
	if e.Purgatory != nil {
		data, err := e.Purgatory.DataState(ctx, ref)
		if err != nil {
			return err
		}
		x.Data = &data
		if r.Is == relaysync.RepoFollowed || r.Is == relaysync.RepoHeld || len(data.Waiting)+len(data.Ended) > 0 {
			t.repoData(data)
		}
	}
	x.Answer = t.lines
	return nil
}

func (e Explainer) relay(ctx context.Context, x *Explanation, u graspsync.RelayURL) error {
	r, err := e.Sync.RelayFollowState(ctx, u)
	if err != nil {
		return err
	}
	t := text{now: x.Now}
	t.relay(r, e.Sync.Status())
	x.Relay, x.Is, x.Answer = &r, string(r.Is), t.lines
	return nil
}
