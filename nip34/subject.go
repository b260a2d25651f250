package nip34

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"

	"github.com/graspsync/graspsync"
)

// ErrSubject is wrapped by the errors of [ParseSubject].
var ErrSubject = errors.New("not an event, a repository or a relay")

// SubjectKind is the kind of a [Subject].
type SubjectKind string

// The kinds of subjects.
const (
	SubjectEvent SubjectKind = "event"
	SubjectRepo  SubjectKind = "repository"
	SubjectRelay SubjectKind = "relay"
)

// Subject is an event, a repository or a relay that an operator names. Comparable.
type Subject struct {
	Kind  SubjectKind
	Event graspsync.EventID
	Repo  graspsync.RepoRef
	Relay graspsync.RelayURL
	// Author is the author that an nevent names. It is not verified.
	Author graspsync.PubKey
}

// String returns the canonical spelling, which is an id, an address or a URL.
func (s Subject) String() string {
	switch s.Kind {
	case SubjectEvent:
		return s.Event.String()
	case SubjectRepo:
		return s.Repo.String()
	case SubjectRelay:
		return s.Relay.String()
	}
	return ""
}

// ParseSubject reads a subject in any spelling that people copy:
//
//   - an event: 64 hex digits, note, nevent,
//   - a repository: naddr of an announcement or a state, 30617:<hex>:<identifier> or
//     30618:..., npub/identifier, a clone URL (https://<host>/<npub>/<identifier>.git, with or
//     without https://) or the address of a page that has the same in its path,
//     nostr://<npub>/<relay>/<identifier>,
//   - a relay: ws://, wss://, or a host alone.
//
// A NIP-19 text may have the prefix nostr: or be in the path of a web address. The error wraps
// [ErrSubject] and names the kind of the text if it is known.
func ParseSubject(s string) (Subject, error) {
	sub, err := parseSubject(strings.TrimSpace(s))
	if err != nil {
		return Subject{}, fmt.Errorf("%w: %w", ErrSubject, err)
	}
	return sub, nil
}

var (
	errLong   = fmt.Errorf("more than %d bytes", graspsync.MaxURLLength)
	errWant   = errors.New("want an event's id, note or nevent, a repository's naddr, npub/identifier or clone URL, or the URL of a relay")
	errAuthor = errors.New("a key alone: add the identifier, as in npub/identifier")
	errHint   = errors.New("the name after the key may be a relay: ask for npub/identifier")
	errSecret = errors.New("this is a secret key: keep it private, and replace it if it was shown")
	errBech32 = errors.New("malformed, or mistyped: its checksum is wrong")
	errKey    = errors.New("want a public key: npub, nprofile or 64 hex digits")
)

// nip19OrKey matches the beginning of a NIP-19 text, and a key in hex.
var nip19OrKey = regexp.MustCompile(`(?i)^(?:note1|nevent1|naddr1|npub1|nprofile1|nsec1|[0-9a-f]{64}$)`)

func parseSubject(s string) (Subject, error) {
	if len(s) > graspsync.MaxURLLength {
		return Subject{}, errLong
	}
	_, rest, _ := strings.Cut(s, ":")
	switch strings.ToLower(s[:len(s)-len(rest)]) {
	case "ws:", "wss:":
		return parseRelaySubject(s)
	case "http:", "https:":
		u, err := graspsync.ParseURL(s, graspsync.HTTPSchemes)
		if err != nil {
			return Subject{}, err
		}
		return parsePathSubject(u.Path, false)
	case "nostr:":
		return parsePathSubject(rest, true)
	}
	if a, err := graspsync.ParseAddress(strings.ToLower(s[:min(len(s), addressPrefix)]) + s[min(len(s), addressPrefix):]); err == nil {
		return subjectOfAddress(a)
	}
	if id, err := graspsync.ParseEventID(strings.ToLower(s)); err == nil {
		return Subject{Kind: SubjectEvent, Event: id}, nil
	}
	sub, err := parsePathSubject(s, false)
	if host, _, _ := strings.Cut(s, "/"); err == nil || nip19OrKey.MatchString(host) || !strings.ContainsAny(host, ".:") {
		return sub, err
	}
	return parseRelaySubject(s)
}

