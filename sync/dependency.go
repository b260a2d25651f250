package sync

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
)

// Dependency is something an event may wait for. Comparable.
type Dependency struct {
	what   dependencyKind
	id     filters.EventID
	author filters.PubKey
	text   string
}

type dependencyKind uint8

// The numbers are kept in what survives restarts.
const (
	onEvent dependencyKind = iota + 1
	onMention
	onRepo
	onIdentifier
	onMaintainer
	onAuthor
	_         // is taken, in what an earlier version has kept
	onAddress // a deletion of another version; text is the address
	onVersion
	onHeldBy
	onVersionMention
	onSay
	onWanted
)

// OnEvent is fulfilled by the event with this id.
func OnEvent(id filters.EventID) Dependency { return Dependency{what: onEvent, id: id} }

// OnMention is fulfilled by an event that tags this id (e, E or q).
func OnMention(id filters.EventID) Dependency { return Dependency{what: onMention, id: id} }

// OnRepo is fulfilled by an announcement of this repository.
func OnRepo(ref filters.RepoRef) Dependency {
	return Dependency{what: onRepo, author: ref.Owner, text: ref.Identifier}
}

// OnIdentifier is fulfilled by any announcement with this identifier.
func OnIdentifier(identifier string) Dependency {
	return Dependency{what: onIdentifier, text: identifier}
}

// OnMaintainer is fulfilled by an announcement with this identifier that is by the
// author or lists them as maintainer.
func OnMaintainer(identifier string, author filters.PubKey) Dependency {
	return Dependency{what: onMaintainer, author: author, text: identifier}
}

// OnSay is fulfilled by an announcement with this identifier by which states of this author
// may count that did not: by what the [Policy] says, if it is a [Hearer], else by any if it or
// another one that is here lists the author, or is by them.
func OnSay(identifier string, author filters.PubKey) Dependency {
	return Dependency{what: onSay, author: author, text: identifier}
}

// OnWanted is OnSay for announcements of the author.
func OnWanted(identifier string, author filters.PubKey) Dependency {
	return Dependency{what: onWanted, author: author, text: identifier}
}

// OnAuthor is fulfilled by any event of this author.
func OnAuthor(author filters.PubKey) Dependency { return Dependency{what: onAuthor, author: author} }

// OnVersion is fulfilled by any version of a replaceable or addressable event.
func OnVersion(c nip34.Coordinates) Dependency { return Dependency{what: onVersion, text: c.String()} }

// OnVersionMention is fulfilled by an event that tags the address (a, A or q) of a replaceable
// or addressable event, other than an announcement or a state.
func OnVersionMention(c nip34.Coordinates) Dependency {
	return Dependency{what: onVersionMention, text: c.String()}
}

// OnHeldBy is fulfilled by any event of this author that the [Policy] holds.
func OnHeldBy(author filters.PubKey) Dependency { return Dependency{what: onHeldBy, author: author} }

// depKey stands for a dependency where many are remembered. Two that share a key
// cost a second look.
type depKey uint64

func (d Dependency) key() depKey {
	buf := make([]byte, 0, 128)
	buf = append(buf, byte(d.what))
	buf = append(buf, d.id[:]...)
	buf = append(buf, d.author[:]...)
	sum := sha256.Sum256(append(buf, d.text...))
	return depKey(binary.BigEndian.Uint64(sum[:]))
}

// maxDependencies is how many things an event may wait for: more tags than any event
// has. What that takes is bounded for all events together, see [rejected].
const maxDependencies = 10_000

func keysOf(deps []Dependency) []depKey {
	keys := make([]depKey, 0, min(len(deps), maxDependencies))
	for _, d := range deps[:min(len(deps), maxDependencies)] {
		keys = append(keys, d.key())
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// addressKey is what older versions of an event wait for; false for kinds that have
// none.
func addressKey(ev *nostr.Event) (depKey, bool) {
	c, ok := nip34.CoordinatesOf(ev)
	if !ok {
		return 0, false
	}
	return Dependency{what: onAddress, text: c.String()}.key(), true
}

// maxFulfilled bounds what one event has others judged again for.
const maxFulfilled = 1_000

// fulfils returns what events may have waited for that ev was accepted, and if it
// is stored now, for that.
func fulfils(ev *nostr.Event, stored bool) (keys []depKey) {
	id, err := filters.ParseEventID(ev.ID)
	author, err2 := filters.ParsePubKey(ev.PubKey)
	if err != nil || err2 != nil {
		return nil
	}
	add := func(d Dependency) {
		if len(keys) < maxFulfilled {
			keys = append(keys, d.key())
		}
	}
	add(OnEvent(id))
	if a, err := nip34.ParseAnnouncement(ev); err == nil {
		add(OnRepo(a.Ref))
		add(OnIdentifier(a.Ref.Identifier))
		add(OnMaintainer(a.Ref.Identifier, author))
		for _, m := range a.Maintainers {
			add(OnMaintainer(a.Ref.Identifier, m))
		}
	}
	if c, ok := nip34.CoordinatesOf(ev); ok {
		add(OnVersion(c))
	}
	if stored {
		add(OnAuthor(author))
	}
	if ev.Kind != filters.KindDeletion {
		for _, other := range nip34.EventRefs(ev) {
			add(OnMention(other))
		}
		for _, a := range nip34.Addresses(ev) {
			if _, ok := a.Repo(); !ok {
				add(OnVersionMention(nip34.Coordinates{Kind: a.Kind, Author: a.PubKey.String(), Identifier: a.Identifier}))
			}
		}
	}
	return keys
}
