package nip34

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
)

// ErrSubject is wrapped by the errors of [ParseSubject].
var ErrSubject = errors.New("not an event, a repository or a relay")

// SubjectKind says what a [Subject] is.
type SubjectKind uint8

// The kinds of subjects.
const (
	SubjectEvent SubjectKind = iota + 1
	SubjectRepo
	SubjectRelay
)

// String returns "event", "repository" or "relay".
func (k SubjectKind) String() string {
	switch k {
	case SubjectEvent:
		return "event"
	case SubjectRepo:
		return "repository"
	case SubjectRelay:
		return "relay"
	}
	return fmt.Sprintf("subject(%d)", uint8(k))
}

// MarshalText gives what String does.
func (k SubjectKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText gives.
func (k *SubjectKind) UnmarshalText(text []byte) error {
	for _, is := range []SubjectKind{SubjectEvent, SubjectRepo, SubjectRelay} {
		if is.String() == string(text) {
			*k = is
			return nil
		}
	}
	return fmt.Errorf("%w: %q", ErrSubject, graspsync.Clip(string(text), 20))
}

// Subject is what somebody asks about. Only the field of its Kind is set. It is comparable; the
// zero value is nothing. It is made by [ParseSubject].
type Subject struct {
	Kind  SubjectKind
	Event graspsync.EventID
	Repo  graspsync.RepoRef
	Relay graspsync.RelayURL
}

// String returns the spelling that protocols use: an id, an address, a URL.
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

// ParseSubject reads what somebody asks about, in any spelling that people copy:
//
//   - an event: 64 hex digits, note, nevent,
//   - a repository: naddr of an announcement or a state, 30617:<hex>:<identifier> or
//     30618:..., npub/identifier, a clone URL (https://<host>/<npub>/<identifier>.git) or the
//     address of a page that has the same in its path, nostr://<npub>/<relay>/<identifier>,
//   - a relay: ws://, wss://, or a host alone,
//
// each of NIP-19 with nostr: before it or in the path of a web address as well. Hints at relays
// are not looked at. The error wraps [ErrSubject] and says what else the text is, if that can be
// told; it never repeats it.
func ParseSubject(s string) (Subject, error) {
	s = strings.TrimSpace(s)
	sub, err := parseSubject(s)
	if err != nil {
		return Subject{}, fmt.Errorf("%w: %w", ErrSubject, err)
	}
	return sub, nil
}

var (
	errEmpty  = errors.New("nothing is asked about")
	errLong   = fmt.Errorf("more than %d bytes", graspsync.MaxURLLength)
	errAuthor = errors.New("a key alone: add the identifier, as in npub/identifier")
	errSecret = errors.New("this is a secret key: show it to nobody, and take another one where it was shown")
	errWeb    = errors.New("a web address without an npub and an identifier in its path; that of a relay begins with wss://")
	errName   = errors.New("the owner is not named by a key: ask with their npub in place of their name")
)

func parseSubject(s string) (Subject, error) {
	switch {
	case s == "":
		return Subject{}, errEmpty
	case len(s) > graspsync.MaxURLLength:
		return Subject{}, errLong
	}
	scheme, rest, hasScheme := strings.Cut(s, ":")
	switch strings.ToLower(scheme) {
	case "ws", "wss":
		return relaySubject(s)
	case "http", "https":
		return webSubject(s)
	case "nostr":
		if !hasScheme {
			break
		}
		return pathSubject(strings.Trim(rest, "/"), errAuthor)
	}
	if a, err := graspsync.ParseAddress(s); err == nil {
		return addressSubject(a)
	}
	if id, err := graspsync.ParseEventID(strings.ToLower(s)); err == nil {
		return Subject{Kind: SubjectEvent, Event: id}, nil
	}
	if isCode(s) {
		return codeSubject(s)
	}
	if first, _, several := strings.Cut(s, "/"); several && isKey(first) {
		return pathSubject(s, errAuthor)
	}
	if first, _, _ := strings.Cut(s, "/"); strings.ContainsAny(first, ".:") && !strings.Contains(first, "@") {
		return relaySubject(s)
	}
	return Subject{}, errors.New("want an event's id, note or nevent, a repository's naddr, npub/identifier or clone URL, or the URL of a relay")
}

func relaySubject(s string) (Subject, error) {
	u, err := graspsync.ParseRelayURL(s)
	if err != nil {
		return Subject{}, err
	}
	return Subject{Kind: SubjectRelay, Relay: u}, nil
}

func addressSubject(a graspsync.Address) (Subject, error) {
	ref, ok := a.Repo()
	if !ok {
		return Subject{}, fmt.Errorf("an address of kind %d, or without an identifier that a repository can have: want %d or %d",
			a.Kind, graspsync.KindAnnouncement, graspsync.KindState)
	}
	return Subject{Kind: SubjectRepo, Repo: ref}, nil
}

// webSubject reads a clone URL, or the address of a page about something.
func webSubject(s string) (Subject, error) {
	u, err := graspsync.ParseURL(s, graspsync.HTTPSchemes)
	if err != nil {
		return Subject{}, err
	}
	return pathSubject(strings.Trim(u.Path, "/"), errWeb)
}

// pathSubject reads a path that has something of NIP-19 in it: that, or a key, and after it an
// identifier, with a relay between them or not. without is the error for one that has neither.
func pathSubject(path string, without error) (Subject, error) {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(path, "/")
	at := slices.IndexFunc(parts, func(p string) bool { return isCode(p) || isKey(p) })
	if at < 0 {
		if strings.ContainsAny(path, "@") {
			return Subject{}, errName
		}
		return Subject{}, without
	}
	if !isKey(parts[at]) {
		return codeSubject(parts[at])
	}
	rest := parts[at+1:]
	if len(rest) > 1 && strings.Contains(rest[0], ".") && !strings.HasSuffix(rest[0], ".git") {
		rest = rest[1:] // a hint at a relay
	}
	if len(rest) == 0 || rest[0] == "" {
		return Subject{}, errAuthor
	}
	identifier, err := url.PathUnescape(rest[0])
	if err != nil {
		return Subject{}, fmt.Errorf("the identifier: %w", graspsync.ErrURL)
	}
	owner, err := ownerOf(parts[at])
	if err != nil {
		return Subject{}, err
	}
	ref := graspsync.RepoRef{Owner: owner, Identifier: strings.TrimSuffix(identifier, ".git")}
	if err := graspsync.CheckIdentifier(ref.Identifier); err != nil {
		return Subject{}, err
	}
	return Subject{Kind: SubjectRepo, Repo: ref}, nil
}

// isKey reports whether a text is meant as a public key.
func isKey(s string) bool {
	_, err := graspsync.ParsePubKey(s)
	return err == nil || strings.HasPrefix(strings.ToLower(s), "npub1")
}

func ownerOf(s string) (graspsync.PubKey, error) {
	if k, err := graspsync.ParsePubKey(s); err == nil {
		return k, nil
	}
	return ParseNPub(s)
}

// isCode reports whether a text is meant as one of NIP-19.
func isCode(s string) bool {
	prefix, _, ok := strings.Cut(strings.ToLower(s), "1")
	return ok && slices.Contains([]string{"note", "nevent", "naddr", "npub", "nprofile", "nsec"}, prefix) && !strings.Contains(s, "/")
}

// codeSubject reads what NIP-19 has for an event or an address.
func codeSubject(s string) (Subject, error) {
	if strings.HasPrefix(strings.ToLower(s), "nsec1") {
		return Subject{}, errSecret
	}
	prefix, data, err := decodeBech32(s)
	if err != nil {
		return Subject{}, err
	}
	switch prefix {
	case "note":
		return idSubject(data)
	case "nevent":
		return idSubject(entries(data)[tlvSpecial])
	case "naddr":
		of := entries(data)
		if len(of[tlvKind]) != 4 || len(of[tlvAuthor]) != len(graspsync.PubKey{}) {
			return Subject{}, errors.New("an naddr without a kind or an author")
		}
		kind := binary.BigEndian.Uint32(of[tlvKind])
		if kind > 1<<16-1 {
			return Subject{}, errors.New("an naddr of a kind that there is not")
		}
		return addressSubject(graspsync.Address{
			Kind: int(kind), Author: graspsync.PubKey(of[tlvAuthor]), Identifier: string(of[tlvSpecial]),
		})
	}
	return Subject{}, errAuthor
}

func idSubject(data []byte) (Subject, error) {
	if len(data) != len(graspsync.EventID{}) {
		return Subject{}, errors.New("a note or nevent without the id of an event")
	}
	return Subject{Kind: SubjectEvent, Event: graspsync.EventID(data)}, nil
}
