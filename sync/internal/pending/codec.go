package pending

import (
	"cmp"
	"encoding/binary"
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
	rejectedVersion = 3
	// chunks is the number of exported chunks. A new id changes only one of them.
	chunks  = 256
	keySize = 8
)

var errChunk = errors.New("invalid chunk of rejected events")

// record is the fixed part of an entry in a chunk. The relay URL and the keys of dependencies
// follow.
type record struct {
	ID              graspsync.EventID
	CreatedAt, Seen int64
	Kind            int32
	Accepted        bool
	Wanted          bool
	Unsaved         bool
	Tries           uint8
	Relay, Deps     uint16 // length in bytes, and number of keys
}

// Export returns the ids and their data in chunks, without whole events. A chunk changes only with
// its entries.
func (r *RejectedIndex) Export() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([][]byte, chunks)
	for _, e := range r.ids.All() {
		b := &out[maphash.Comparable(r.seed, e.id)%chunks]
		if *b == nil {
			*b = []byte{rejectedVersion}
		}
		*b = e.append(*b)
	}
	return out
}

func (e *entry) append(b []byte) []byte {
	relay := e.relay.Value().String()
	b, _ = binary.Append(b, binary.BigEndian, record{ // never fails
		ID: e.id, CreatedAt: int64(e.createdAt), Seen: e.seen, Kind: e.kind, Accepted: e.accepted, Wanted: e.wanted,
		Unsaved: e.unsaved, Tries: e.tries, Relay: uint16(len(relay)), Deps: uint16(len(e.deps)), //nolint:gosec // bounded by MaxDependencies, and by a URL
	})
	b = append(b, relay...)
	for i := range e.deps {
		b = binary.BigEndian.AppendUint64(b, uint64(e.deps[i].key))
	}
	return b
}

// restored is a decoded entry.
type restored struct {
	entry
	keys []Key
}

// Restore adds the entries that Export returned. It is called before any other method. A chunk that
// cannot be read is skipped, and the error of one such chunk is returned.
func (r *RejectedIndex) Restore(chunks [][]byte) (d Dropped, err error) {
	var all []restored
	for _, c := range chunks {
		entries, cerr := decode(c)
		if cerr != nil {
			err = cerr
			continue
		}
		all = append(all, entries...)
	}
	slices.SortStableFunc(all, func(a, b restored) int { return cmp.Compare(a.seen, b.seen) })
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, in := range all {
		e := &in.entry
		e.seen = min(e.seen, now.Unix()) // a clock that was set back extends no lifetime
		if _, known := r.ids.Get(e.id); known || r.old(e, now) {
			continue
		}
		if e.unsaved {
			r.unsaved++
		}
		if e.tries > 0 { // no whole event exists after a restart, so the id is due now
			e.seen = min(e.seen, now.Unix()-int64(e.wait()/time.Second))
		}
		r.link(e, in.keys)
		r.put(e, &d)
	}
	return d, err
}

func decode(chunk []byte) (out []restored, err error) {
	if len(chunk) == 0 {
		return nil, nil
	}
	if chunk[0] != rejectedVersion {
		return nil, fmt.Errorf("%w: version %d", errChunk, chunk[0])
	}
	for rest := chunk[1:]; len(rest) > 0; {
		var rec record
		n, err := binary.Decode(rest, binary.BigEndian, &rec)
		end := n + int(rec.Relay) + keySize*int(rec.Deps)
		if err != nil || rec.Deps > MaxDependencies || rec.Tries > maxTries || len(rest) < end {
			return nil, errChunk
		}
		in := restored{entry: entry{
			id: rec.ID, createdAt: nostr.Timestamp(rec.CreatedAt), seen: rec.Seen, kind: rec.Kind,
			accepted: rec.Accepted, wanted: rec.Wanted, unsaved: rec.Unsaved, tries: rec.Tries,
		}}
		var u graspsync.RelayURL
		if rec.Relay > 0 {
			if u, err = graspsync.ParseRelayURL(string(rest[n : n+int(rec.Relay)])); err != nil {
				return nil, fmt.Errorf("%w: %w", errChunk, err)
			}
		}
		in.relay = unique.Make(u)
		for keys := rest[n+int(rec.Relay) : end]; len(keys) > 0; keys = keys[keySize:] {
			in.keys = append(in.keys, Key(binary.BigEndian.Uint64(keys)))
		}
		out = append(out, in)
		rest = rest[end:]
	}
	return out, nil
}
