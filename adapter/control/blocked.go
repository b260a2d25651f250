package control

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/rules"
	relaysync "github.com/graspsync/graspsync/sync"
)

const (
	isBlocked = "blocked"
	// isWithheld means that a deletion or request to vanish is stored and blocked.
	isWithheld = "withheld"
)

// Blocked is the rule that blocks a subject.
type Blocked struct {
	Rule   string    `json:"rule"`
	By     string    `json:"by,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitempty"`
	// Lift is the command of [Control.Do] that lifts the rule.
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

// shellWord quotes a text for a shell, because operators copy commands with identifiers of
// strangers.
func shellWord(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(graspsync.Printable(text), "'", `'\''`) + "'"
}

func (b *Blocked) sentence(now time.Time) string {
	said := "Blocked: " + b.Rule
	if b.By != "" {
		said += ", by " + b.By
	}
	if !b.Since.IsZero() {
		said += ", since " + graspsync.TimeText(b.Since, now)
	}
	if b.Reason != "" {
		said += ": " + strconv.Quote(b.Reason)
	}
	if b.By == byFile {
		return said + ". To lift it, change the file, or use the command: " + b.Lift
	}
	return said + ". To lift it, use the command: " + b.Lift // no full stop, because the command is copied
}

func (x *Explanation) blocked(r rules.Rule) {
	x.Blocked = blockedBy(r)
	x.Answer = append([]string{x.Blocked.sentence(x.Now)}, x.Answer...)
}

// ruleOn returns the rule that blocks an event, if it is known. The rule on an event that is not stored
// is the recorded one, or one that must be lifted before the event is judged again, or that on its head.
func (s Explainer) ruleOn(ctx context.Context, x *Explanation) (r rules.Rule, is bool, err error) {
	book, e := s.Rules, x.Event
	if r, is = book.Rule(rules.OfEvent(e.ID)); is {
		return r, r.Action == rules.Block, nil
	}
	for ev, err := range s.Store.Events(ctx, nostr.Filter{IDs: []string{e.ID.String()}}) {
		if r, is = book.Event(ev); err == nil && !is {
			r, is = book.Hides(ev)
		}
		return r, is && err == nil, err
	}
	forgotten := (e.Is == relaysync.IsRejected || e.Is == relaysync.IsGone) && e.Reason == "" // refused by an earlier process
	for _, r := range book.All() {                                                            // authors first
		recorded := e.Rule == string(r.Subject.Kind)+" "+r.Subject.Name
		if r.Action == rules.Block && (recorded || forgotten && e.Awaits(rules.Lifted(r.Subject))) {
			return r, true, nil
		}
	}
	switch head := e.Event; {
	case head == nil:
	case head.Identifier != "":
		r, is = book.Repository(graspsync.RepoRef{Owner: head.Author, Identifier: head.Identifier})
	case head.Kind != graspsync.KindDeletion && head.Kind != graspsync.KindVanish:
		r, is = book.Rule(rules.OfAuthor(head.Author))
		is = is && r.Action == rules.Block
	}
	return r, is, nil
}

func (s Explainer) explainBlockedEvent(ctx context.Context, x *Explanation) error {
	r, is, err := s.ruleOn(ctx, x)
	if err == nil && !is && x.Event.Is == relaysync.IsUnknown {
		s.explainUnknown(x)
	}
	if err != nil || !is {
		return err
	}
	if x.Event.Is == relaysync.IsRejected && x.Event.Reason == "" { // by an earlier process
		x.Event.Reason = "blocked: " + spelled(r.Subject)
		x.Answer[0] = fmt.Sprintf("Event %s was rejected: %s.", x.Event.ID, x.Event.Reason)
	}
	head := x.Event.Event
	switch {
	case x.Event.Is != relaysync.IsStored:
		x.Is = isBlocked
	case head != nil && (head.Kind == graspsync.KindDeletion || head.Kind == graspsync.KindVanish):
		x.Is = isWithheld
		x.Answer = []string{fmt.Sprintf("Event %s (kind %d) is stored and in force, and is not served while it is blocked.", x.Event.ID, head.Kind)}
	default:
		x.Answer = append(x.Answer, "Stored events and git data of a blocked subject stay until they are purged.")
	}
	x.blocked(r)
	return nil
}

// explainUnknown adds the rule that would block an unknown event of the author in the question.
func (s Explainer) explainUnknown(x *Explanation) {
	if r, is := s.Rules.Rule(rules.OfAuthor(x.Author)); is && r.Action == rules.Block {
		said := "If it is by " + nip34.NPub(x.Author) + ", as was asked, it is kept out. "
		x.Answer = append([]string{said + blockedBy(r).sentence(x.Now)}, x.Answer...)
	}
}
