package filters

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// MaxValues is the maximum number of tag values, authors or ids in one filter of a builder.
const MaxValues = 100

// Layer1 returns the filter of all announcements and states. Its JSON is the same for every server.
func Layer1() nostr.Filter {
	return nostr.Filter{Kinds: []int{graspsync.KindAnnouncement, graspsync.KindState}}
}

// Repos returns the filters of layer 2, which match events that tag (`a`, `A` or `q`) the
// announcement of one of the repositories, and deletions of the announcement or the state. It omits
// repositories that [graspsync.CheckIdentifier] rejects.
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

// Roots returns the filters of layer 3, which match events that tag one of the events (`e`, `E` or
// `q`).
func Roots(ids []graspsync.EventID) []nostr.Filter {
	var fs []nostr.Filter
	for chunk := range slices.Chunk(hexes(sorted(ids, graspsync.EventID.Compare)), MaxValues) {
		fs = append(fs, tagged(chunk, "e", "E", "q")...)
	}
	return fs
}

// Descendant is an event that refers to a repository through other events, such as a comment on an
// issue.
type Descendant struct {
	ID      graspsync.EventID // the id, or zero if Address is set
	Address string            // the address of a replaceable or addressable event, "<kind>:<pubkey>:<identifier>"
}

// Compare orders descendants. Those without an address come first.
func (d Descendant) Compare(other Descendant) int {
	return cmp.Or(cmp.Compare(d.Address, other.Address), d.ID.Compare(other.ID))
}

// Descendants returns the filters of layer 4, which match events that tag the id (`e`, `E` or `q`)
// or the address (`a`, `A` or `q`) of one of the events.
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

// Deletions returns the filters of all deletions and requests to vanish (NIP-62) by the authors.
func Deletions(authors []graspsync.PubKey) []nostr.Filter {
	var fs []nostr.Filter
	for chunk := range slices.Chunk(hexes(sorted(authors, graspsync.PubKey.Compare)), MaxValues) {
		fs = append(fs, nostr.Filter{Kinds: []int{graspsync.KindDeletion, graspsync.KindVanish}, Authors: chunk})
	}
	return fs
}

// ByID returns filters of the events with these ids, size of them in each filter, in the given
// order and without repetitions. Each has a limit, because some relays apply a small default limit.
// A size below 1 means [MaxValues].
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

// Live returns f so that it matches only events to come. It has limit 0, no since and no until, and
// shares the lists of f.
func Live(f nostr.Filter) nostr.Filter {
	f.Since, f.Until, f.Limit, f.LimitZero = nil, nil, 0, true
	return f
}

// Between returns a copy of f with the given since and until, both inclusive. nil is no bound, and
// a limit below 1 no limit.
func Between(f nostr.Filter, since, until *nostr.Timestamp, limit int) nostr.Filter {
	f.Since, f.Until = since, until
	f.Limit, f.LimitZero = max(limit, 0), false
	return f.Clone()
}

// WithKinds returns a copy of f that names the kinds of [RelatedKinds] if f names none, because
// some relays refuse filters without kinds.
func WithKinds(f nostr.Filter) nostr.Filter {
	f = f.Clone()
	if f.Kinds == nil {
		f.Kinds = RelatedKinds()
	}
	return f
}

// WithoutNotes returns a copy of f that names its kinds or [RelatedKinds] without kind 1, unless f
// names authors, because some relays (policies.AntiSyncBots of khatru) refuse other requests. The
// result may match nothing.
func WithoutNotes(f nostr.Filter) nostr.Filter {
	if f.Authors != nil {
		return f.Clone()
	}
	f = WithKinds(f)
	f.Kinds = slices.DeleteFunc(f.Kinds, func(kind int) bool { return kind == graspsync.KindNote })
	return f
}

// Kinds returns a new slice of the kinds that always belong to a repository, in ascending order.
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

// RelatedKinds returns [Kinds] and the kinds that may refer to repositories but are mostly about
// other subjects, in ascending order.
func RelatedKinds() []int {
	kinds := append(Kinds(),
		graspsync.KindNote, 7, 9735, // note, reaction, zap
		1985,               // label: it may change the subject of an issue
		3063, 30063, 32267, // asset, release, application (NIP-82)
		15128, 35128, // site
	)
	slices.Sort(kinds)
	return kinds
}

// Empty reports whether f contains an empty list of values. The encoder omits it, and the filter
// would then match everything.
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

func sorted[T comparable](in []T, compare func(a, b T) int) []T {
	out := slices.Clone(in)
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

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
