package pending

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"
	"unique"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

const (
	// chunks is the number of exported chunks. A new id changes one chunk.
	chunks  = 256
	keySize = 8
)

var errChunk = errors.New("invalid chunk of rejected events")

type record struct {
	ID        graspsync.EventID  `json:"id"`
	CreatedAt nostr.Timestamp    `json:"at"`
	Seen      int64              `json:"seen"`
	Kind      int32              `json:"kind"`
	Accepted  bool               `json:"accepted,omitempty"`
	Wanted    bool               `json:"wanted,omitempty"`
	Unsaved   bool               `json:"unsaved,omitempty"`
	Tries     uint8              `json:"tries,omitempty"`
	Relay     graspsync.RelayURL `json:"relay,omitzero"`
	Deps      []Key              `json:"deps,omitempty"`
}

// Export returns the ids and their data in chunks of JSON, without whole events. A chunk changes
// only with its entries. It returns no chunks if since is the current version, which an earlier call
// returned. since is 0 in the first call.
func (r *RejectedIndex) Export(since uint64) (out [][]byte, version uint64) {
	records, version := r.records(since)
	for _, some := range records { // not locked, because every incoming event waits for the lock
		var chunk []byte
		if len(some) > 0 {
			chunk, _ = json.Marshal(some) // never fails
		}
		out = append(out, chunk)
	}
	return out, version
}

func (r *RejectedIndex) records(since uint64) (records [][]record, version uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version == since {
		return nil, since
	}
	records = make([][]record, chunks)
	for _, e := range r.ids.All() {
		of := &records[maphash.Comparable(r.seed, e.id)%chunks]
		*of = append(*of, record{
			ID: e.id, CreatedAt: e.createdAt, Seen: e.seen, Kind: e.kind, Accepted: e.accepted, Wanted: e.wanted,
			Unsaved: e.unsaved, Tries: e.tries, Relay: e.relay.Value(), Deps: e.keys(),
		})
	}
	return records, r.version
}

// Restore adds the entries that Export returned, before any other call. It skips unreadable chunks
// and returns the error of one.
func (r *RejectedIndex) Restore(chunks [][]byte) (d Dropped, err error) {
	var all []record
	for _, c := range chunks {
		var some []record
		if len(c) == 0 {
			continue
		}
		if bad := json.Unmarshal(c, &some); bad != nil {
			err = fmt.Errorf("%w: %w", errChunk, bad)
			continue
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(a, b record) int { return cmp.Compare(a.Seen, b.Seen) })
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, in := range all {
		e := &entry{
			id: in.ID, createdAt: in.CreatedAt, seen: min(in.Seen, now.Unix()), // a clock that was set back extends no lifetime
			kind: in.Kind, accepted: in.Accepted, wanted: in.Wanted, unsaved: in.Unsaved, relay: unique.Make(in.Relay),
		}
		if _, known := r.ids.Get(e.id); known || r.old(e, now) {
			continue
		}
		if e.unsaved {
			r.unsaved++
		}
		r.setTries(e, min(in.Tries, maxTries))
		if e.tries > 0 { // no whole event exists after a restart, so the id is due now
			e.seen = min(e.seen, now.Unix()-int64(e.wait()/time.Second))
		}
		r.link(e, in.Deps[:min(len(in.Deps), MaxDependencies)])
		r.put(e, &d)
	}
	return d, err
}