const addressPrefix = len("30617:") + 64

func parseRelaySubject(s string) (Subject, error) {
	u, err := graspsync.ParseRelayURL(s)
	return Subject{Kind: SubjectRelay, Relay: u}, err
}

func subjectOfAddress(a graspsync.Address) (Subject, error) {
	ref, ok := a.Repo()
	if !ok {
		return Subject{}, fmt.Errorf("an address of kind %d, or without an identifier that a repository can have: want %d or %d",
			a.Kind, graspsync.KindAnnouncement, graspsync.KindState)
	}
	return Subject{Kind: SubjectRepo, Repo: ref}, nil
}

// parsePathSubject reads a path with a NIP-19 text, or a key followed by an identifier, with a relay
// between them if withRelay is true.
func parsePathSubject(path string, withRelay bool) (Subject, error) {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	at := slices.IndexFunc(parts, nip19OrKey.MatchString)
	if at < 0 {
		return Subject{}, errWant
	}
	sub, err := parseNIP19OrKey(parts[at])
	rest := parts[at+1:]
	switch {
	case err != nil || sub.Kind != "":
		return sub, err
	case len(rest) == 0:
		return Subject{}, errAuthor
	case withRelay:
		rest = rest[len(rest)-1:]
	}
	identifier := rest[0]
	if plain, err := url.PathUnescape(identifier); err == nil {
		identifier = plain
	}
	if !withRelay && len(rest) > 1 && !strings.HasSuffix(identifier, ".git") && strings.ContainsAny(identifier, ".:") {
		return Subject{}, errHint
	}
	ref := graspsync.RepoRef{Owner: sub.Author, Identifier: strings.TrimSuffix(identifier, ".git")}
	return Subject{Kind: SubjectRepo, Repo: ref}, graspsync.CheckIdentifier(ref.Identifier)
}

// parseNIP19OrKey reads a NIP-19 text, or a key in hex. A key alone is an Author without a Kind.
func parseNIP19OrKey(s string) (sub Subject, err error) {
	lower := strings.ToLower(s)
	if strings.HasPrefix(lower, "nsec1") {
		return sub, errSecret
	}
	if sub.Author, err = graspsync.ParsePubKey(lower); err == nil {
		return sub, nil
	}
	prefix, value, err := decode(s)
	if err != nil {
		return Subject{}, err
	}
	switch v := value.(type) {
	case nostr.ProfilePointer:
		sub.Author, err = graspsync.ParsePubKey(v.PublicKey)
	case nostr.EventPointer:
		sub.Kind = SubjectEvent
		sub.Author, _ = graspsync.ParsePubKey(v.Author) // it may be missing
		sub.Event, err = graspsync.ParseEventID(v.ID)
	case nostr.EntityPointer:
		author, _ := graspsync.ParsePubKey(v.PublicKey) // go-nostr encodes it
		return subjectOfAddress(graspsync.Address{Kind: v.Kind, Author: author, Identifier: v.Identifier})
	case string:
		if prefix == "note" {
			sub.Kind = SubjectEvent
			sub.Event, err = graspsync.ParseEventID(v)
		} else {
			sub.Author, err = graspsync.ParsePubKey(v)
		}
	}
	return sub, err
}

// decode is [nip19.Decode], which panics if a kind is short.
func decode(s string) (prefix string, value any, err error) {
	defer func() {
		if recover() != nil || err != nil {
			err = errBech32
		}
	}()
	return nip19.Decode(s)
}

// ParsePubKey reads 64 hex digits, an npub or an nprofile.
func ParsePubKey(s string) (graspsync.PubKey, error) {
	sub, err := parseNIP19OrKey(s)
	if err == nil && sub.Kind != "" {
		err = errKey
	}
	return sub.Author, err
}

// NPub returns the npub of a key (NIP-19).
func NPub(k graspsync.PubKey) string {
	text, _ := nip19.EncodePublicKey(k.String()) // fails for invalid hex only
	return text
}
