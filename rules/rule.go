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

// Action is what a [Rule] says.
type Action string

// The actions.
const (
	// Block: nothing of it is taken, asked for or served any more.
	Block Action = "block"
	// Allow: it is not blocked, whatever a rule that comes later in the order of a [Book] says.
	Allow Action = "allow"
)

// Kind is what a [Subject] is one of.
type Kind string

// The kinds of subjects.
const (
	// Relay: a host, or a host and port, whatever is reached there: relays and git servers.
	Relay Kind = "relay"
	// Author of events, owner of repositories.
	Author Kind = "author"
	// Repository, by its address.
	Repository Kind = "repository"
	// Event, by its id.
	Event Kind = "event"
)

// Sentinels of what is read and set.
var (
	// ErrSubject is wrapped where a text is no subject of a rule, or a kind is none.
	ErrSubject = errors.New("not a subject of rules")
	// ErrRule is wrapped by what Set and ParseFile say of a rule that can't be used.
	ErrRule = errors.New("not a rule")
	// ErrFull is wrapped where there are as many rules as may be.
	ErrFull = errors.New("too many rules")
	// ErrNoRule is wrapped by what Unset returns where there is none.
	ErrNoRule = errors.New("rule not found")
)

const (
	// MaxRules bounds the rules that are kept, and those of a file.
	MaxRules = 10_000
	// MaxReason is the longest reason that is kept, in bytes.
	MaxReason = 300
	// MaxText is the longest description, name or URL that is kept, in bytes.
	MaxText = 4_000
)

// Subject is what a rule is about. Comparable; the zero value is none. It is made by [ParseSubject]
// or one of the functions Of.
type Subject struct {
	Kind Kind `json:"kind"`
	// Name is its one spelling: a host or host:port, 64 hex digits, or 30617:<owner>:<identifier>.
	Name string `json:"name"`
}

// OfAuthor is an author as a subject.
func OfAuthor(k graspsync.PubKey) Subject { return Subject{Author, k.String()} }

// OfRepository is a repository as a subject.
func OfRepository(ref graspsync.RepoRef) Subject { return Subject{Repository, ref.String()} }

// OfEvent is an event as a subject.
func OfEvent(id graspsync.EventID) Subject { return Subject{Event, id.String()} }

// OfHost is all that is reached at a host and port as a subject.
func OfHost(at graspsync.HostPort) Subject { return Subject{Relay, at.String()} }

// String returns kind and name.
func (s Subject) String() string { return string(s.Kind) + " " + s.Name }

// PubKey returns the author that a rule is about, or the owner of the repository.
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

// Ref returns the repository that a rule is about.
func (s Subject) Ref() (graspsync.RepoRef, bool) {
	ref, err := graspsync.ParseRepoRef(s.Name)
	return ref, s.Kind == Repository && err == nil
}

// ParseSubject reads a subject as people write it: a relay as URL, host or host:port (a bare host is
// all its ports; what has a scheme is the port of that, and a path is left out), an author as npub,
// nprofile or hex, a repository as address, naddr or npub/identifier, an event as id, note or nevent.
// The error wraps [ErrSubject].
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
			text = "nsec..." // it would be in logs
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

// ParseRepository reads an address, an naddr, npub/identifier, or a clone URL, of which the host is
// left out. The error wraps [graspsync.ErrRepoRef] or is that of the owner's key.
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

// errMistyped is what is wrong with what begins as one of NIP-19 and is none.
var errMistyped = errors.New("mistyped, or cut off: its checksum is wrong")

// mistyped returns what to say of a text that could not be decoded and begins as one of some prefixes.
func mistyped(text string, prefixes ...string) error {
	for _, p := range prefixes {
		if strings.HasPrefix(text, p+"1") {
			return fmt.Errorf("%s %q: %w", p, graspsync.Clip(text, 100), errMistyped)
		}
	}
	return nil
}

// decode reads NIP-19. What is none is not given to the library at all.
func decode(text string) (prefix string, value any, err error) {
	if !strings.HasPrefix(text, "n") || strings.ContainsAny(text, "/: ") {
		return "", nil, ErrSubject
	}
	defer func() {
		if p := recover(); p != nil { // it does over what is too short
			err = ErrSubject
		}
	}()
	return nip19.Decode(text)
}

// Rule is one decision.
type Rule struct {
	Action  Action  `json:"action"`
	Subject Subject `json:"subject"`
	// Reason is for those who run the server; clients hear that something is blocked.
	Reason string `json:"reason,omitempty"`
	// By is who set it: an npub, "file", or whatever the program says.
	By string `json:"by,omitempty"`
	// Since is when.
	Since time.Time `json:"since,omitzero"`
}

// String is the line of a file that says the same.
func (r Rule) String() string {
	out := string(r.Action) + " " + r.Subject.String()
	if r.Reason != "" {
		out += " # " + r.Reason
	}
	return out
}

// check returns why a rule can't be used.
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

// clean is a text that strangers may have had a hand in, in one line and no longer than most.
func clean(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	return strings.TrimSpace(graspsync.Clip(s, most))
}
