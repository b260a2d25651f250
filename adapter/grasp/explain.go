package grasp

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
	// Is says in a word or two what became of it: as in [relaysync.EventExplanation],
	// [relaysync.RepoExplanation] or [relaysync.RelayExplanation], or what purgatory says of an
	// event where that knows better; "blocked" for what is not here and kept out by a rule.
	Is string `json:"is"`
	// Answer says it in sentences for people, the most important first. Of strangers there is
	// only printable text in it; who shows it escapes it as HTML wants.
	Answer []string `json:"answer"`

	// Blocked is the rule of [Config].Rules that keeps it out, nil if none is known.
	Blocked    *Blocked                    `json:"blocked,omitempty"`
	Event      *relaysync.EventExplanation `json:"event,omitempty"`
	Repository *relaysync.RepoExplanation  `json:"repository,omitempty"`
	Relay      *relaysync.RelayExplanation `json:"relay,omitempty"`
	// Waiting is what purgatory knows of an event, Data what a repository lacks, and Git what
	// there is of it on the disk.
	Waiting *purgatory.EventExplanation `json:"waiting,omitempty"`
	Data    *purgatory.RepoExplanation  `json:"data,omitempty"`
	Git     *gitserve.About             `json:"git,omitempty"`
}

// String is the answer, a line for each sentence.
func (x Explanation) String() string { return strings.Join(x.Answer, "\n") }

// Explain answers why something is here, or is not: an event, a repository or a relay in any
// spelling that [nip34.ParseSubject] reads, whose errors it returns. Any other error is that of
// ctx, of the backend or of the disk, or [relaysync.ErrNotRunning] after Run. Before Run it
// waits for that if it is asked about a repository or a relay.
func (s *Server) Explain(ctx context.Context, text string) (Explanation, error) {
	about, err := nip34.ParseSubject(text)
	if err != nil {
		return Explanation{}, err
	}
	x := Explanation{Now: time.Now(), Asked: about.String(), Subject: about.Kind}
	switch about.Kind {
	case nip34.SubjectEvent:
		err = s.explainEvent(ctx, &x, about.Event)
	case nip34.SubjectRepo:
		err = s.explainRepo(ctx, &x, about.Repo)
	case nip34.SubjectRelay:
		var r relaysync.RelayExplanation
		r, err = s.sync.ExplainRelay(ctx, about.Relay)
		x.Relay, x.Is, x.Answer = &r, string(r.Is), r.Sentences()
		if rule, is := s.control.rules.Host(about.Relay.HostPort()); is {
			x.blocked(rule)
		}
	}
	if err != nil {
		return Explanation{}, fmt.Errorf("explaining %s: %w", graspsync.Printable(about.String()), err)
	}
	return x, nil
}

func (s *Server) explainEvent(ctx context.Context, x *Explanation, id graspsync.EventID) error {
	if err := s.explainWhereabouts(ctx, x, id); err != nil {
		return err
	}
	return s.explainBlocked(ctx, x)
}

func (s *Server) explainWhereabouts(ctx context.Context, x *Explanation, id graspsync.EventID) error {
	e, err := s.sync.ExplainEvent(ctx, id)
	if err != nil {
		return err
	}
	x.Event, x.Is, x.Answer = &e, string(e.Is), e.Sentences()
	w, err := s.purgatory.ExplainEvent(ctx, id)
	if err != nil {
		return err
	}
	said := w.Sentences()
	if len(said) == 0 {
		return nil
	}
	x.Waiting = &w
	x.Answer = append(x.Answer, said...)
	if knowsBetter(&w, &e) {
		x.Is = w.Is
		x.Answer = append([]string{fmt.Sprintf("Event %s is not here.", id)}, said...)
	}
	return nil
}

// knowsBetter reports whether an event is not here for what purgatory says of it: not if it was
// released, or let in later without having to wait.
func knowsBetter(w *purgatory.EventExplanation, e *relaysync.EventExplanation) bool {
	switch e.Is { //nolint:exhaustive // the others say why
	case relaysync.IsRemoved, relaysync.IsUnknown, relaysync.IsGone:
	default:
		return false
	}
	ended := e.At.IsZero() || w.At.IsZero() || w.At.After(e.At.Add(-time.Minute)) // its removal is told after that
	return ended && w.Is != purgatory.Released.String()
}

func (s *Server) explainRepo(ctx context.Context, x *Explanation, ref graspsync.RepoRef) error {
	r, err := s.sync.ExplainRepo(ctx, ref)
	if err != nil {
		return err
	}
	x.Repository, x.Is, x.Answer = &r, string(r.Is), r.Sentences()
	data, err := s.purgatory.ExplainRepo(ctx, ref)
	if err != nil {
		return err
	}
	git, err := s.repos.About(ref)
	if err != nil {
		return err
	}
	x.Data, x.Git = &data, &git
	x.Answer = append(x.Answer, git.String())
	if r.Is == relaysync.RepoFollowed || r.Is == relaysync.RepoHeld || len(data.Waiting)+len(data.Ended) > 0 {
		x.Answer = append(x.Answer, data.Sentences()...)
	}
	if rule, is := s.control.rules.Repository(ref); is {
		x.Is = isBlocked
		x.blocked(rule)
	}
	return nil
}
