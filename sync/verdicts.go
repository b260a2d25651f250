package sync

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/recently"
	"github.com/graspsync/graspsync/nip34"
)

const (
	// mostVerdicts is how many of each reason and share are remembered for
	// [SyncManager.ExplainEvent], verdictShares the shares of a reason: whoever sends much, by one
	// relay or by one key, has what others sent forgotten only where it shares with them.
	mostVerdicts, verdictShares = 200, 8
	// verdictKinds is how many shares of reasons there are at most, some 15 megabytes in all. A
	// policy's reasons are constants, and fewer.
	verdictKinds = 300
)

// Whereabouts is what became of an event, as far as a [SyncManager] knows.
type Whereabouts string

// The whereabouts.
const (
	IsStored     Whereabouts = "stored"
	IsHeld       Whereabouts = "held"       // by the Policy
	IsInFlight   Whereabouts = "in flight"  // it is being looked at
	IsFailing    Whereabouts = "failing"    // it could not be judged or saved, and is tried again
	IsWaiting    Whereabouts = "waiting"    // for what it depends on
	IsPostponed  Whereabouts = "postponed"  // there is no room for it now
	IsRejected   Whereabouts = "rejected"   // by the Policy
	IsRefused    Whereabouts = "refused"    // by the Store, or the relay that it is part of
	IsSuperseded Whereabouts = "superseded" // a newer version is here
	IsDeleted    Whereabouts = "deleted"    // its author asked for that
	IsRemoved    Whereabouts = "removed"    // by moderation or expiry
	IsGone       Whereabouts = "gone"       // it was accepted once, and is not here any more
	IsUnknown    Whereabouts = "unknown"    // it never came, or that is not remembered
)

// verdicts are the newest of what was said of events that are not stored, for people who ask.
// Nothing is remembered of those that are.
type verdicts struct {
	*recently.Log[verdictOf, verdict]
	since time.Time // when this began
}

// verdictOf is what is bounded apart.
type verdictOf struct {
	is     Whereabouts
	reason string
	share  uint32 // less than verdictShares
}

// verdict is what was said of one event.
type verdict struct {
	verdictOf

	id         graspsync.EventID
	author     graspsync.PubKey
	kind       int
	createdAt  nostr.Timestamp
	identifier string // of a kind that has one; too long if it is cut
	source     graspsync.Source
	detail     string
	rule       string // that blocks it, by what it is about; "" if none does
	at         int64  // Unix time in nanoseconds
}

func newVerdicts() *verdicts {
	return &verdicts{recently.New[verdictOf, verdict](mostVerdicts, verdictKinds), time.Now()}
}

// note remembers one. detail must be fit to show.
func (v *verdicts) note(in graspsync.Incoming, is Whereabouts, reason, detail string) {
	v.noteBlocked(in, is, reason, detail, "")
}

// noteBlocked is note for what a rule may be the reason of.
func (v *verdicts) noteBlocked(in graspsync.Incoming, is Whereabouts, reason, detail, rule string) {
	ev := in.Event
	identifier := ""
	if nostr.IsAddressableKind(ev.Kind) {
		// A copy: a part of the event would keep all of it.
		identifier = strings.Clone(graspsync.Clip(ev.Tags.GetD(), graspsync.MaxIdentifier+1))
	}
	of := verdictOf{is, reason, shareOf(in)}
	v.Add(of, verdict{
		verdictOf: of, id: ev.ID, author: ev.PubKey, kind: ev.Kind, createdAt: ev.CreatedAt, identifier: identifier,
		source: in.Source, detail: detail, rule: rule, at: time.Now().UnixNano(),
	})
}

// ruleOf returns what the rule is about that has to be lifted first, "" if none has to be.
func ruleOf(deps []graspsync.Dependency) string {
	for _, d := range deps {
		if d.Await == graspsync.AwaitLifted {
			return d.Text
		}
	}
	return ""
}

// complete returns since when all that was said is remembered, zero if it is not.
func (v *verdicts) complete() time.Time {
	if !v.Complete() {
		return time.Time{}
	}
	return v.since
}

// passes reports whether it is said of an event that may be accepted later.
func (n verdict) passes() bool {
	switch n.is { //nolint:exhaustive // the others are for good
	case IsFailing, IsWaiting, IsPostponed, IsRejected, IsRefused:
		return true
	}
	return false
}

