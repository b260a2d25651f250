package nip34

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Bounds of what one announcement can make us do.
const (
	// MaxListed is how many distinct relays, and how many distinct clone URLs, are
	// read of an announcement or a pull request: the first ones. Who makes use of
	// them may take fewer.
	MaxListed = 64
	// MaxRepos is how many repositories a patch, pull request or issue belongs to:
	// the first distinct ones that its a tags name. What it names beyond these does not count.
	MaxRepos = 16
	// MaxMaintainers is how many distinct maintainers of an announcement count, and
	// how many have a say in a view besides the one it begins with.
	MaxMaintainers = 256
)

// ErrInvalid is wrapped by the errors of [ParseAnnouncement], [ParseState] and
// [ParsePullRequest].
var ErrInvalid = errors.New("not a valid NIP-34 event")

// Announcement is a repository announcement (NIP-34, kind 30617).
type Announcement struct {
	// Event is what was parsed. It is nil where only the fields below are kept.
	Event     *nostr.Event
	ID        graspsync.EventID
	Ref       graspsync.RepoRef
	CreatedAt nostr.Timestamp // seconds, Unix time
	Name      string          // as written, may be empty
	// The first distinct usable values: at most [MaxListed] relays and clone URLs,
	// [MaxMaintainers] maintainers and roles. Maintainers are those in active M and m tags
	// or, only where there is no role tag at all, those in the tag `maintainers`.
	Relays      []graspsync.RelayURL
	Clones      []graspsync.CloneURL
	Maintainers []graspsync.PubKey
	Roles       []Role             // one for each letter and key, with the strongest standing
	Leads       []graspsync.PubKey // in active M tags: the first two
	// Own is what the role tags say of the author themselves: see [Announcement.HasSay].
	Own Standing
	// How many values came when the list was full, and how many before that were unusable
	// ([UnusableURLs] says why).
	DroppedRelays, DroppedClones, DroppedMaintainers    int
	UnusableRelays, UnusableClones, UnusableMaintainers int
}

// Stamp returns what decides between two announcements of one repository.
func (a *Announcement) Stamp() graspsync.Stamp {
	return graspsync.Stamp{CreatedAt: a.CreatedAt, ID: a.ID}
}

// What an announcement takes up besides its event, in bytes: somebody who is listed with their
// place in a [Family], a role, and an address without the text that the event has as well.
const (
	bytesBase    = 320
	bytesListing = 160
	bytesRole    = 36
	bytesAddress = 128
)

// Size is about how many bytes an announcement takes up besides its event, and in a [Family].
func (a *Announcement) Size() int {
	return bytesBase + bytesListing*len(a.Maintainers) + bytesRole*len(a.Roles) + bytesAddress*(len(a.Relays)+len(a.Clones))
}

// ParseAnnouncement reads a repository announcement. Tags with several values may
// also be repeated; all values of all of them count, in order. An event of another
// kind, or without an identifier that [graspsync.CheckIdentifier] accepts, is an
// error that wraps [ErrInvalid]; a list that can't be read is merely empty.
func ParseAnnouncement(ev graspsync.Event) (*Announcement, error) {
	ref, err := parseHeader(ev, graspsync.KindAnnouncement)
	if err != nil {
		return nil, err
	}
	a := &Announcement{Event: ev.Event, ID: ev.ID, Ref: ref, CreatedAt: ev.CreatedAt}
	a.Name, _ = firstValue(ev.Event, "name")
	a.Relays, a.UnusableRelays, a.DroppedRelays = listed(ev.Event, "relays", MaxListed, graspsync.ParseRelayURL)
	a.Clones, a.UnusableClones, a.DroppedClones = listed(ev.Event, "clone", MaxListed, graspsync.ParseCloneURL)
	a.readRoles(ev.Event)
	return a, nil
}

// Reason returns an error that wraps [ErrInvalid] in the words of an OK message (NIP-01), such as
// "invalid: the d tag is empty".
func Reason(err error) string {
	return "invalid: " + graspsync.Printable(strings.TrimPrefix(err.Error(), ErrInvalid.Error()+": "))
}

// errKind is made once: whoever asks whether an event is an announcement is nearly always told
// no.
var errKind = fmt.Errorf("%w: an event of another kind", ErrInvalid)

// parseHeader reads what announcements and states have in common.
func parseHeader(ev graspsync.Event, kind int) (ref graspsync.RepoRef, err error) {
	if ev.IsZero() {
		return ref, fmt.Errorf("%w: none", ErrInvalid)
	}
	if ev.Kind != kind {
		return ref, errKind
	}
	// A bare ["d"] has no value; it is not read as an empty one, and no later d
	// tag stands in for it: relays differ in what they would make of that.
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

// listed collects the first most distinct values of all tags of that name. Once
// the list is full the rest is counted as dropped, unread, so that a long list costs nothing.
func listed[T comparable](ev *nostr.Event, name string, most int, parse func(string) (T, error)) (list []T, unusable, dropped int) {
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
