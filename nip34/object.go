package nip34

import (
	"errors"
	"fmt"
	"strings"

	"github.com/graspsync/graspsync"
)

var (
	errObjectID = errors.New("not a git object id, which has 40 or 64 lower-case hex digits")
	errNullID   = errors.New("not a git object id: all digits are zero")
	errNoObject = errors.New("no object id")
)

// ObjectFormat is the hash function of a repository's objects.
type ObjectFormat uint8

// The object formats of git.
const (
	SHA1 ObjectFormat = iota
	SHA256
)

func (f ObjectFormat) String() string {
	switch f {
	case SHA1:
		return "sha1"
	case SHA256:
		return "sha256"
	}
	return fmt.Sprintf("format(%d)", uint8(f))
}

// ObjectID is the id of a git object, safe to pass to git. Comparable. [ParseObjectID] makes it.
type ObjectID struct{ hex string }

// ParseObjectID reads an id of 40 (SHA-1) or 64 (SHA-256) lower-case hex digits. It accepts the
// null id of git.
func ParseObjectID(s string) (ObjectID, error) {
	if (len(s) != 40 && len(s) != 64) || strings.Trim(s, "0123456789abcdef") != "" {
		return ObjectID{}, errObjectID
	}
	return ObjectID{s}, nil
}

func parseNonNullID(s string) (ObjectID, error) {
	id, err := ParseObjectID(s)
	if err == nil && strings.Trim(s, "0") == "" {
		return ObjectID{}, errNullID
	}
	return id, err
}

func isAbbreviated(s string) bool {
	return len(s) >= 4 && len(s) < 40 && strings.Trim(s, "0123456789abcdef") == ""
}

func (id ObjectID) String() string { return id.hex }

// IsZero reports whether id is the zero value.
func (id ObjectID) IsZero() bool { return id.hex == "" }

// Format returns the object format, which follows from the length.
func (id ObjectID) Format() ObjectFormat {
	if len(id.hex) == 64 {
		return SHA256
	}
	return SHA1
}

// RefName is the full name of a ref. Comparable. The zero value stands for a missing ref.
type RefName struct{ name string }

const (
	branchPrefix = "refs/heads/"
	tagPrefix    = "refs/tags/"
)

// Limits in bytes. Git stores a ref as a file whose path is the name, and adds ".lock" while it
// writes the file.
const (
	maxRefPart = 255 - len(".lock")
	maxRefName = 1024
)

// ParseRefName reads the name of a branch or tag. It must follow git check-ref-format, and have at
// most 250 bytes between two slashes and 1,024 in all. The error names the violated rule.
func ParseRefName(name string) (RefName, error) {
	if fault := refFault(name); fault != "" {
		return RefName{}, errors.New(fault)
	}
	return RefName{name}, nil
}

func refFault(name string) string {
	switch {
	case !strings.HasPrefix(name, branchPrefix) && !strings.HasPrefix(name, tagPrefix):
		return "only branches, tags and refs/nostr/<event id> are served"
	case len(name) > maxRefName:
		return fmt.Sprintf("ref name has %d bytes, more than %d", len(name), maxRefName)
	case strings.Contains(name, ".."):
		return `ref name contains ".."`
	case strings.Contains(name, "@{"):
		return `ref name contains "@{"`
	case strings.HasSuffix(name, "."):
		return "ref name ends with a dot"
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c == 0x7f || strings.IndexByte(`~^:?*[\`, c) >= 0 {
			return fmt.Sprintf("ref name contains %q", string(c))
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "":
			return "a part of the ref name is empty"
		case len(part) > maxRefPart:
			return fmt.Sprintf("a part of the ref name has %d bytes, more than %d", len(part), maxRefPart)
		case part[0] == '.':
			return "a part of the ref name begins with a dot"
		case strings.HasSuffix(part, ".lock"):
			return "a part of the ref name ends with .lock"
		}
	}
	return ""
}

// EventRef is the ref of the data of a pull request or an update, refs/nostr/<event id>.
func EventRef(id graspsync.EventID) RefName { return RefName{"refs/nostr/" + id.String()} }

func (r RefName) String() string { return r.name }

// IsZero reports whether r is the zero value.
func (r RefName) IsZero() bool { return r.name == "" }
