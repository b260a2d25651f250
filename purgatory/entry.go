package purgatory

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/state"
)

// Key prefixes in the store.
const (
	keyEntry   = "purgatory/entry/"
	keyExpired = "purgatory/expired/"

	keyDepartures = "purgatory/departures/kept"
)

func encode(e refplan.Entry) ([]byte, error) {
	e.Seen, e.Deadline = backoff.WallTime(e.Seen), backoff.WallTime(e.Deadline)
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
		if e.Class == refplan.Announcement && r.Class == refplan.MaintainerAnnouncement {
			e.Class, e.Replaces = refplan.MaintainerAnnouncement, r.Replaces
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
