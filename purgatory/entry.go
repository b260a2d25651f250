package purgatory

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/state"
)

var errNotOurs = errors.New("events of this kind do not wait for git data")

// errNotText is returned for invalid UTF-8, because JSON would change it at a restart.
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

// entryOf returns an error if events of this kind are never held.
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
	n := 512 + len(ev.Content) + 24*len(ev.Tags)
	for _, t := range ev.Tags {
		for _, v := range t {
			n += len(v) + 16
		}
	}
	return n
}

// Key prefixes in the store.
const (
	keyEntry   = "purgatory/entry/"
	keyExpired = "purgatory/expired/"

	keyDepartures = "purgatory/departures/kept"
)

func encode(e refplan.Entry) ([]byte, error) {
	e.Seen, e.Deadline = backoff.Saved(e.Seen), backoff.Saved(e.Deadline)
	data, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encoding an entry: %w", err)
	}
	return data, nil
}

var errRecord = errors.New("not an entry of ours")

// decode returns an error for any record that encode cannot have written.
func decode(id graspsync.EventID, data []byte) (refplan.Entry, error) {
	var r, e refplan.Entry
	if err := json.Unmarshal(data, &r); err != nil {
		return e, fmt.Errorf("%w: %w", errRecord, err)
	}
	switch {
	case r.Event == nil || !r.Event.CheckID():
		return e, fmt.Errorf("%w: event does not match its id", errRecord)
	case !isSignature(r.Event.Sig): // the id does not cover it
		return e, fmt.Errorf("%w: event without signature", errRecord)
	default:
		ev, err := graspsync.ParseEvent(r.Event)
		if err != nil {
			return e, fmt.Errorf("%w: %w", errRecord, err)
		}
		if e, err = entryOf(ev, r.ByUser); err != nil {
			return e, fmt.Errorf("%w: %w", errRecord, err)
		}
		if e.Class == refplan.Announcement && r.Class == refplan.Relative {
			e.Class, e.Replaces = refplan.Relative, r.Replaces
		}
	}
	if e.ID != id || e.Class != r.Class || r.Seen.IsZero() || r.Deadline.IsZero() {
		return e, errRecord
	}
	e.Seen, e.Deadline, e.Soft = r.Seen, r.Deadline, r.Soft && r.Class == refplan.Announcement
	e.From = r.From
	return e, nil
}

func isSignature(s string) bool {
	data, err := hex.DecodeString(s)
	return err == nil && len(data) == 64
}

// mostExpiredRepos is the maximum number of repositories in the record of an expired event.
const mostExpiredRepos = 4

// readEach calls f for all records with a key prefix. key is the rest.
func readEach(ctx context.Context, store state.Store, prefix string, f func(key string, value []byte) error) error {
	for r, err := range store.Each(ctx, prefix) {
		if err == nil {
			err = f(strings.TrimPrefix(r.Key, prefix), r.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
