package explain

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/rules"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Blocked is the rule that blocks a subject.
type Blocked struct {
	Rule   string    `json:"rule"`
	By     string    `json:"by,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitempty"`
	// Lift is the operator's command that lifts the rule.
	Lift string `json:"lift"`
}

const byFile = "file"

func blockedBy(r rules.Rule) *Blocked {
	b := &Blocked{Rule: spelled(r.Subject), By: r.By, Since: r.Since, Reason: r.Reason}
	b.Lift = "unset " + b.Rule
	if r.By == byFile { // unset does not apply to it
		b.Lift = "allow " + b.Rule
	}
	return b
}

func spelled(s rules.Subject) string {
	name := s.Name
	if k, ok := s.PubKey(); ok && s.Kind == rules.Author {
		name = nip34.NPub(k)
	}
	if ref, ok := s.Ref(); ok {
		name = nip34.NPub(ref.Owner) + "/" + ref.Identifier
	}
	return string(s.Kind) + " " + shellWord(name)
}

// shellWord quotes for a shell, because operators copy commands.
func shellWord(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(graspsync.Printable(text), "'", `'\''`) + "'"
}

func (b *Blocked) sentence(now time.Time) string { return sentencesOf(now, "blocked", b)[0] }

func (e Explainer) blocked(ctx context.Context, x *Explanation) error {
	var r rules.Rule
	var is bool
	switch x.Subject {
	case nip34.SubjectEvent:
		var err error
		if r, is, err = e.ruleOn(ctx, x.Event); err != nil {
			return err
		}
		if !is && x.Event.Is == relaysync.IsUnknown { // anybody may write any author into a question
			if r, is := e.Rules.RepositoryBlock(graspsync.RepoRef{Owner: x.Author}); is {
				said := "If it is by " + nip34.NPub(x.Author) + ", as was asked, it is kept out. "
				x.Answer = append([]string{said + blockedBy(r).sentence(x.Now)}, x.Answer...)
			}
		}
	case nip34.SubjectRepo:
		r, is = e.Rules.RepositoryBlock(x.Repository.Ref)
	case nip34.SubjectRelay:
		r, is = e.Rules.HostBlock(x.Relay.URL.HostPort())
	}
	if !is {
		return nil
	}
	switch {
	case x.Subject == nip34.SubjectRelay: // its state says so
	case x.Subject == nip34.SubjectRepo || x.Event.Is != relaysync.IsStored:
		x.Is = "blocked"
	case stays(x.Event.Event):
		x.Is = "withheld"
		x.Answer = []string{fmt.Sprintf("Event %s (kind %d) is stored and in force, and is not served while it is blocked.", x.Event.ID, x.Event.Event.Kind)}
	default:
		x.Answer = append(x.Answer, "Stored events and git data of a blocked subject stay until they are purged.")
	}
	x.Blocked = blockedBy(r)
	x.Answer = append([]string{x.Blocked.sentence(x.Now)}, x.Answer...)
	return nil
}

// stays reports whether an event takes effect although it is blocked.
func stays(head *relaysync.EventHead) bool {
	return head != nil && (head.Kind == graspsync.KindDeletion || head.Kind == graspsync.KindVanish)
}

func (e Explainer) ruleOn(ctx context.Context, s *relaysync.EventState) (r rules.Rule, is bool, err error) {
	for ev, err := range e.Store.Events(ctx, nostr.Filter{IDs: []string{s.ID.String()}}) {
		if err != nil {
			return r, false, err
		}
		if r, is = e.Rules.EventBlock(ev); !is {
			r, is = e.Rules.ServeBlock(ev)
		}
		return r, is, nil
	}
	if r, is = e.Rules.Rule(rules.OfEvent(s.ID)); is {
		return r, r.Action == rules.Block, nil
	}
	for _, r := range e.Rules.All() { // authors first
		if r.Action == rules.Block && s.Awaits(rules.OnRuleRemoved(r.Subject)) {
			return r, true, nil
		}
	}
	if s.Event != nil && !stays(s.Event) {
		r, is = e.Rules.RepositoryBlock(graspsync.RepoRef{Owner: s.Event.Author, Identifier: s.Event.Identifier})
	}
	return r, is, nil
}
