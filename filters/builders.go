package filters

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// MaxValues is the most tag values, authors or ids that a builder puts into one
// filter.
const MaxValues = 100

// Layer1 asks for all announcements and states. Its JSON is the same for every
// relay and every server, {"kinds":[30617,30618]}, so that a relay may keep one
// index for all of them.
func Layer1() nostr.Filter {
	return nostr.Filter{Kinds: []int{graspsync.KindAnnouncement, graspsync.KindState}}
}

// Announcements asks for all announcements: layer 1 narrowed to {"kinds":[30617]}.
// [States] then asks for the states.
func Announcements() nostr.Filter {
	return nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}}
}

// Repos asks for whatever tags one of the repositories (layer 2): `a`, `A` and
// `q` tags with the address of the announcement, and deletions of the
// announcement or of the state. Repositories whose address no relay would take
// (see [graspsync.CheckIdentifier]) are left out. No repositories, no filters.
func Repos(refs []graspsync.RepoRef) []nostr.Filter {
	refs = slices.DeleteFunc(slices.Clone(refs), func(r graspsync.RepoRef) bool {
		return graspsync.CheckIdentifier(r.Identifier) != nil
	})
	refs = sorted(refs, graspsync.RepoRef.Compare)
	var fs []nostr.Filter
	for chunk := range slices.Chunk(refs, MaxValues) {
		announcements := addresses(chunk, graspsync.KindAnnouncement)
		fs = append(fs, tagged(announcements, "a", "A", "q")...)
		// The two addresses of a repository stay in one filter.
		states := addresses(chunk, graspsync.KindState)
		for from := 0; from < len(chunk); from += MaxValues / 2 {
			to := min(from+MaxValues/2, len(chunk))
			deletions := slices.Concat(announcements[from:to], states[from:to])
			fs = append(fs, nostr.Filter{
				Kinds: []int{graspsync.KindDeletion},
				Tags:  nostr.TagMap{"a": deletions},
			})
		}
	}
	return fs
}

// Roots asks for whatever tags one of the events (layer 3): `e`, `E` and `q` tags
// with its id. No ids, no filters.
func Roots(ids []graspsync.EventID) []nostr.Filter {
	var fs []nostr.Filter
	for chunk := range slices.Chunk(hexes(sorted(ids, graspsync.EventID.Compare)), MaxValues) {
		fs = append(fs, tagged(chunk, "e", "E", "q")...)
	}
	return fs
}

// Descendant is an event that is not of layers 1 to 3 but belongs to something that is: a
// comment, and an answer to it. It is what answers to it name.
type Descendant struct {
	ID      graspsync.EventID // of an event; zero if Address is set
	Address string            // of a replaceable or addressable one, "<kind>:<pubkey>:<identifier>"
}

// Compare orders descendants: those without an address first.
func (d Descendant) Compare(other Descendant) int {
	return cmp.Or(cmp.Compare(d.Address, other.Address), d.ID.Compare(other.ID))
}

// Descendants asks for whatever tags one of the events (layer 4): `e`, `E` and `q` tags with
// its id, or `a`, `A` and `q` tags with its address. Nothing to ask about, no filters.
func Descendants(of []Descendant) []nostr.Filter {
	var ids []graspsync.EventID
	var at []string
	for _, d := range of {
		if d.Address == "" {
			ids = append(ids, d.ID)
		} else {
			at = append(at, d.Address)
		}
	}
	fs := Roots(ids)
	for chunk := range slices.Chunk(sorted(at, strings.Compare), MaxValues) {
		fs = append(fs, tagged(chunk, "a", "A", "q")...)
	}
	return fs
}

// Deletions asks for all deletions and requests to vanish (NIP-62) by the authors.
// No authors, no filters.
func Deletions(authors []graspsync.PubKey) []nostr.Filter {
	var fs []nostr.Filter
	for chunk := range slices.Chunk(hexes(sorted(authors, graspsync.PubKey.Compare)), MaxValues) {
		fs = append(fs, nostr.Filter{Kinds: []int{graspsync.KindDeletion, graspsync.KindVanish}, Authors: chunk})
	}
	return fs
}

// States asks for the states of the repositories by identifier, whoever signed
// them: any maintainer may. It serves where layer 1 is narrowed to [Announcements],
// and for spot checks. Identifiers that no relay would take are left out.
func States(refs []graspsync.RepoRef) []nostr.Filter {
	identifiers := make([]string, 0, len(refs))
	for _, r := range refs {
		if graspsync.CheckIdentifier(r.Identifier) == nil {
			identifiers = append(identifiers, r.Identifier)
		}
	}
	slices.Sort(identifiers)
	var fs []nostr.Filter
	for chunk := range slices.Chunk(slices.Compact(identifiers), MaxValues) {
		fs = append(fs, nostr.Filter{
			Kinds: []int{graspsync.KindState},
			Tags:  nostr.TagMap{"d": slices.Clip(chunk)},
		})
	}
	return fs
}

