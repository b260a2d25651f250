package purgatory

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// errNotOurs is returned for events that never wait.
var errNotOurs = errors.New("events of this kind do not wait for git data")

// errNotText is returned for an event that is not valid UTF-8, because JSON would change it at a
// restart.
var errNotText = errors.New("not all of the event is UTF-8")

func waits(kind int) bool {
	switch kind {
	case graspsync.KindAnnouncement, graspsync.KindState, graspsync.KindPullRequest, graspsync.KindPullRequestUpdate:
		return true
	}
	return false
}

func isText(ev *nostr.Event) bool {
	for _, t := range ev.Tags {
		if slices.ContainsFunc(t, func(v string) bool { return !utf8.ValidString(v) }) {
			return false
		}
	}
	return utf8.ValidString(ev.Content)
}

// entryOf parses an event. It returns an error if events of this kind are never held.
func entryOf(ev graspsync.Event, byUser bool) (refplan.Entry, error) {
	e := refplan.Entry{Event: ev.Event, ByUser: byUser, Size: int64(sizeOf(ev.Event))}
	if waits(ev.Kind) && !isText(ev.Event) {
		return e, errNotText
	}
	switch ev.Kind {
	case graspsync.KindAnnouncement:
		a, err := nip34.ParseAnnouncement(ev)
		if err != nil {
			return e, err
		}
		e.Class, e.ID, e.Author, e.Version = refplan.Announcement, a.ID, a.Ref.Owner, a.Key()
		e.Repos, e.Announces = []graspsync.RepoRef{a.Ref}, a
		e.Size += int64(a.Size()) // the parsed announcements stay in memory
	case graspsync.KindState:
		s, err := nip34.ParseState(ev)
		if err != nil {
			return e, err
		}
		e.Class, e.ID, e.Author, e.Version = refplan.State, s.ID, s.Ref.Owner, s.Key()
		e.Repos, e.State = []graspsync.RepoRef{s.Ref}, s
		e.Size += int64(s.Size())
	case graspsync.KindPullRequest, graspsync.KindPullRequestUpdate:
		p, err := nip34.ParsePullRequest(ev)
		if err != nil {
			return e, err
		}
		e.Class, e.ID, e.Author, e.Repos = refplan.PullRequest, p.ID, p.Author, p.Repos
		e.Version, e.Pull = graspsync.EventKey{CreatedAt: p.CreatedAt, ID: p.ID}, p
		e.Size += int64(p.Size())
	default:
		return e, fmt.Errorf("%w: kind %d", errNotOurs, ev.Kind)
	}
	if at, expires := nip34.Expiration(ev.Event); expires {
		e.Expires = max(1, int64(at))
	}
	return e, nil
}

// sizeOf returns the approximate size of an event in memory, in bytes.
func sizeOf(ev *nostr.Event) int {
	n := 512 + len(ev.Content)
	for _, t := range ev.Tags {
		for _, v := range t {
			n += len(v) + 16
		}
	}
	return n
}
