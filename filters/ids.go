package filters

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Sentinels that the parsers of this package wrap.
var (
	ErrID      = errors.New("not 64 lower-case hex digits")
	ErrRepoRef = errors.New("not a repository address")
)

// EventID is the id of an event, the SHA-256 of its NIP-01 serialisation.
type EventID [32]byte

// ParseEventID reads exactly 64 lower-case hex digits, the only spelling that
// NIP-01 allows. The error wraps [ErrID].
func ParseEventID(s string) (EventID, error) {
	b, err := parseHex32(s)
	return EventID(b), err
}

// String returns 64 lower-case hex digits.
func (id EventID) String() string { return hex.EncodeToString(id[:]) }

// Compare orders ids by their bytes, as strings of them sort.
func (id EventID) Compare(other EventID) int { return bytes.Compare(id[:], other[:]) }

// PubKey is the x-only public key (BIP-340) of an event's author.
type PubKey [32]byte

// ParsePubKey reads exactly 64 lower-case hex digits. Whether they are a point of
// the curve is not looked at. The error wraps [ErrID].
func ParsePubKey(s string) (PubKey, error) {
	b, err := parseHex32(s)
	return PubKey(b), err
}

// String returns 64 lower-case hex digits.
func (k PubKey) String() string { return hex.EncodeToString(k[:]) }

// Compare orders keys by their bytes, as strings of them sort.
func (k PubKey) Compare(other PubKey) int { return bytes.Compare(k[:], other[:]) }

func parseHex32(s string) (b [32]byte, err error) {
	if len(s) != 64 {
		return b, fmt.Errorf("%w: %d bytes", ErrID, len(s))
	}
	for i := range 32 {
		hi, lo := hexDigit(s[2*i]), hexDigit(s[2*i+1])
		if hi > 15 || lo > 15 {
			return [32]byte{}, fmt.Errorf("%w: %q", ErrID, s)
		}
		b[i] = hi<<4 | lo
	}
	return b, nil
}

func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// Kinds that the builders of this package name, those of NIP-34 and others.
const (
	KindVanish            = 62 // request to vanish (NIP-62)
	KindAnnouncement      = 30617
	KindState             = 30618
	KindPatch             = 1617
	KindPullRequest       = 1618
	KindPullRequestUpdate = 1619
	KindIssue             = 1621
	KindDeletion          = 5
	KindGRASPList         = 10317 // the GRASP servers that somebody prefers
)

// MaxIdentifier is the longest repository identifier that is ever asked for, in
// bytes. A longer one makes an `a` value of more than 255 bytes, for which common
// relays refuse the whole request.
const MaxIdentifier = 255 - len("30617:") - 64 - len(":")

// RepoRef names a repository: the address of its announcement (NIP-34, kind
// 30617). It is comparable; the zero value is no repository.
type RepoRef struct {
	Owner      PubKey
	Identifier string // the announcement's d tag; may contain ":"
}

// ParseRepoRef reads "30617:<owner>:<identifier>". The identifier is everything
// after the second colon, colons included; it has 1 to [MaxIdentifier] bytes of
// UTF-8 and no control bytes. The error wraps [ErrRepoRef].
func ParseRepoRef(s string) (RepoRef, error) {
	kind, ref, err := ParseAddress(s)
	if err != nil {
		return RepoRef{}, err
	}
	if kind != KindAnnouncement {
		return RepoRef{}, fmt.Errorf("%w: kind %d", ErrRepoRef, kind)
	}
	return ref, nil
}

// ParseAddress reads the address of an announcement or of a state,
// "<30617 or 30618>:<owner>:<identifier>", under the rules of [ParseRepoRef], and
// returns the kind and the repository that it belongs to.
func ParseAddress(s string) (kind int, ref RepoRef, err error) {
	k, rest, ok := strings.Cut(s, ":")
	if !ok || (k != "30617" && k != "30618") {
		return 0, RepoRef{}, fmt.Errorf("%w: kind", ErrRepoRef)
	}
	owner, identifier, ok := strings.Cut(rest, ":")
	if !ok {
		return 0, RepoRef{}, fmt.Errorf("%w: two colons are needed", ErrRepoRef)
	}
	pk, err := ParsePubKey(owner)
	if err != nil {
		return 0, RepoRef{}, fmt.Errorf("%w: owner: %w", ErrRepoRef, err)
	}
	if err := CheckIdentifier(identifier); err != nil {
		return 0, RepoRef{}, err
	}
	kind, err = strconv.Atoi(k)
	return kind, RepoRef{Owner: pk, Identifier: identifier}, err
}

// CheckIdentifier reports why s can't be the identifier of a repository that is
// asked for; nil if it can. The error wraps [ErrRepoRef].
func CheckIdentifier(s string) error {
	if s == "" || len(s) > MaxIdentifier {
		return fmt.Errorf("%w: identifier of %d bytes, not 1 to %d", ErrRepoRef, len(s), MaxIdentifier)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%w: identifier is not UTF-8", ErrRepoRef)
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return fmt.Errorf("%w: control byte in identifier", ErrRepoRef)
		}
	}
	return nil
}

// String returns the address, "30617:<owner>:<identifier>".
func (r RepoRef) String() string { return r.Address(KindAnnouncement) }

// Address returns "<kind>:<owner>:<identifier>".
func (r RepoRef) Address(kind int) string {
	return strconv.Itoa(kind) + ":" + r.Owner.String() + ":" + r.Identifier
}

// Compare orders repositories by owner, then identifier.
func (r RepoRef) Compare(other RepoRef) int {
	if c := r.Owner.Compare(other.Owner); c != 0 {
		return c
	}
	return strings.Compare(r.Identifier, other.Identifier)
}

// IsZero reports whether r is no repository.
func (r RepoRef) IsZero() bool { return r == RepoRef{} }