// ByID asks for the events with these ids, size of them in a filter, in the order
// given and each once. The limit of each filter is the number of its ids, since
// some relays take a small limit of their own where none is given. A size below 1
// means [MaxValues].
func ByID(ids []graspsync.EventID, size int) []nostr.Filter {
	if size < 1 {
		size = MaxValues
	}
	seen := make(map[graspsync.EventID]struct{}, len(ids))
	unique := make([]graspsync.EventID, 0, len(ids))
	for _, id := range ids {
		if _, again := seen[id]; !again {
			seen[id] = struct{}{}
			unique = append(unique, id)
		}
	}
	var fs []nostr.Filter
	for chunk := range slices.Chunk(hexes(unique), size) {
		fs = append(fs, nostr.Filter{IDs: chunk, Limit: len(chunk)})
	}
	return fs
}

// Live returns a copy of f that asks for no stored events, only for those to
// come: limit 0, no since, no until.
func Live(f nostr.Filter) nostr.Filter {
	f = Between(f, nil, nil, 0)
	f.LimitZero = true
	return f
}

// LiveShared is [Live] for filters that nobody changes any more: it shares the lists of f.
func LiveShared(f nostr.Filter) nostr.Filter {
	f.Since, f.Until, f.Limit, f.LimitZero = nil, nil, 0, true
	return f
}

// Between returns a copy of f with these bounds, both inclusive, in place of its
// own; nil is no bound. A limit below 1 is no limit.
func Between(f nostr.Filter, since, until *nostr.Timestamp, limit int) nostr.Filter {
	f.Since, f.Until = since, until
	f.Limit, f.LimitZero = max(limit, 0), false
	return f.Clone()
}

// WithKinds returns a copy of f that names the kinds of [RelatedKinds] if f names none:
// some relays refuse filters without kinds.
func WithKinds(f nostr.Filter) nostr.Filter {
	f = f.Clone()
	if f.Kinds == nil {
		f.Kinds = RelatedKinds()
	}
	return f
}

// WithoutNotes returns a copy of f that names the kinds of [RelatedKinds] if f names none,
// and not kind 1, unless f names authors: some relays refuse to look for the notes of
// anybody, and what names no kinds as that (policies.AntiSyncBots of khatru). If f is
// about kind 1 alone nothing matches what is returned.
func WithoutNotes(f nostr.Filter) nostr.Filter {
	if f.Authors != nil {
		return f.Clone()
	}
	f = WithKinds(f)
	f.Kinds = slices.DeleteFunc(f.Kinds, func(kind int) bool { return kind == graspsync.KindNote })
	return f
}

// Kinds returns the kinds that belong to a repository by themselves (NIP-34, comments of
// NIP-22, cover notes, what CI says, and deletions), ascending: those that may be asked for
// without naming anything. The slice is the caller's.
func Kinds() []int {
	return []int{
		graspsync.KindDeletion,
		1111, // comment
		graspsync.KindPatch, graspsync.KindPullRequest, graspsync.KindPullRequestUpdate, graspsync.KindIssue,
		1624,                   // cover note
		1630, 1631, 1632, 1633, // status: open, applied, closed, draft
		9840, 9841, 9842, 9843, 9844, // CI: trigger, job result, workflow result, service request and stop
		graspsync.KindAnnouncement, graspsync.KindState,
		30624, // container repository
		39842, // CI progress
	}
}

// RelatedKinds returns those of [Kinds], and those that are seen to refer to repositories
// and to what belongs to them but are about all kinds of things, ascending: a relay has too
// much of them to be asked without naming anything. The slice is the caller's.
func RelatedKinds() []int {
	kinds := append(Kinds(),
		graspsync.KindNote, 7, 9735, // note, reaction, zap
		1985,               // label: the subject of an issue may be changed by one
		3063, 30063, 32267, // asset, release, application (NIP-82)
		15128, 35128, // site
	)
	slices.Sort(kinds)
	return kinds
}

// Empty reports whether f has a list of values that is empty (and not just
// absent). No event matches it, and it must never go on the wire: the encoder
// leaves an empty list of ids out, which then asks for everything.
func Empty(f nostr.Filter) bool {
	if f.IDs != nil && len(f.IDs) == 0 ||
		f.Kinds != nil && len(f.Kinds) == 0 ||
		f.Authors != nil && len(f.Authors) == 0 {
		return true
	}
	for _, values := range f.Tags {
		if len(values) == 0 {
			return true
		}
	}
	return false
}

// tagged returns one filter for each tag name. They share values.
func tagged(values []string, names ...string) []nostr.Filter {
	fs := make([]nostr.Filter, len(names))
	for i, name := range names {
		fs[i].Tags = nostr.TagMap{name: values}
	}
	return fs
}

func addresses(refs []graspsync.RepoRef, kind int) []string {
	out := make([]string, len(refs))
	for i, r := range refs {
		out[i] = r.Address(kind)
	}
	return out
}

// sorted returns a sorted copy without repetitions.
func sorted[T comparable](in []T, compare func(a, b T) int) []T {
	out := slices.Clone(in)
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// hexes spells values in hex. All the strings share one allocation: they are
// kept, and dropped, together.
func hexes[T ~[32]byte](values []T) []string {
	buf := make([]byte, 0, 64*len(values))
	for _, v := range values {
		b := [32]byte(v)
		buf = hex.AppendEncode(buf, b[:])
	}
	all := string(buf)
	out := make([]string, len(values))
	for i := range out {
		out[i] = all[64*i : 64*(i+1)]
	}
	return out
}
