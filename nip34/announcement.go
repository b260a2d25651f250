package nip34

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

const (
	// MaxListed is the maximum number of relays, and of clone URLs, that are read from an event.
	MaxListed = 64
	// MaxRepos is the maximum number of repositories of a patch, pull request or issue.
	MaxRepos = 16
	// MaxMaintainers is the maximum number of maintainers of an announcement, and of members of a
	// view without its root.
	MaxMaintainers = 256
)

// ErrInvalid is wrapped by the errors of [ParseAnnouncement], [ParseState] and
// [ParsePullRequest].
var ErrInvalid = errors.New("not a valid NIP-34 event")

// Announcement is a repository announcement (NIP-34, kind 30617).
type Announcement struct {
	// Event is the parsed event. It is nil if only the fields below are kept.
	Event     *nostr.Event
	ID        graspsync.EventID
	Ref       graspsync.RepoRef
	CreatedAt nostr.Timestamp // seconds, Unix time
	Name      string          // as written, may be empty
	// The first distinct valid values, at most [MaxListed] or [MaxMaintainers]. Maintainers are the
	// keys of active M and m tags, or of the tag `maintainers` without any role tag.
	Relays      []graspsync.RelayURL
	Clones      []graspsync.CloneURL
	Maintainers []graspsync.PubKey
	Leads       []graspsync.PubKey // keys of active M tags, at most two
	ownRole     ownRole            // see ClaimsRole
	// Numbers of values beyond the maximum, which are not parsed, and of invalid values before them.
	DroppedRelays, DroppedClones, DroppedMaintainers    int
	UnusableRelays, UnusableClones, UnusableMaintainers int
}

// Key returns the order of the announcements of one repository.
func (a *Announcement) Key() graspsync.EventKey {
	return graspsync.EventKey{CreatedAt: a.CreatedAt, ID: a.ID}
}

// Sizes in bytes: of an announcement, of a listed key with its entry in an [AnnouncementSet], and
// of a URL without its text.
const (
	bytesBase    = 320
	bytesListing = 160
	bytesAddress = 128
)

// Size returns the approximate memory of an announcement in bytes, without its event.
func (a *Announcement) Size() int {
	return bytesBase + bytesListing*len(a.Maintainers) + bytesAddress*(len(a.Relays)+len(a.Clones))
}

// ParseAnnouncement reads a repository announcement. All values of repeated tags count. The error
// wraps [ErrInvalid]: another kind, or an identifier that [graspsync.CheckIdentifier] rejects.
func ParseAnnouncement(ev graspsync.Event) (*Announcement, error) {
	ref, err := parseHeader(ev, graspsync.KindAnnouncement)
	if err != nil {
		return nil, err
	}
	a := &Announcement{Event: ev.Event, ID: ev.ID, Ref: ref, CreatedAt: ev.CreatedAt}
	a.Name, _ = firstValue(ev.Event, "name")
	a.Relays, a.UnusableRelays, a.DroppedRelays = tagValues(ev.Event, "relays", MaxListed, graspsync.ParseRelayURL)
	a.Clones, a.UnusableClones, a.DroppedClones = tagValues(ev.Event, "clone", MaxListed, graspsync.ParseCloneURL)
	a.readRoles(ev.Event)
	return a, nil
}

// Reason returns the text of an error that wraps [ErrInvalid] as an OK message (NIP-01).
func Reason(err error) string {
	return "invalid: " + graspsync.Printable(strings.TrimPrefix(err.Error(), ErrInvalid.Error()+": "))
}

// errKind is allocated once, because most events are of other kinds.
var errKind = fmt.Errorf("%w: an event of another kind", ErrInvalid)

func parseHeader(ev graspsync.Event, kind int) (ref graspsync.RepoRef, err error) {
	if ev.IsZero() {
		return ref, fmt.Errorf("%w: none", ErrInvalid)
	}
	if ev.Kind != kind {
		return ref, errKind
	}
	// A first d tag without a value is an error, because relays treat such events differently.
	identifier, ok := firstValue(ev.Event, "d")
	if !ok {
		return ref, fmt.Errorf("%w: the d tag is missing or has no value", ErrInvalid)
	}
	if identifier == "" {
		return ref, fmt.Errorf("%w: the d tag is empty", ErrInvalid)
	}
	if err = graspsync.CheckIdentifier(identifier); err != nil {
		return ref, fmt.Errorf("%w: the d tag: %w", ErrInvalid, err)
	}
	return graspsync.RepoRef{Owner: ev.PubKey, Identifier: identifier}, nil
}

// tagValues returns the first most distinct values of all tags with a name. Further values are not
// parsed.
func tagValues[T comparable](ev *nostr.Event, name string, most int, parse func(string) (T, error)) (list []T, unusable, dropped int) {
	for _, tag := range ev.Tags {
		if len(tag) == 0 || tag[0] != name {
			continue
		}
		for i, value := range tag[1:] {
			if len(list) == most {
				dropped += len(tag) - 1 - i
				break
			}
			v, err := parse(value)
			switch {
			case err != nil:
				unusable++
			case !slices.Contains(list, v):
				list = append(list, v)
			}
		}
	}
	return list, unusable, dropped
}
