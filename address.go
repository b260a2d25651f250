package graspsync

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Address is the address of an addressable or replaceable event (NIP-01), as an `a` tag contains
// it. Comparable.
type Address struct {
	Kind       int // 0 to 65,535
	Author     PubKey
	Identifier string // empty for replaceable kinds; may contain ":"
}

// ErrAddress is wrapped by the error of [ParseAddress].
var ErrAddress = errors.New("not an address")

// ParseAddress reads "<kind>:<author>:<identifier>". The identifier is not checked. The kind must
// have no sign and no leading zero, because tag filters compare text. Errors wrap [ErrAddress].
func ParseAddress(s string) (Address, error) {
	kind, rest, _ := strings.Cut(s, ":")
	author, identifier, ok := strings.Cut(rest, ":")
	n, err := strconv.ParseUint(kind, 10, 16)
	if !ok || err != nil || strconv.FormatUint(n, 10) != kind {
		return Address{}, fmt.Errorf("%w: a kind and two colons are needed", ErrAddress)
	}
	pk, err := ParsePubKey(author)
	if err != nil {
		return Address{}, fmt.Errorf("%w: author: %w", ErrAddress, err)
	}
	return Address{Kind: int(n), Author: pk, Identifier: identifier}, nil
}

func (a Address) String() string {
	return strconv.Itoa(a.Kind) + ":" + a.Author.String() + ":" + a.Identifier
}

// Repo returns the repository whose announcement or state has address a, or false, also for an
// identifier that [CheckIdentifier] rejects.
func (a Address) Repo() (RepoRef, bool) {
	if a.Kind != KindAnnouncement && a.Kind != KindState || CheckIdentifier(a.Identifier) != nil {
		return RepoRef{}, false
	}
	return RepoRef{Owner: a.Author, Identifier: a.Identifier}, true
}
