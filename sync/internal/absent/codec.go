package absent

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/sync/internal/shares"
)

// What is remembered of rejected events survives restarts in chunks, each of which
// can be read by itself:
//
//	version byte
//	relays: count, then length and text of each
//	entries until the end: id (32 bytes), author (8), flags (1), time + 1, kind,
//	    second in which it was last seen, relay (0 or its place in the list),
//	    count of dependencies, then 8 bytes of each
//
// Numbers are unsigned varints unless a size is given.
const (
	rejectedVersion = 1
	chunkEntries    = 1_000
	maxChunk        = 3 << 20 // bytes taken of one chunk: entries take 210, a URL each, and maxMany in all
	// manyDependencies is more than most entries have; those with more take at most
	// maxMany bytes of a chunk. One that has no room is not kept, and after a restart
	// comes again.
	manyDependencies = 16
	maxMany          = 256 << 10
	maxRelayText     = 2_048

	maxRejectedChunks = 10_000 // that are kept
)

var errChunk = errors.New("not a chunk of remembered events")

// Export returns what is remembered but for the events themselves. Which chunk an
// entry is in does not change while it keeps its place in the order, whatever comes
// or goes: only what has changed is written. The chunks are a ring, in which those
// without an entry are nil.
func (r *Table) Export() (chunks [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	front, back := r.order.Front(), r.order.Back()
	if front == nil {
		return nil
	}
	slots := uint64(min(2*(r.most/chunkEntries+2), maxRejectedChunks)) //nolint:gosec // positive
	if entryOf(back).place/chunkEntries-entryOf(front).place/chunkEntries >= slots {
		r.places = 0
		for el := front; el != nil; el = el.Next() {
			entryOf(el).place = r.nextPlace()
		}
	}
	var entries []*remembered
	for el := front; el != nil; el = el.Next() {
		e := entryOf(el)
		entries = append(entries, e)
		chunk, next := e.place/chunkEntries, el.Next()
		if next != nil && entryOf(next).place/chunkEntries == chunk {
			continue
		}
		slot := int(chunk % slots) //nolint:gosec // bounded
		for len(chunks) <= slot {
			chunks = append(chunks, nil)
		}
		chunks[slot] = r.encode(entries)
		entries = entries[:0]
	}
	return chunks
}

func (r *Table) encode(entries []*remembered) []byte {
	var relays shares.Relays
	for _, e := range entries {
		relays.Number(r.relays.URL(e.relay))
	}
	buf := binary.AppendUvarint([]byte{rejectedVersion}, uint64(len(relays.URLs())))
	for _, u := range relays.URLs() {
		text := u.String()
		buf = append(binary.AppendUvarint(buf, uint64(len(text))), text...)
	}
	many := 0
	for _, e := range entries {
		if n := len(e.deps); n > manyDependencies {
			if many += 8 * n; many > maxMany {
				many -= 8 * n
				continue
			}
		}
		buf = append(buf, e.id[:]...)
		buf = binary.BigEndian.AppendUint64(buf, e.author)
		buf = append(buf, byte(e.flags.lasting()))
		buf = binary.AppendUvarint(buf, uint64(max(e.createdAt, noTime))+1) //nolint:gosec // 0 for noTime
		buf = binary.AppendUvarint(buf, uint64(uint32(e.kind)))             //nolint:gosec // read back in the same way
		buf = binary.AppendUvarint(buf, uint64(max(e.seen, 0)))             //nolint:gosec // not below 0
		buf = binary.AppendUvarint(buf, uint64(relays.Number(r.relays.URL(e.relay))))
		buf = binary.AppendUvarint(buf, uint64(len(e.deps)))
		for _, d := range e.deps {
			buf = binary.BigEndian.AppendUint64(buf, uint64(d.key))
		}
	}
	return buf
}

// lasting is what another process has to know: what is being judged would be lost, and so
// would what there was no room for where that is not told apart.
func (f fate) lasting() fate {
	if f&(fateJudged|fateLater) != 0 {
		f = f&^fateJudged | fateAsked
	}
	return f
}

// Restore takes in all that export made, oldest first, as far as it can be read.
func (r *Table) Restore(chunks [][]byte) (d Dropped, err error) {
	type part struct {
		chunk []byte
		seen  int64
	}
	parts := make([]part, 0, len(chunks))
	for _, c := range chunks {
		if c == nil {
			continue
		}
		entries, _, derr := decodeRejected(c)
		if derr != nil {
			err = derr
		} else if len(entries) > 0 {
			parts = append(parts, part{c, entries[0].seen})
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.seen, b.seen) })
	for _, p := range parts {
		lost, _ := r.restoreChunk(p.chunk) // it was read before
		d.Remembered += lost.Remembered
	}
	return d, err
}

