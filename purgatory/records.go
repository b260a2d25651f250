package purgatory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/state"
)

// Key prefixes in the store.
const (
	keyEntry   = "purgatory/entry/"
	keyExpired = "purgatory/expired/"
	keyKept    = "purgatory/kept/" // the value is the repository
)

// record is the stored form of an entry. A JSON field name never changes its meaning.
type record struct {
	Class    refplan.Class `json:"class"`
	Event    *nostr.Event  `json:"event"`
	ByUser   bool          `json:"by_user,omitempty"`
	Seen     time.Time     `json:"seen"`
	Deadline time.Time     `json:"deadline"`
	Soft     bool          `json:"soft,omitempty"`
	From     string        `json:"from,omitempty"` // relay that sent it
	For      string        `json:"for,omitempty"`  // key that lists a relative
}

func encode(e refplan.Entry) ([]byte, error) {
	r := record{
		Class: e.Class, Event: e.Event, ByUser: e.ByUser, Soft: e.Soft, From: e.From,
		Seen: e.Seen.Round(0).UTC(), Deadline: e.Deadline.Round(0).UTC(),
	}
	if e.Class == refplan.Relative {
		r.For = e.For.String()
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding an entry: %w", err)
	}
	return data, nil
}

var errRecord = errors.New("not an entry of ours")

// decode parses a record written by encode. It returns an error for any record that encode cannot
// have written.
func decode(id graspsync.EventID, data []byte) (refplan.Entry, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return refplan.Entry{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	var e refplan.Entry
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
			e.Class = refplan.Relative
			if e.For, err = graspsync.ParsePubKey(r.For); err != nil {
				return e, fmt.Errorf("%w: %w", errRecord, err)
			}
		}
	}
	if e.ID != id || e.Class != r.Class || r.Seen.IsZero() || r.Deadline.IsZero() {
		return e, errRecord
	}
	e.Seen, e.Deadline, e.Soft = r.Seen, r.Deadline, r.Soft && r.Class == refplan.Announcement
	e.From = r.From
	return e, nil
}

// isSignature reports whether s is 64 bytes in hex.
func isSignature(s string) bool {
	data, err := hex.DecodeString(s)
	return err == nil && len(data) == 64
}

// mostExpiredRepos is the maximum number of repositories in the record of an expired event, because
// there may be very many records. Nearly all events name one repository.
const mostExpiredRepos = 4

// expiredRecord is the stored form of an expired event. A JSON field name never changes its
// meaning.
type expiredRecord struct {
	Until  time.Time           `json:"until"` // end of the record
	Class  refplan.Class       `json:"class"`
	Repos  []graspsync.RepoRef `json:"repos,omitempty"`
	ByUser bool                `json:"by_user,omitempty"`
	Seen   time.Time           `json:"seen,omitzero"`
	At     time.Time           `json:"at,omitzero"`
}

func encodeExpired(e refplan.Entry, now, until time.Time) ([]byte, error) {
	data, err := json.Marshal(expiredRecord{
		Until: backoff.Saved(until), Class: e.Class, Repos: e.Repos[:min(len(e.Repos), mostExpiredRepos)],
		ByUser: e.ByUser, Seen: backoff.Saved(e.Seen), At: backoff.Saved(now),
	})
	if err != nil {
		return nil, fmt.Errorf("encoding an expired event: %w", err)
	}
	return data, nil
}

// decodeExpired parses a record written by encodeExpired.
func decodeExpired(data []byte) (r expiredRecord, err error) {
	if err := json.Unmarshal(data, &r); err != nil {
		return expiredRecord{}, fmt.Errorf("decoding an expired event: %w", err)
	}
	return r, nil
}

// ending returns the state of the event. It returns false if no repository is recorded.
func (r expiredRecord) ending(id graspsync.EventID, now time.Time) (EventState, bool) {
	if len(r.Repos) == 0 || len(r.Repos) > mostExpiredRepos {
		return EventState{}, false
	}
	return EventState{
		ID: id, Class: r.Class.String(), Repos: r.Repos, ByUser: r.ByUser, Is: EventCode(Expired.String()),
		Since: backoff.Past(r.Seen, now), At: backoff.Past(r.At, now),
	}, true
}

// readEach calls f for all records with a key prefix. key is the rest of the key.
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

// hashed returns a store key for a repository. The name is hashed because strangers choose it.
func hashed(ref graspsync.RepoRef) string {
	sum := sha256.Sum256([]byte(ref.String()))
	return hex.EncodeToString(sum[:16])
}
