package rules

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"

	"github.com/graspsync/graspsync"
)

// Action is the effect of a [Rule].
type Action string

const (
	// Block refuses a subject. The server does not store, request or serve its events.
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
	// MaxText is the maximum length of a description, name or URL, in bytes. Longer texts are
	// clipped.
	MaxText = 4_000
)

// Subject is the relay, author, repository or event of a rule. It is comparable. The zero value
// names no subject. Use [ParseSubject] or a function whose name begins with Of.
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
		k, err = ParseAuthor(text)
		s = OfAuthor(k)
	case Repository:
		var ref graspsync.RepoRef
		ref, err = ParseRepository(text)
		s = OfRepository(ref)
	case Event:
		var id graspsync.EventID
		id, err = parseEvent(text)
		s = OfEvent(id)
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

// ParseAuthor reads an npub, an nprofile or a hex key.
func ParseAuthor(text string) (graspsync.PubKey, error) {
	switch prefix, value, err := decode(text); {
	case err == nil && prefix == "npub":
		hex, _ := value.(string)
		return graspsync.ParsePubKey(hex)
	case err == nil && prefix == "nprofile":
		p, _ := value.(nostr.ProfilePointer)
		return graspsync.ParsePubKey(p.PublicKey)
	}
	if err := mistyped(text, "npub", "nprofile"); err != nil {
		return graspsync.PubKey{}, err
	}
	k, err := graspsync.ParsePubKey(text)
	if err != nil {
		return graspsync.PubKey{}, fmt.Errorf("not an npub, and %w", err)
	}
	return k, nil
}

// ParseRepository reads an address, an naddr, npub/identifier, or a clone URL, whose host is
// ignored. The error wraps [graspsync.ErrRepoRef] or is the error of the owner's key.
func ParseRepository(text string) (graspsync.RepoRef, error) {
	if prefix, value, err := decode(text); err == nil && prefix == "naddr" {
		p, _ := value.(nostr.EntityPointer)
		return graspsync.ParseRepoRef(fmt.Sprintf("%d:%s:%s", p.Kind, p.PublicKey, p.Identifier))
	}
	if err := mistyped(text, "naddr"); err != nil {
		return graspsync.RepoRef{}, err
	}
	if strings.HasPrefix(text, "30617:") {
		return graspsync.ParseRepoRef(text)
	}
	if i := strings.Index(text, "npub1"); i >= 0 {
		owner, identifier, _ := strings.Cut(text[i:], "/")
		if i > 0 || strings.HasSuffix(identifier, ".git") {
			identifier = strings.TrimSuffix(strings.TrimSuffix(identifier, "/"), ".git")
		}
		k, err := ParseAuthor(owner)
		if err == nil {
			err = graspsync.CheckIdentifier(identifier)
		}
		return graspsync.RepoRef{Owner: k, Identifier: identifier}, err
	}
	return graspsync.ParseRepoRef(text)
}

func parseEvent(text string) (graspsync.EventID, error) {
	switch prefix, value, err := decode(text); {
	case err == nil && prefix == "note":
		hex, _ := value.(string)
		return graspsync.ParseEventID(hex)
	case err == nil && prefix == "nevent":
		p, _ := value.(nostr.EventPointer)
		return graspsync.ParseEventID(p.ID)
	}
	if err := mistyped(text, "note", "nevent"); err != nil {
		return graspsync.EventID{}, err
	}
	return graspsync.ParseEventID(text)
}

// errMistyped reports a text that begins with a NIP-19 prefix and cannot be decoded.
var errMistyped = errors.New("mistyped, or cut off: its checksum is wrong")

// mistyped returns an error if a text begins with a prefix. It is called after decoding failed.
func mistyped(text string, prefixes ...string) error {
	for _, p := range prefixes {
		if strings.HasPrefix(text, p+"1") {
			return fmt.Errorf("%s %q: %w", p, graspsync.Clip(text, 100), errMistyped)
		}
	}
	return nil
}

// decode reads NIP-19. Other texts are not passed to the library.
func decode(text string) (prefix string, value any, err error) {
	if !strings.HasPrefix(text, "n") || strings.ContainsAny(text, "/: ") {
		return "", nil, ErrSubject
	}
	defer func() {
		if p := recover(); p != nil { // the library panics if text is too short
			err = ErrSubject
		}
	}()
	return nip19.Decode(text)
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

// clean returns s on one line, clipped to most bytes. Clients may have chosen s.
func clean(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	return strings.TrimSpace(graspsync.Clip(s, most))
}
