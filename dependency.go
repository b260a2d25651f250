package graspsync

import (
	"fmt"
	"log/slog"
)

// Dependency is something that an event may wait for, made by one of the functions On...
// Comparable.
type Dependency struct {
	Await  Awaited
	ID     EventID // of AwaitEvent and AwaitMention
	Author PubKey  // whom the name of Await speaks of; the owner of a repository
	// Text is the identifier of a repository, or an address.
	Text string
}

// Awaited is the kind of a [Dependency].
type Awaited uint8

// What the functions On... are named after. The numbers are kept in what survives restarts.
const (
	// AwaitEvent is an event, by its id.
	AwaitEvent Awaited = iota + 1
	// AwaitMention is anything that tags the id of an event.
	AwaitMention
	// AwaitRepo is the announcement of a repository.
	AwaitRepo
	_ // is taken, in what an earlier version has kept
	// AwaitMaintainer is an announcement with an identifier, by somebody or that lists them.
	AwaitMaintainer
	// AwaitAuthor is any event of an author.
	AwaitAuthor
	_ // is taken, in what an earlier version has kept
	_ // is taken as well
	// AwaitVersion is any version of the event at an address.
	AwaitVersion
	// AwaitHeldBy is any event of an author that the Policy holds.
	AwaitHeldBy
	// AwaitVersionMention is anything that tags an address.
	AwaitVersionMention
	// AwaitSay is whatever gives somebody a say under an identifier.
	AwaitSay
	// AwaitWanted is whatever has the announcement of somebody wanted under an identifier.
	AwaitWanted
	// AwaitLifted is that a rule of the operator's is lifted.
	AwaitLifted
	// AwaitAsked is that the operator wants the event asked for again.
	AwaitAsked
)

// String says what is waited for, as a log has it.
func (d Dependency) String() string {
	repo := RepoRef{Owner: d.Author, Identifier: d.Text}.String()
	switch d.Await {
	case AwaitEvent:
		return "event " + d.ID.String()
	case AwaitMention:
		return "something that refers to " + d.ID.String()
	case AwaitRepo:
		return "announcement " + repo
	case AwaitMaintainer, AwaitSay:
		return "a say of " + d.Author.String() + " in " + d.Text
	case AwaitWanted:
		return "an announcement of " + d.Text + " that lists " + d.Author.String()
	case AwaitAuthor:
		return "anything by " + d.Author.String()
	case AwaitHeldBy:
		return "anything held by " + d.Author.String()
	case AwaitVersion:
		return d.Text
	case AwaitLifted:
		return "the operator to lift the block of " + d.Text
	case AwaitAsked:
		return "the operator to ask for " + d.ID.String() + " again"
	case AwaitVersionMention:
		return "something that refers to " + d.Text
	}
	return fmt.Sprintf("dependency(%d)", d.Await)
}

// LogValue implements [slog.LogValuer]: nothing is spelled where nothing is logged.
func (d Dependency) LogValue() slog.Value { return slog.StringValue(Printable(d.String())) }

// OnEvent is fulfilled by the event with this id.
func OnEvent(id EventID) Dependency { return Dependency{Await: AwaitEvent, ID: id} }

// OnMention is fulfilled by an event that tags this id (e, E or q).
func OnMention(id EventID) Dependency { return Dependency{Await: AwaitMention, ID: id} }

// OnRepo is fulfilled by an announcement of this repository.
func OnRepo(ref RepoRef) Dependency {
	return Dependency{Await: AwaitRepo, Author: ref.Owner, Text: ref.Identifier}
}

// OnMaintainer is fulfilled by an announcement with this identifier that is by the
// author or lists them as maintainer.
func OnMaintainer(identifier string, author PubKey) Dependency {
	return Dependency{Await: AwaitMaintainer, Author: author, Text: identifier}
}

// OnSay is fulfilled by an announcement with this identifier by which states of this author
// may count that did not: by what the Policy says, if it can tell, else by any if it or
// another one that is here lists the author, or is by them.
func OnSay(identifier string, author PubKey) Dependency {
	return Dependency{Await: AwaitSay, Author: author, Text: identifier}
}

// OnWanted is OnSay for announcements of the author.
func OnWanted(identifier string, author PubKey) Dependency {
	return Dependency{Await: AwaitWanted, Author: author, Text: identifier}
}

// OnAuthor is fulfilled by any event of this author.
func OnAuthor(author PubKey) Dependency {
	return Dependency{Await: AwaitAuthor, Author: author}
}

// OnVersion is fulfilled by any version of a replaceable or addressable event.
func OnVersion(c Address) Dependency { return Dependency{Await: AwaitVersion, Text: c.String()} }

// OnVersionMention is fulfilled by an event that tags the address (a, A or q) of a replaceable
// or addressable event, other than an announcement or a state.
func OnVersionMention(c Address) Dependency {
	return Dependency{Await: AwaitVersionMention, Text: c.String()}
}

// OnLifted is fulfilled when a rule of the operator's is lifted, of which what says what it is
// about: nothing that comes fulfils it.
func OnLifted(what string) Dependency { return Dependency{Await: AwaitLifted, Text: what} }

// OnAsked is fulfilled when whoever runs the server wants this event, which was removed or given up, asked for again:
// nothing that comes fulfils it.
func OnAsked(id EventID) Dependency { return Dependency{Await: AwaitAsked, ID: id} }

// OnHeldBy is fulfilled by any event of this author that the Policy holds.
func OnHeldBy(author PubKey) Dependency {
	return Dependency{Await: AwaitHeldBy, Author: author}
}
