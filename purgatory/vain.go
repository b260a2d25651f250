package purgatory

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// mostVainRepos is how many repositories are kept of an event that waited in vain: nearly all are about
// one, and there may be very many such events.
const mostVainRepos = 4

// vain is what is kept of an event that waited in vain, for who asks what became of it. The names of its
// JSON fields never change their meaning.
type vain struct {
	Until  time.Time    `json:"until"` // it is remembered
	Class  ledger.Class `json:"class"`
	Repos  []string     `json:"repos,omitempty"`
	More   bool         `json:"more,omitempty"` // repositories than are kept
	ByUser bool         `json:"by_user,omitempty"`
	Seen   time.Time    `json:"seen,omitzero"`
	At     time.Time    `json:"at,omitzero"`
}

func encodeVain(e ledger.Entry, now, until time.Time) ([]byte, error) {
	kept := e.Repos[:min(len(e.Repos), mostVainRepos)]
	data, err := json.Marshal(vain{
		Until: backoff.Saved(until), Class: e.Class, Repos: texts(kept), More: len(kept) < len(e.Repos),
		ByUser: e.ByUser, Seen: backoff.Saved(e.Seen), At: backoff.Saved(now),
	})
	if err != nil {
		return nil, fmt.Errorf("encoding what waited in vain: %w", err)
	}
	return data, nil
}

// decodeVain reads what encodeVain wrote. Older versions wrote until when it is remembered, and no more.
func decodeVain(data []byte) (v vain, err error) {
	if v.Until.UnmarshalText(data) == nil {
		return v, nil
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return vain{}, fmt.Errorf("decoding what waited in vain: %w", err)
	}
	return v, nil
}

// ending returns the state of the event, false if its repositories are not known.
func (v vain) ending(id graspsync.EventID, now time.Time) (EventState, bool) {
	repos, err := refsIn(v.Repos)
	if err != nil || len(repos) == 0 {
		return EventState{}, false
	}
	return EventState{
		ID: id, Class: v.Class.String(), Repos: repos, more: v.More, ByUser: v.ByUser, Is: EventCode(Expired.String()),
		Since: backoff.Past(v.Seen, now), At: backoff.Past(v.At, now),
	}, true
}
