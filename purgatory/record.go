package purgatory

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// The keys of what is kept.
const (
	keyEntry    = "purgatory/entry/"
	keyExpired  = "purgatory/expired/"
	keyLeft     = "purgatory/left/"
	keyKept     = "purgatory/kept/" // the value is the repository
	keyAligning = "purgatory/aligning/"
)

// record is an entry as it is kept. The names of its JSON fields never change their
// meaning.
type record struct {
	Class    ledger.Class `json:"class"`
	Event    *nostr.Event `json:"event,omitempty"`
	Repo     string       `json:"repo,omitempty"`   // of a placeholder
	Repos    []string     `json:"repos,omitempty"`  // the others of it
	Strays   []string     `json:"strays,omitempty"` // of a pull request
	ByUser   bool         `json:"by_user,omitempty"`
	Seen     time.Time    `json:"seen"`
	Deadline time.Time    `json:"deadline"`
	Soft     bool         `json:"soft,omitempty"`
	From     string       `json:"from,omitempty"` // the relay that brought it
	For      string       `json:"for,omitempty"`  // who wants a relative
}

func encode(e ledger.Entry) ([]byte, error) {
	r := record{
		Class: e.Class, Event: e.Event, ByUser: e.ByUser, Soft: e.Soft, From: e.From,
		Seen: e.Seen.Round(0).UTC(), Deadline: e.Deadline.Round(0).UTC(),
	}
	if e.Class == ledger.Placeholder {
		r.Repo, r.Repos = e.Repos[0].String(), texts(e.Repos[1:])
	}
	if e.Class == ledger.Relative {
		r.For = e.For.String()
	}
	r.Strays = texts(e.Strays)
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding an entry: %w", err)
	}
	return data, nil
}

var errRecord = errors.New("not an entry of ours")

// decode reads what encode wrote under an id. Whatever the disk holds, what it
// returns is an entry as it can have been made, or an error.
func decode(id graspsync.EventID, data []byte) (ledger.Entry, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return ledger.Entry{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	var e ledger.Entry
	var err error
	switch {
	case r.Class == ledger.Placeholder:
		ref, err := graspsync.ParseRepoRef(r.Repo)
		if err != nil {
			return e, fmt.Errorf("%w: %w", errRecord, err)
		}
		e = placeholder(ref, id)
		others, err := refsIn(r.Repos)
		if err != nil {
			return e, err
		}
		e.Repos = append(e.Repos, others...)
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
		if e.Class == ledger.Announcement && r.Class == ledger.Relative {
			e.Class = ledger.Relative
			if e.For, err = graspsync.ParsePubKey(r.For); err != nil {
				return e, fmt.Errorf("%w: %w", errRecord, err)
			}
		}
	}
	if e.Strays, err = refsIn(r.Strays); err != nil {
		return e, err
	}
	if e.ID != id || e.Class != r.Class || r.Seen.IsZero() || r.Deadline.IsZero() || (e.Event == nil && len(e.Strays) > 0) {
		return e, errRecord
	}
	// The ref of an event is removed from strays: never from where it belongs.
	if all := slices.Concat(e.Repos, e.Strays); len(setOf(all)) < len(all) {
		return e, fmt.Errorf("%w: a repository twice", errRecord)
	}
	e.Seen, e.Deadline, e.Soft = r.Seen, r.Deadline, r.Soft && r.Class == ledger.Announcement
	e.From = r.From
	return e, nil
}

// isSignature reports whether this has the form of one.
func isSignature(s string) bool {
	data, err := hex.DecodeString(s)
	return err == nil && len(data) == 64
}

func texts(refs []graspsync.RepoRef) (out []string) {
	for _, ref := range refs {
		out = append(out, ref.String())
	}
	return out
}

func refsIn(list []string) (out []graspsync.RepoRef, err error) {
	if len(list) > 2*ledger.MaxPushed {
		return nil, fmt.Errorf("%w: %d repositories", errRecord, len(list))
	}
	for _, s := range list {
		ref, err := graspsync.ParseRepoRef(s)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errRecord, err)
		}
		out = append(out, ref)
	}
	return out, nil
}
