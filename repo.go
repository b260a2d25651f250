package graspsync

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrRepoRef is wrapped by the errors of [ParseRepoRef] and [CheckIdentifier].
var ErrRepoRef = errors.New("not a repository address")

// MaxIdentifier is the maximum length of a repository identifier, in bytes. Common relays refuse
// requests with an `a` value of more than 255 bytes.
const MaxIdentifier = 255 - len("30617:") - 64 - len(":")

// RepoRef identifies a repository by the address of its announcement (kind 30617). Comparable. The
// zero value stands for a missing repository.
type RepoRef struct {
	Owner      PubKey
	Identifier string // the announcement's d tag; may contain ":"
}

// ParseRepoRef reads "30617:<owner>:<identifier>". The identifier must pass [CheckIdentifier]. The
// error wraps [ErrRepoRef].
func ParseRepoRef(s string) (RepoRef, error) {
	a, err := ParseAddress(s)
	if err != nil {
		return RepoRef{}, fmt.Errorf("%w: %w", ErrRepoRef, err)
	}
	if a.Kind != KindAnnouncement {
		return RepoRef{}, fmt.Errorf("%w: kind %d", ErrRepoRef, a.Kind)
	}
	if a.Author == (PubKey{}) {
		return RepoRef{}, fmt.Errorf("%w: owner is zero, which is no key", ErrRepoRef)
	}
	if err := CheckIdentifier(a.Identifier); err != nil {
		return RepoRef{}, err
	}
	return RepoRef{Owner: a.Author, Identifier: a.Identifier}, nil
}

// CheckIdentifier returns an error unless s is 1 to [MaxIdentifier] bytes of UTF-8 without control
// bytes. The error wraps [ErrRepoRef].
func CheckIdentifier(s string) error {
	if s == "" {
		return fmt.Errorf("%w: identifier is empty", ErrRepoRef)
	}
	if len(s) > MaxIdentifier {
		return fmt.Errorf("%w: identifier of %d bytes, more than %d", ErrRepoRef, len(s), MaxIdentifier)
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

// IsZero reports whether r is the zero value.
func (r RepoRef) IsZero() bool { return r == RepoRef{} }

// MarshalText returns the text of String.
func (r RepoRef) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is [ParseRepoRef].
func (r *RepoRef) UnmarshalText(text []byte) error {
	ref, err := ParseRepoRef(string(text))
	if err != nil {
		return err
	}
	*r = ref
	return nil
}
