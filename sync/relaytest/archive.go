package relaytest

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
)

type record struct {
	ev     *nostr.Event
	parsed graspsync.Event
	size   int // bytes of its JSON
	gone   bool
}

// Reasons why the archive does not store an event.
const (
	archiveDuplicate = "duplicate: already have this event"
	archiveDeleted   = "blocked: this event was deleted"
	archiveOlder     = "duplicate: have a newer event"
)

// archive stores the events of a relay by the rules of NIP-01 and NIP-09. The caller locks it.
type archive struct {
	byID    map[string]*record
	current map[string]*record   // address -> newest version
	byTag   map[string][]*record // name + value; can contain removed records
	byKind  map[int][]*record    // can contain removed records
	deleted nip34.Tombstones
}

func newArchive() *archive {
	return &archive{
		byID:    make(map[string]*record),
		current: make(map[string]*record),
		byTag:   make(map[string][]*record),
		byKind:  make(map[int][]*record),
	}
}

// order compares by time, newest first, then by id (NIP-01).
func order(a, b *nostr.Event) int {
	return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), strings.Compare(a.ID, b.ID))
}

func orderRecords(a, b *record) int { return order(a.ev, b.ev) }

// address returns the address of a replaceable or addressable event, "" for other events.
func address(ev *nostr.Event) string {
	identifier := ""
	if nostr.IsAddressableKind(ev.Kind) {
		identifier = ev.Tags.GetD()
	} else if !nostr.IsReplaceableKind(ev.Kind) {
		return ""
	}
	return strconv.Itoa(ev.Kind) + ":" + ev.PubKey + ":" + identifier
}

// add stores ev and executes it if it is a deletion. If ev is not stored, it returns nil and the
// reason.
func (a *archive) add(ev *nostr.Event) (*record, string) {
	if a.byID[ev.ID] != nil {
		return nil, archiveDuplicate
	}
	rec := &record{ev: ev, parsed: eventtest.Of(ev), size: len(ev.String())}
	if a.deleted.Cover(rec.parsed) {
		return nil, archiveDeleted
	}
	if nostr.IsEphemeralKind(ev.Kind) {
		return rec, ""
	}
	if addr := address(ev); addr != "" {
		if old := a.current[addr]; old != nil {
			if order(old.ev, ev) < 0 {
				return nil, archiveOlder
			}
			a.drop(old)
		}
		a.current[addr] = rec
	}
	a.byID[ev.ID] = rec
	a.byKind[ev.Kind] = append(a.byKind[ev.Kind], rec)
	for _, tag := range ev.Tags {
		if indexed(tag) {
			a.byTag[tag[0]+tag[1]] = append(a.byTag[tag[0]+tag[1]], rec)
		}
	}
	if ev.Kind == nostr.KindDeletion {
		a.execute(rec.parsed)
	}
	return rec, ""
}

func (a *archive) execute(deletion graspsync.Event) {
	a.deleted.Add(deletion)
	ids, addresses := nip34.Deletes(deletion)
	var targets []*record
	for _, id := range ids {
		targets = append(targets, a.byID[id.String()])
	}
	for _, at := range addresses {
		targets = append(targets, a.current[at.String()])
	}
	for _, rec := range targets {
		if rec != nil && a.deleted.Cover(rec.parsed) {
			a.drop(rec)
		}
	}
}

// drop removes a record. A removed deletion stays in force.
func (a *archive) drop(rec *record) {
	rec.gone = true
	delete(a.byID, rec.ev.ID)
	if addr := address(rec.ev); addr != "" && a.current[addr] == rec {
		delete(a.current, addr)
	}
}

// query returns all records that match, in order. It ignores the limit.
func (a *archive) query(f nostr.Filter) (found []*record) {
	for rec := range a.candidates(f) {
		if !rec.gone && f.Matches(rec.ev) {
			found = append(found, rec)
		}
	}
	slices.SortFunc(found, orderRecords)
	return slices.Compact(found)
}

// candidates yields every possible match.
func (a *archive) candidates(f nostr.Filter) iter.Seq[*record] {
	if f.IDs != nil {
		return func(yield func(*record) bool) {
			for _, id := range f.IDs {
				if rec := a.byID[id]; rec != nil && !yield(rec) {
					return
				}
			}
		}
	}
	var lists [][]*record
	for name, values := range f.Tags {
		for _, v := range values {
			lists = append(lists, a.byTag[name+v])
		}
		if values != nil {
			return slices.Values(slices.Concat(lists...))
		}
	}
	if f.Kinds == nil || len(f.Kinds) >= len(a.byKind) {
		return maps.Values(a.byID)
	}
	for _, k := range f.Kinds {
		lists = append(lists, a.byKind[k])
	}
	return slices.Values(slices.Concat(lists...))
}

// indexed reports whether filters can ask for a tag: its name is a single letter, and it has a value.
func indexed(tag nostr.Tag) bool {
	if len(tag) < 2 || len(tag[0]) != 1 {
		return false
	}
	c := tag[0][0]
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
