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
)

func parseSubject(s string) (Subject, error) {
	if len(s) > graspsync.MaxURLLength {
		return Subject{}, errLong
	}
	_, rest, _ := strings.Cut(s, ":")
	switch strings.ToLower(s[:len(s)-len(rest)]) {
	case "ws:", "wss:":
		return relaySubject(s)
	case "http:", "https:":
		u, err := graspsync.ParseURL(s, graspsync.HTTPSchemes)
		if err != nil {
			return Subject{}, err
		}
		return pathSubject(u.Path, false)
	case "nostr:":
		return pathSubject(rest, true)
	}
	if a, err := graspsync.ParseAddress(strings.ToLower(s[:min(len(s), addressHead)]) + s[min(len(s), addressHead):]); err == nil {
		return addressSubject(a)
	}
	if id, err := graspsync.ParseEventID(strings.ToLower(s)); err == nil {
		return Subject{Kind: SubjectEvent, Event: id}, nil
	}
	sub, err := pathSubject(s, false)
	if host, _, _ := strings.Cut(s, "/"); err == nil || isCode(host) || isKey(host) || !strings.ContainsAny(host, ".:") {
		return sub, err
	}
	return relaySubject(s)
}

const addressHead = len("30617:") + 64

func relaySubject(s string) (Subject, error) {
	u, err := graspsync.ParseRelayURL(s)
	return Subject{Kind: SubjectRelay, Relay: u}, err
}

func addressSubject(a graspsync.Address) (Subject, error) {
	ref, ok := a.Repo()
	if !ok {
		return Subject{}, fmt.Errorf("an address of kind %d, or without an identifier that a repository can have: want %d or %d",
			a.Kind, graspsync.KindAnnouncement, graspsync.KindState)
	}
	return Subject{Kind: SubjectRepo, Repo: ref}, nil
}

// pathSubject reads a path with a NIP-19 text, or a key followed by an identifier, with a relay
// between them if hint is true.
func pathSubject(path string, hint bool) (Subject, error) {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	at := slices.IndexFunc(parts, func(p string) bool { return isCode(p) || isKey(p) })
	if at < 0 {
		return Subject{}, errWant
	}
	code, rest := parts[at], parts[at+1:]
	switch {
	case !isKey(code):
		return codeSubject(code)
	case len(rest) == 0:
		return Subject{}, errAuthor
	case hint:
		rest = rest[len(rest)-1:]
	}
	identifier := rest[0]
	if plain, err := url.PathUnescape(identifier); err == nil {
		identifier = plain
	}
	if !hint && len(rest) > 1 && !strings.HasSuffix(identifier, ".git") && strings.ContainsAny(identifier, ".:") {
		return Subject{}, errHint
	}
	ref := graspsync.RepoRef{Identifier: strings.TrimSuffix(identifier, ".git")}
	var err error
	if ref.Owner, err = ParsePubKey(code); err != nil {
		return Subject{}, err
	}
	return Subject{Kind: SubjectRepo, Repo: ref}, graspsync.CheckIdentifier(ref.Identifier)
}

func isKey(s string) bool {
	_, err := graspsync.ParsePubKey(strings.ToLower(s))
	return err == nil || strings.HasPrefix(strings.ToLower(s), "npub1")
}

// ParsePubKey reads 64 hex digits, an npub or an nprofile.
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

func isCode(s string) bool {
	prefix, _, ok := strings.Cut(strings.ToLower(s), "1")
	return ok && slices.Contains([]string{"note", "nevent", "naddr", "npub", "nprofile", "nsec"}, prefix) && !strings.Contains(s, "/")
}

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
