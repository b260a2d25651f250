package nip34

import (
	"errors"
	"fmt"
	"strings"

	"github.com/graspsync/graspsync"
)

var (
	errRef      = errors.New("not a usable ref name")
	errObjectID = errors.New("not a git object id, which has 40 or 64 lower-case hex digits")
)

// ObjectFormat is how a repository hashes its objects.
type ObjectFormat uint8

// The formats of git.
const (
	SHA1 ObjectFormat = iota
	SHA256
)

// String returns the name that git has for the format.
func (f ObjectFormat) String() string {
	switch f {
	case SHA1:
		return "sha1"
	case SHA256:
		return "sha256"
	}
	return fmt.Sprintf("format(%d)", uint8(f))
}

// ObjectID is the id of a git object. It is comparable; the zero value is none. It
// is made by [ParseObjectID], so that whatever holds one can be given to git.
type ObjectID struct{ hex string }

// ParseObjectID reads an id: exactly 40 (SHA-1) or 64 (SHA-256) lower-case hex
// digits. Git's null id is one.
func ParseObjectID(s string) (ObjectID, error) {
	if (len(s) != 40 && len(s) != 64) || strings.Trim(s, "0123456789abcdef") != "" {
		return ObjectID{}, errObjectID
	}
	return ObjectID{s}, nil
}

// String returns the hex digits.
func (id ObjectID) String() string { return id.hex }

// IsZero reports whether id is none.
func (id ObjectID) IsZero() bool { return id.hex == "" }

// Format tells the format by the length.
func (id ObjectID) Format() ObjectFormat {
	if len(id.hex) == 64 {
		return SHA256
	}
	return SHA1
}

// RefName is the full name of a ref. It is comparable; the zero value is none.
type RefName struct{ name string }

// Refs are files: what is between two slashes is the name of one, beside which git puts
// one with ".lock", and the whole a path below the repository's.
const (
	maxRefPart = 255 - len(".lock")
	maxRefName = 1024
)

// ParseRefName reads the name of a ref that a state may set: below refs/heads/ or
// refs/tags/, passing the rules of git check-ref-format, and no longer than file systems
// take, 250 bytes between two slashes and 1,024 in all.
func ParseRefName(name string) (RefName, error) {
	if !strings.HasPrefix(name, "refs/heads/") && !strings.HasPrefix(name, "refs/tags/") {
		return RefName{}, fmt.Errorf("%w: neither branch nor tag", errRef)
	}
	if len(name) > maxRefName {
		return RefName{}, fmt.Errorf("%w: %d bytes", errRef, len(name))
	}
	if strings.HasSuffix(name, ".") || strings.Contains(name, "..") || strings.Contains(name, "@{") {
		return RefName{}, fmt.Errorf("%w: forbidden sequence", errRef)
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c == 0x7f || strings.IndexByte(`~^:?*[\`, c) >= 0 {
			return RefName{}, fmt.Errorf("%w: byte %#02x", errRef, c)
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || len(part) > maxRefPart || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return RefName{}, fmt.Errorf("%w: forbidden component", errRef)
		}
	}
	return RefName{name}, nil
}

// EventRef is the ref at which the data of a pull request or of an update of one is
// served: refs/nostr/ and the id of the event.
func EventRef(id graspsync.EventID) RefName { return RefName{"refs/nostr/" + id.String()} }

// String returns the full name.
func (r RefName) String() string { return r.name }

// IsZero reports whether r is none.
func (r RefName) IsZero() bool { return r.name == "" }
