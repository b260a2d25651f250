package nip34

import (
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// DeletionTargets returns the ids of a deletion (kind 5), whose authors are unknown, and its addresses
// that belong to its author.
func DeletionTargets(ev graspsync.Event) (ids []graspsync.EventID, at []graspsync.Address) {
	if ev.Kind != graspsync.KindDeletion {
		return nil, nil
	}
	at = references(ev.Event, "a", 0, graspsync.ParseAddress)
	return references(ev.Event, "e", 0, graspsync.ParseEventID),
		slices.DeleteFunc(at, func(a graspsync.Address) bool { return a.Author != ev.PubKey })
}

const allRelays = "ALL_RELAYS"

// IsVanishRequest reports whether an event is a request to vanish (NIP-62) that names a relay of this
// service or all relays.
func (id Identity) IsVanishRequest(ev *nostr.Event) bool {
	if ev.Kind != graspsync.KindVanish {
		return false
	}
	for _, t := range ev.Tags {
		if len(t) < 2 || t[0] != "relay" {
			continue
		}
		if t[1] == allRelays {
			return true
		}
		if u, err := graspsync.ParseRelayURL(t[1]); err == nil && id.isRelayURL(u) {
			return true
		}
	}
	return false
}

// Tombstones contains the events that deletions (NIP-09) and requests to vanish (NIP-62) cover, stored
// or not. The zero value is empty and has no service. It is not safe for concurrent use.
//
// A deletion covers events of its author except deletions: ids at any time, and addresses up to its
// own time. If a deleted id is a known version of an address, older versions are covered too,
// because anyone could publish them again. A request to vanish covers its author's events up to its
// own time, except requests to vanish.
type Tombstones struct {
	identity  Identity
	ids       map[deletedID]struct{}
	addresses map[graspsync.Address]nostr.Timestamp // versions up to this time
	versions  map[graspsync.Address][]graspsync.EventKey
	vanished  map[graspsync.PubKey]nostr.Timestamp // by author, events up to this time
}

type deletedID struct {
	id     graspsync.EventID
	author graspsync.PubKey
}

// NewTombstones returns empty tombstones of a service.
func NewTombstones(us Identity) *Tombstones { return &Tombstones{identity: us} }

// Add adds a deletion or a request to vanish. Other events are ignored.
func (t *Tombstones) Add(ev graspsync.Event) {
	if t.identity.IsVanishRequest(ev.Event) {
		setLatest(&t.vanished, ev.PubKey, ev.CreatedAt)
		return
	}
	ids, at := DeletionTargets(ev)
	for _, id := range ids {
		if t.ids == nil {
			t.ids = make(map[deletedID]struct{})
		}
		t.ids[deletedID{id, ev.PubKey}] = struct{}{}
	}
	for _, a := range at {
		setLatest(&t.addresses, a, ev.CreatedAt)
	}
}

// AddVersion records that a version of an address existed, and reports whether it was unknown.
func (t *Tombstones) AddVersion(at graspsync.Address, version graspsync.EventKey) bool {
	if slices.Contains(t.versions[at], version) {
		return false
	}
	if t.versions == nil {
		t.versions = make(map[graspsync.Address][]graspsync.EventKey)
	}
	t.versions[at] = append(t.versions[at], version)
	return true
}

// ClearDeletions removes all deletions and requests to vanish. The records of AddVersion stay.
func (t *Tombstones) ClearDeletions() { t.ids, t.addresses, t.vanished = nil, nil, nil }

// CoversID reports whether a deletion by the author of an event names its id.
func (t *Tombstones) CoversID(ev graspsync.Event) bool {
	_, ok := t.ids[deletedID{ev.ID, ev.PubKey}]
	return ok
}

func setLatest[K comparable](m *map[K]nostr.Timestamp, k K, at nostr.Timestamp) {
	if *m == nil {
		*m = make(map[K]nostr.Timestamp)
	}
	if last, ok := (*m)[k]; !ok || at > last {
		(*m)[k] = at
	}
}

// Covers reports whether an event is covered.
func (t *Tombstones) Covers(ev graspsync.Event) bool {
	if ev.Kind == graspsync.KindVanish {
		return false
	}
	if until, ok := t.vanished[ev.PubKey]; ok && ev.CreatedAt <= until {
		return true
	}
	if ev.Kind == graspsync.KindDeletion {
		return false
	}
	if t.CoversID(ev) {
		return true
	}
	a, ok := ev.Address()
	if !ok {
		return false
	}
	if until, ok := t.addresses[a]; ok && ev.CreatedAt <= until {
		return true
	}
	return slices.ContainsFunc(t.versions[a], func(v graspsync.EventKey) bool {
		_, named := t.ids[deletedID{v.ID, a.Author}]
		return named && v.Newer(ev.Key())
	})
}