// restoreChunk takes in a chunk that export made, before anything else is remembered.
// What is too old by now is left out. Of a chunk with an error nothing is taken.
func (r *Table) restoreChunk(chunk []byte) (d Dropped, err error) {
	entries, urls, err := decodeRejected(chunk)
	if err != nil {
		return d, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, in := range entries {
		in.seen = min(in.seen, now.Unix()) // a clock that was set back makes nothing last longer
		if _, known := r.byID[in.id]; known || r.old(&in.remembered, now) {
			continue
		}
		var relay uint16
		if in.relay > 0 {
			relay = r.relays.Number(urls[in.relay-1])
		}
		e := r.entry(in.id, relay, now)
		e.author, e.createdAt, e.kind, e.seen, e.flags = in.author, in.createdAt, in.kind, in.seen, in.flags
		if tries := e.flags.tries(); tries > 0 { // it has its turn now: nothing is whole any more
			e.flags &^= fateAsked
			e.seen = min(e.seen, now.Unix()-int64(backoff.Doubled(laterFirst, laterMost, tries)/time.Second))
		}
		r.link(e, in.keys)
		lost := r.shrink(now)
		d.Remembered += lost.Remembered
	}
	return d, nil
}

// restored is an entry as it was read.
type restored struct {
	remembered
	keys []Key
}

func decodeRejected(chunk []byte) (entries []restored, urls []graspsync.RelayURL, err error) {
	if len(chunk) == 0 || len(chunk) > maxChunk || chunk[0] != rejectedVersion {
		return nil, nil, fmt.Errorf("%w: %d bytes", errChunk, len(chunk))
	}
	c := &chunkReader{rest: chunk[1:]}
	for range c.number(shares.MaxRelays) {
		u, perr := graspsync.ParseRelayURL(string(c.bytes(int(c.number(maxRelayText))))) //nolint:gosec // bounded
		if perr != nil {
			c.bad = true
			break
		}
		urls = append(urls, u)
	}
	for len(c.rest) > 0 && !c.bad {
		entries = append(entries, c.entry(uint64(len(urls))))
	}
	if c.bad {
		return nil, nil, errChunk
	}
	return entries, urls, nil
}

// chunkReader reads a chunk; once something is wrong, all it gives is zero.
type chunkReader struct {
	rest []byte
	bad  bool
}

func (c *chunkReader) bytes(n int) []byte {
	if c.bad || n > len(c.rest) {
		c.bad = true
		return make([]byte, min(n, maxRelayText))
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}

// number reads one that is at most most.
func (c *chunkReader) number(most uint64) uint64 {
	v, n := binary.Uvarint(c.rest)
	if c.bad || n <= 0 || v > most {
		c.bad = true
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

func (c *chunkReader) entry(relays uint64) (e restored) {
	copy(e.id[:], c.bytes(len(e.id)))
	e.author = binary.BigEndian.Uint64(c.bytes(8))
	e.flags = fate(c.bytes(1)[0]) & (fateAccepted | fateAsked | fateLater)
	e.createdAt = nostr.Timestamp(c.number(1<<63) - 1) //nolint:gosec // 0 is noTime
	e.kind = int32(uint32(c.number(1<<32 - 1)))        //nolint:gosec // bounded
	e.seen = int64(c.number(1 << 62))                  //nolint:gosec // bounded
	e.relay = uint16(c.number(relays))                 //nolint:gosec // bounded
	for range c.number(MaxDependencies) {
		e.keys = append(e.keys, Key(binary.BigEndian.Uint64(c.bytes(8))))
	}
	return e
}
