// Package explain answers why an event, a repository or a relay is stored or followed.
//
//	why := explain.Explainer{Sync: s.Manager(), Purgatory: held}
//	x, err := why.Explain(ctx, "nevent1...")
//
// A server of adapter/grasp or adapter/nostrlib/grasp has an Explain.
package explain

import (
	"context"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/rules"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Explanation is the knowledge of a server about a subject.
type Explanation struct {
	Now     time.Time         `json:"now"`
	Asked   string            `json:"asked"` // what it is about, as protocols spell it
	Subject nip34.SubjectKind `json:"subject"`
	// Author is that of the question, which may be wrong.
	Author graspsync.PubKey `json:"author,omitzero"`
	// Is is as in the states below, "blocked", or "withheld" for a deletion or request to vanish that is
	// in force but not served.
	Is string `json:"is"`
	// Answer is sentences of printable text, the most important first.
	Answer []string `json:"answer"`

	Event      *relaysync.EventState       `json:"event,omitempty"`
	Repository *relaysync.RepoFollowState  `json:"repository,omitempty"`
	Relay      *relaysync.RelayFollowState `json:"relay,omitempty"`
	// Waiting is the state of an event in purgatory, Data the missing git data of a repository.
	Waiting *purgatory.EventState `json:"waiting,omitempty"`
	Data    *purgatory.DataState  `json:"data,omitempty"`
	Git     *gitserve.About       `json:"git,omitempty"`
	Blocked *Blocked              `json:"blocked,omitempty"`
}

// String returns the answer in lines.
func (x Explanation) String() string { return strings.Join(x.Answer, "\n") }

// Explainer asks the parts of a server. Sync is required, and Store with Rules.
type Explainer struct {
	Sync         *relaysync.SyncManager
	Purgatory    *purgatory.Purgatory
	Repositories *gitserve.Repositories
	Rules        *rules.RuleSet
	Store        relaysync.Store
}

// Explain explains a subject in any spelling of [nip34.ParseSubject]. Before Run of the SyncManager it
// waits, after Run it returns [relaysync.ErrNotRunning].
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
		e.relay(&x, about.Relay)
	}
	if err == nil && e.Rules != nil {
		err = e.blocked(ctx, &x)
	}
	if err != nil {
		return Explanation{}, err
	}
	return x, nil
}

func (e Explainer) event(ctx context.Context, x *Explanation, id graspsync.EventID) error {
	s, err := e.Sync.EventState(ctx, id)
	if err != nil {
		return err
	}
	x.Event, x.Is = &s, string(s.Is)
	if e.Purgatory != nil {
		w := e.Purgatory.EventState(id)
		if w.Is != purgatory.IsUnknown {
			x.Waiting = &w
		}
	}
	name := "event"
	if x.Waiting != nil && knowsBetter(x.Waiting, &s) {
		name, x.Is = "not stored", string(x.Waiting.Is)
	}
	x.Answer = e.sentences(name, x)
	if x.Waiting != nil {
		x.Answer = append(x.Answer, sentencesOf(x.Now, "held", x.Waiting)...)
	}
	return nil
}

func (e Explainer) sentences(name string, x *Explanation) []string {
	return sentencesOf(x.Now, name, view{x, e.Sync.Status()})
}

// knowsBetter reports whether purgatory has the reason why an event is missing.
func knowsBetter(w *purgatory.EventState, s *relaysync.EventState) bool {
	switch s.Is { //nolint:exhaustive // the other codes are the reason
	case relaysync.IsHeld: // it was when sync was asked, and purgatory was asked after that
		return w.Is != purgatory.IsWaiting && w.Is != purgatory.Released
	case relaysync.IsRemoved, relaysync.IsUnknown, relaysync.IsGone:
		return w.Is != purgatory.Released
	}
	return false
}

func (e Explainer) repository(ctx context.Context, x *Explanation, ref graspsync.RepoRef) error {
	r, err := e.Sync.RepoFollowState(ctx, ref)
	if err != nil {
		return err
	}
	x.Repository, x.Is = &r, string(r.Is)
	if e.Repositories != nil {
		git, err := e.Repositories.About(ref)
		if err != nil {
			return err
		}
		x.Git = &git
	}
	if e.Purgatory != nil {
		data := e.Purgatory.DataState(ref)
		x.Data = &data
	}
	x.Answer = e.sentences("repository", x)
	return nil
}

func (e Explainer) relay(x *Explanation, u graspsync.RelayURL) {
	r := e.Sync.RelayFollowState(u)
	x.Relay, x.Is = &r, string(r.Is)
	x.Answer = e.sentences("relay", x)
}
