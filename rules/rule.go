package rules

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Action is the effect of a [Rule].
type Action string

const (
	// Block refuses a subject. Its events are not stored, requested or served.
	Block Action = "block"
	// Allow exempts a subject from rules of lower precedence, see the package documentation.
	Allow Action = "allow"
)

// Kind is the type of a [Subject].
type Kind string

const (
	// Relay is a relay or git server, named by host or by host and port.
	Relay Kind = "relay"
	// Author is the author of events, or the owner of repositories.
	Author Kind = "author"
	// Repository is a repository, named by its address.
	Repository Kind = "repository"
	// Event is an event, named by its id.
	Event Kind = "event"
)

var (
	// ErrSubject reports a text that names no subject, or an unknown kind.
	ErrSubject = errors.New("not a subject of rules")
	// ErrRule reports an invalid rule.
	ErrRule = errors.New("not a rule")
	// ErrFull reports that MaxRules rules exist.
	ErrFull = errors.New("too many rules")
	// ErrNoRule reports that no rule exists for a subject.
	ErrNoRule = errors.New("rule not found")
)

const (
	// MaxRules is the maximum number of saved rules, and of rules in a file.
	MaxRules = 10_000
	// MaxReason is the maximum length of a reason, in bytes. Longer reasons are clipped.
	MaxReason = 300
)

// Subject is the relay, author, repository or event of a rule. It is comparable. The zero value
// names none. [ParseSubject] and the functions Of... make one.
type Subject struct {
	Kind Kind `json:"kind"`
	// Name is canonical: a host or host:port, 64 hex digits, or 30617:<owner>:<identifier>.
	Name string `json:"name"`
}

// OfAuthor returns an author as a subject.
func OfAuthor(k graspsync.PubKey) Subject { return Subject{Author, k.String()} }

// OfRepository returns a repository as a subject.
func OfRepository(ref graspsync.RepoRef) Subject { return Subject{Repository, ref.String()} }

// OfEvent returns an event as a subject.
func OfEvent(id graspsync.EventID) Subject { return Subject{Event, id.String()} }

// OfHost returns the server at a host and port as a subject.
func OfHost(at graspsync.HostPort) Subject { return Subject{Relay, at.String()} }

// String returns kind and name.
func (s Subject) String() string { return string(s.Kind) + " " + s.Name }

// PubKey returns the author, or the owner of the repository.
func (s Subject) PubKey() (k graspsync.PubKey, ok bool) {
	switch s.Kind {
	case Author:
		k, err := graspsync.ParsePubKey(s.Name)
		return k, err == nil
	case Repository:
		ref, err := graspsync.ParseRepoRef(s.Name)
		return ref.Owner, err == nil
	case Relay, Event:
	}
	return k, false
}

// Ref returns the repository of a subject whose kind is Repository.
func (s Subject) Ref() (graspsync.RepoRef, bool) {
	ref, err := graspsync.ParseRepoRef(s.Name)
	return ref, s.Kind == Repository && err == nil
}

// ParseSubject reads a subject in the forms that people use. The error wraps [ErrSubject].
//
//   - Relay: a URL, host or host:port. A bare host means all ports. The path of a URL is ignored.
//   - Author: npub, nprofile or hex.
//   - Repository: address, naddr or npub/identifier.
//   - Event: id, note or nevent.
func ParseSubject(kind, text string) (Subject, error) {
	if len(text) > graspsync.MaxIdentifier+1_000 {
		return Subject{}, fmt.Errorf("%w: %d bytes", ErrSubject, len(text))
	}
	var s Subject
	var err error
	switch Kind(kind) {
	case Relay:
		s, err = parseHost(text)
	case Author:
		var k graspsync.PubKey
		k, err = nip34.ParsePubKey(text)
		s = OfAuthor(k)
	case Repository:
		var ref graspsync.RepoRef
		ref, err = ParseRepository(text)
		s = OfRepository(ref)
	case Event:
		var named nip34.Subject
		named, err = parse(text, nip34.SubjectEvent)
		s = OfEvent(named.Event)
	default:
		return Subject{}, fmt.Errorf("%w: %q is not relay, author, repository or event", ErrSubject, graspsync.Clip(kind, 50))
	}
	if err != nil {
		if strings.HasPrefix(text, "nsec") {
			text = "nsec..." // keeps the secret key out of logs
		}
		return Subject{}, fmt.Errorf("%w: %s %q: %w", ErrSubject, kind, graspsync.Clip(text, 100), err)
	}
	return s, nil
}

func parseHost(text string) (Subject, error) {
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		switch scheme = strings.ToLower(scheme); scheme {
		case "https":
			text = "wss://" + rest
		case "http":
			text = "ws://" + rest
		}
		u, err := graspsync.ParseRelayURL(text)
		if err != nil {
			return Subject{}, err
		}
		return OfHost(u.HostPort()), nil
	}
	if at, err := graspsync.ParseHostPort(text); err == nil {
		return OfHost(at), nil
	}
	host, err := graspsync.HostPort{Host: strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")}.Canonical()
	if err != nil {
		return Subject{}, err
	}
	return Subject{Relay, host.Host}, nil
}

// ParseRepository reads an address, naddr, npub/identifier or clone URL. The error wraps
// [nip34.ErrSubject].
func ParseRepository(text string) (graspsync.RepoRef, error) {
	if ref, err := graspsync.ParseRepoRef(text); err == nil { // also an identifier that ends with a space
		return ref, nil
	}
	s, err := parse(text, nip34.SubjectRepo)
	return s.Repo, err
}

func parse(text string, kind nip34.SubjectKind) (nip34.Subject, error) {
	s, err := nip34.ParseSubject(text)
	if err == nil && s.Kind != kind {
		err = fmt.Errorf("%w: it names a subject of kind %s", nip34.ErrSubject, s.Kind)
	}
	return s, err
}

// Rule is one decision about a subject.
type Rule struct {
	Action  Action  `json:"action"`
	Subject Subject `json:"subject"`
	// Reason is meant for operators. Clients do not receive it.
	Reason string `json:"reason,omitempty"`
	// By is the origin of the rule: an npub, "file", or a text of the program.
	By string `json:"by,omitempty"`
	// Since is the time when the rule was set.
	Since time.Time `json:"since,omitzero"`
}

// String returns the rule as a line of a rules file.
func (r Rule) String() string {
	out := string(r.Action) + " " + r.Subject.String()
	if r.Reason != "" {
		out += " # " + r.Reason
	}
	return out
}

func (r Rule) check() error {
	if r.Action != Block && r.Action != Allow {
		return fmt.Errorf("%w: action %q", ErrRule, graspsync.Clip(string(r.Action), 50))
	}
	again, err := ParseSubject(string(r.Subject.Kind), r.Subject.Name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRule, err)
	}
	if again != r.Subject {
		return fmt.Errorf("%w: the subject is spelled %q", ErrRule, again.Name)
	}
	return nil
}

// cleanText returns s on one line, clipped to most bytes. Clients may have chosen s.
func cleanText(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	return strings.TrimSpace(graspsync.Clip(s, most))
}
