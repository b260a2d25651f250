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

// SubjectKind is the kind of a [Subject].
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

// MarshalText returns the text of String.
func (k SubjectKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the text of MarshalText.
func (k *SubjectKind) UnmarshalText(text []byte) error {
	for _, is := range []SubjectKind{SubjectEvent, SubjectRepo, SubjectRelay} {
		if is.String() == string(text) {
			*k = is
			return nil
		}
	}
	return fmt.Errorf("%w: %q", ErrSubject, graspsync.Clip(string(text), 20))
}

// Subject is an event, a repository or a relay that an operator names. The field of its Kind is
// set, and Author may be set with an event. Comparable. [ParseSubject] makes it.
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
// A NIP-19 text may have the prefix nostr: or be in the path of a web address. Relay hints are
// skipped in nostr: URLs only. In other URLs <npub>/my.repo/issues may mean my.repo or a relay hint
// my.repo with the identifier issues, and is an error that names both. The error wraps [ErrSubject]
// and names the kind of the text if it is known. It quotes the text only in that case of two names.
func ParseSubject(s string) (Subject, error) {
	s = strings.TrimSpace(s)
	sub, err := parseSubject(s)
	if err != nil {
		return Subject{}, fmt.Errorf("%w: %w", ErrSubject, err)
	}
	return sub, nil
}

var (
	errEmpty  = errors.New("empty question")
	errLong   = fmt.Errorf("more than %d bytes", graspsync.MaxURLLength)
	errAuthor = errors.New("a key alone: add the identifier, as in npub/identifier")
	errSecret = errors.New("this is a secret key: keep it private, and replace it if it was shown")
	errWeb    = errors.New("a web address without an npub and an identifier in its path; that of a relay begins with wss://")
	errName   = errors.New("the owner is not a key: use the npub instead of the name")
)

func parseSubject(s string) (Subject, error) {
	switch {
	case s == "":
		return Subject{}, errEmpty
	case len(s) > graspsync.MaxURLLength:
		return Subject{}, errLong
	}
	if scheme, rest, ok := strings.Cut(s, ":"); ok {
		switch strings.ToLower(scheme) {
		case "ws", "wss":
			return relaySubject(s)
		case "http", "https":
			return webSubject(s)
		case "nostr":
			return pathSubject(rest, true, errAuthor)
		}
	}
	if a, err := graspsync.ParseAddress(lowerKey(s)); err == nil {
		return addressSubject(a)
	}
	if id, err := graspsync.ParseEventID(strings.ToLower(s)); err == nil {
		return Subject{Kind: SubjectEvent, Event: id}, nil
	}
	if isCode(s) {
		return codeSubject(s)
	}
	first, rest, several := strings.Cut(s, "/")
	if several && isKey(first) {
		return pathSubject(s, false, errAuthor)
	}
	if strings.ContainsAny(first, ".:") && !strings.Contains(first, "@") {
		if hasSubject(rest) {
			return pathSubject(rest, false, errAuthor)
		}
		return relaySubject(s)
	}
	return Subject{}, errors.New("want an event's id, note or nevent, a repository's naddr, npub/identifier or clone URL, or the URL of a relay")
}

// lowerKey returns an address with the key in lower case.
func lowerKey(s string) string {
	parts := strings.SplitN(s, ":", 3)
	if len(parts) == 3 {
		parts[1] = strings.ToLower(parts[1])
	}
	return strings.Join(parts, ":")
}

// hasSubject reports whether a path below a host names an event or a repository. A key alone does
// not, because it may be part of a relay URL.
func hasSubject(path string) bool {
	parts := strings.Split(path, "/")
	at := slices.IndexFunc(parts, func(p string) bool { return isCode(p) || isKey(p) })
	return at >= 0 && (!isKey(parts[at]) || at+1 < len(parts) && parts[at+1] != "")
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

// webSubject reads a clone URL or the URL of a page about a subject.
func webSubject(s string) (Subject, error) {
	u, err := graspsync.ParseURL(s, graspsync.HTTPSchemes)
	if err != nil {
		return Subject{}, err
	}
	return pathSubject(u.Path, false, errWeb)
}

// pathSubject reads a path that contains a NIP-19 text of a subject, or a key followed by an
// identifier. If hints is true, a relay may stand between key and identifier. without is the error
// for other paths.
func pathSubject(path string, hints bool, without error) (Subject, error) {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(strings.Trim(path, "/"), "/")
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
	identifier, err := identifierIn(parts[at+1:], hints)
	if err != nil {
		return Subject{}, err
	}
	owner, err := ParsePubKey(parts[at])
	if err != nil {
		return Subject{}, err
	}
	ref := graspsync.RepoRef{Owner: owner, Identifier: identifier}
	if err := graspsync.CheckIdentifier(ref.Identifier); err != nil {
		return Subject{}, err
	}
	return Subject{Kind: SubjectRepo, Repo: ref}, nil
}

// identifierIn returns the identifier in the path after the key.
func identifierIn(parts []string, hints bool) (string, error) {
	if len(parts) == 0 || parts[0] == "" {
		return "", errAuthor
	}
	first := plainIdentifier(parts[0])
	switch scheme := strings.ToLower(parts[0]); {
	case hints && len(parts) > 3 && (scheme == "ws:" || scheme == "wss:") && parts[1] == "":
		return plainIdentifier(parts[len(parts)-1]), nil
	case len(parts) == 1 || strings.HasSuffix(parts[0], ".git"):
	case hints && (first == "localhost" || strings.ContainsAny(first, ".:")):
		return plainIdentifier(parts[1]), nil
	case strings.ContainsAny(first, ".:"):
		show := func(s string) string { return graspsync.PrintableAtMost(s, 60) }
		return "", fmt.Errorf("it may be the repository %s, or %s with a hint at a relay: ask for npub/%s or npub/%[2]s",
			show(first), show(plainIdentifier(parts[1])), show(first))
	}
	return first, nil
}

// plainIdentifier decodes percent-encoding. Text with invalid encoding is returned unchanged.
func plainIdentifier(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		s = plain
	}
	return strings.TrimSuffix(s, ".git")
}

// isKey reports whether a text has the form of a public key.
func isKey(s string) bool {
	_, err := graspsync.ParsePubKey(strings.ToLower(s))
	return err == nil || strings.HasPrefix(strings.ToLower(s), "npub1")
}

// ParsePubKey reads a key in the spellings that people copy: 64 hex digits, npub or nprofile.
func ParsePubKey(s string) (graspsync.PubKey, error) {
	if k, err := graspsync.ParsePubKey(strings.ToLower(s)); err == nil {
		return k, nil
	}
	switch prefix, _, _ := strings.Cut(strings.ToLower(s), "1"); prefix {
	case "nsec":
		return graspsync.PubKey{}, errSecret
	case "nprofile":
		_, data, err := decodeBech32(s)
		if key := entries(data)[tlvSpecial]; err == nil && len(key) == len(graspsync.PubKey{}) {
			return graspsync.PubKey(key), nil
		}
		return graspsync.PubKey{}, errors.Join(errors.New("an nprofile without a key"), err)
	}
	return ParseNPub(s)
}

// isCode reports whether a text has the form of a NIP-19 text.
func isCode(s string) bool {
	prefix, _, ok := strings.Cut(strings.ToLower(s), "1")
	return ok && slices.Contains([]string{"note", "nevent", "naddr", "npub", "nprofile", "nsec"}, prefix) && !strings.Contains(s, "/")
}

// codeSubject reads a NIP-19 text of an event or an address.
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
		of := entries(data)
		sub, err := idSubject(of[tlvSpecial])
		if author := of[tlvAuthor]; err == nil && len(author) == len(sub.Author) {
			sub.Author = graspsync.PubKey(author)
		}
		return sub, err
	case "naddr":
		of := entries(data)
		if len(of[tlvKind]) != 4 || len(of[tlvAuthor]) != len(graspsync.PubKey{}) {
			return Subject{}, errors.New("an naddr without a kind or an author")
		}
		kind := binary.BigEndian.Uint32(of[tlvKind])
		if kind > 1<<16-1 {
			return Subject{}, errors.New("an naddr of an unknown kind")
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