// event returns as much of the event as a deletion or another version is found by; false if that
// is not remembered.
func (n verdict) event() (graspsync.Event, bool) {
	if n.id == (graspsync.EventID{}) || len(n.identifier) > graspsync.MaxIdentifier {
		return graspsync.Event{}, false
	}
	ev := &nostr.Event{ID: n.id.String(), PubKey: n.author.String(), Kind: n.kind, CreatedAt: n.createdAt}
	if nostr.IsAddressableKind(n.kind) {
		ev.Tags = nostr.Tags{{"d", n.identifier}}
	}
	return graspsync.Event{Event: ev, ID: n.id, PubKey: n.author}, true
}

// shareOf returns in whose company it is remembered what became of an event: that of the relay
// which had it, or of its author.
func shareOf(in graspsync.Incoming) uint32 {
	h := fnv.New32a()
	if u := in.Source.Relay; !u.IsZero() {
		_, _ = h.Write([]byte(u.HostPort().Host))
	} else {
		_, _ = h.Write(in.Event.PubKey[:])
	}
	return h.Sum32() % verdictShares
}

// unsaved remembers what the Store did not take.
func (v *verdicts) unsaved(in graspsync.Incoming, o graspsync.Outcome) {
	is := IsRefused
	switch o.Result { //nolint:exhaustive // only these are told
	case graspsync.Superseded:
		is = IsSuperseded
	case graspsync.Deleted:
		is = IsDeleted
	}
	detail := ""
	if o.Err != nil {
		detail = graspsync.Printable(o.Err.Error())
	}
	v.note(in, is, "", detail)
}

// last returns what was said last of an event.
func (v *verdicts) last(id graspsync.EventID) (last verdict, ok bool) {
	v.Each(func(_ verdictOf, n verdict) {
		if n.id == id && (!ok || n.at > last.at) {
			last, ok = n, true
		}
	})
	return last, ok
}

// of returns what was said of the announcements and states of a repository's owner, at most so
// many, the newest first.
func (v *verdicts) of(ref graspsync.RepoRef, most int) (out []verdict) {
	var oldest int64 // of the newest, once there are more
	v.Each(func(_ verdictOf, n verdict) {
		if n.at < oldest || n.author != ref.Owner || n.identifier != ref.Identifier ||
			n.kind != graspsync.KindAnnouncement && n.kind != graspsync.KindState {
			return
		}
		if out = append(out, n); len(out) >= 8*most {
			if out = newest(out, most); len(out) == most {
				oldest = out[most-1].at
			}
		}
	})
	return newest(out, most)
}

// maxNamed is how many of the things that an event waits for are named.
const maxNamed = 3

// waitedFor says what an event waits for: first what it names itself.
func waitedFor(deps []graspsync.Dependency) string {
	var named, others []graspsync.Dependency
	for _, d := range deps {
		if mentions := d.Await == graspsync.AwaitMention || d.Await == graspsync.AwaitVersionMention; !mentions {
			named = append(named, d)
		} else if len(others) < maxNamed {
			others = append(others, d)
		}
		if len(named) == maxNamed {
			break
		}
	}
	var b strings.Builder
	shown := append(named, others...)
	shown = shown[:min(len(shown), maxNamed)]
	for i, d := range shown {
		if i > 0 {
			b.WriteString(", or ")
		}
		b.WriteString(graspsync.Printable(describe(d)))
	}
	if len(deps) > len(shown) {
		b.WriteString(", or another")
	}
	return b.String()
}

// describe says what is waited for, for people.
func describe(d graspsync.Dependency) string {
	if d.Await != graspsync.AwaitSay {
		return d.String()
	}
	return "an announcement of " + d.Text + " by " + nip34.NPub(d.Author) + ", or one that lists them as a maintainer"
}

// newest returns the newest of some, each event once.
func newest(all []verdict, most int) []verdict {
	slices.SortStableFunc(all, func(a, b verdict) int { return cmp.Compare(b.at, a.at) })
	seen := make(map[graspsync.EventID]bool, len(all))
	all = slices.DeleteFunc(all, func(n verdict) bool {
		again := seen[n.id]
		seen[n.id] = true
		return again
	})
	return all[:min(len(all), most)]
}
