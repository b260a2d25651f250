package graspsync

import (
	"fmt"
	"log/slog"
)

// Dependency is an event, or an act of the operator, after which another event is judged again. The
// functions On... make it. Comparable.
type Dependency struct {
	Kind   DependencyKind
	ID     EventID // of AwaitEvent and AwaitMention
	Author PubKey  // the author, the maintainer, or the owner of the repository
	// Text is the identifier of a repository, an address, or the subject of a rule.
	Text string
}

// DependencyKind is the kind of a [Dependency].
type DependencyKind uint8

// The kinds of dependencies, described at the functions On.... Their numbers are stored in records
// that survive restarts.
const (
	AwaitEvent DependencyKind = iota + 1
	AwaitMention
	AwaitRepo
	_ // in records of earlier versions
	AwaitMaintainer
	AwaitAuthor
	_ // in records of earlier versions
	_ // in records of earlier versions
	AwaitVersion
	AwaitHeldBy
	AwaitVersionMention
	AwaitBecomesMaintainer
	AwaitBecomesListed
	AwaitRuleRemoved
	AwaitOperatorRequest
)

func (d Dependency) String() string {
	repo := RepoRef{Owner: d.Author, Identifier: d.Text}.String()
	switch d.Kind {
	case AwaitEvent:
		return "event " + d.ID.String()
	case AwaitMention:
		return "something that refers to " + d.ID.String()
	case AwaitRepo:
		return "announcement " + repo
	case AwaitMaintainer, AwaitBecomesMaintainer:
		return d.Author.String() + " as maintainer of " + d.Text
	case AwaitBecomesListed:
		return "an announcement of " + d.Text + " that lists " + d.Author.String()
	case AwaitAuthor:
		return "anything by " + d.Author.String()
	case AwaitHeldBy:
		return "anything held by " + d.Author.String()
	case AwaitVersion:
		return d.Text
	case AwaitRuleRemoved:
		return "the operator to lift the block of " + d.Text
	case AwaitOperatorRequest:
		return "the operator to ask for " + d.ID.String() + " again"
	case AwaitVersionMention:
		return "something that refers to " + d.Text
	}
	return fmt.Sprintf("dependency(%d)", d.Kind)
}

// LogValue implements [slog.LogValuer], so that the text is built only if it is logged.
func (d Dependency) LogValue() slog.Value { return slog.StringValue(Printable(d.String())) }

// OnEvent is fulfilled by the event with this id.
func OnEvent(id EventID) Dependency { return Dependency{Kind: AwaitEvent, ID: id} }

// OnMention is fulfilled by an event that tags this id (e, E or q).
func OnMention(id EventID) Dependency { return Dependency{Kind: AwaitMention, ID: id} }

// OnRepo is fulfilled by an announcement of this repository.
func OnRepo(ref RepoRef) Dependency {
	return Dependency{Kind: AwaitRepo, Author: ref.Owner, Text: ref.Identifier}
}

// OnMaintainer is fulfilled by an announcement with this identifier that is by the author or lists
// them as maintainer.
func OnMaintainer(identifier string, author PubKey) Dependency {
	return Dependency{Kind: AwaitMaintainer, Author: author, Text: identifier}
}

// OnBecomesMaintainer is fulfilled by an announcement with this identifier because of which, as the
// Policy decides, states of the author may count, or if it cannot decide, like [OnMaintainer].
func OnBecomesMaintainer(identifier string, author PubKey) Dependency {
	return Dependency{Kind: AwaitBecomesMaintainer, Author: author, Text: identifier}
}

// OnBecomesListed is like [OnBecomesMaintainer], for announcements of the author instead of states.
func OnBecomesListed(identifier string, author PubKey) Dependency {
	return Dependency{Kind: AwaitBecomesListed, Author: author, Text: identifier}
}

// OnAuthor is fulfilled by any event of this author.
func OnAuthor(author PubKey) Dependency {
	return Dependency{Kind: AwaitAuthor, Author: author}
}

// OnVersion is fulfilled by any version of a replaceable or addressable event.
func OnVersion(c Address) Dependency { return Dependency{Kind: AwaitVersion, Text: c.String()} }

// OnVersionMention is fulfilled by an event that tags the address (a, A or q) of an event other
// than an announcement or a state.
func OnVersionMention(c Address) Dependency {
	return Dependency{Kind: AwaitVersionMention, Text: c.String()}
}

// OnRuleRemoved is fulfilled when the operator removes the rule about a subject. No event fulfills it.
func OnRuleRemoved(subject string) Dependency {
	return Dependency{Kind: AwaitRuleRemoved, Text: subject}
}

// OnOperatorRequest is fulfilled when the operator orders that this event be requested again. No
// event fulfills it.
func OnOperatorRequest(id EventID) Dependency { return Dependency{Kind: AwaitOperatorRequest, ID: id} }

// OnHeldBy is fulfilled by any event of this author that the Policy holds.
func OnHeldBy(author PubKey) Dependency {
	return Dependency{Kind: AwaitHeldBy, Author: author}
}
