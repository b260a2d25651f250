package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/writebehind"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// Keys of the store. Keys of chunks end with a number of four digits.
const (
	prefix        = "sync/"
	healthPrefix  = prefix + "health/"
	hostPrefix    = prefix + "host/"
	learnedPrefix = prefix + "learned/"
	keptPrefix    = prefix + "kept/"
	chunksPrefix  = prefix + "chunks/"
	marksKey      = prefix + "marks"
	saltKey       = prefix + "salt"
)

// SaltSize is the length of the salt in bytes.
const SaltSize = 16

// keepFor is the lifetime of a relay's records after its last attempt.
const keepFor = 30 * 24 * time.Hour

// Memory writes state to a store. It is safe for concurrent use, and methods that return no error
// never block. Make one with [New].
type Memory struct {
	// set by New, read-only
	store  state.Store // nil: nothing is stored
	cfg    writebehind.Config
	buffer *writebehind.Buffer

	mu sync.Mutex
	// guarded by mu
	kept   map[graspsync.RelayURL]uint64 // identities of the last Kept values
	chunks map[string]int                // number of chunks by name
}

// New returns a Memory over store, which may be nil.
func New(store state.Store, cfg writebehind.Config) *Memory {
	return &Memory{
		store: store, cfg: cfg, buffer: writebehind.New(store, cfg),
		kept: make(map[graspsync.RelayURL]uint64), chunks: make(map[string]int),
	}
}

// Run writes changes until ctx ends. Changes queued at that time are lost, so call Flush before.
// Run must be called once, unless the Memory has no store.
func (m *Memory) Run(ctx context.Context) { m.buffer.Run(ctx) }

// Flush blocks until all earlier changes are durable. The error lists failed writes.
func (m *Memory) Flush(ctx context.Context) error { return m.buffer.Flush(ctx) }

// Record is a health record that is read at the time of writing.
type Record struct {
	key  string
	read func() (health.Record, bool)
}

// OfRelay returns the record of a relay. read returns false if the record no longer exists.
func OfRelay(u graspsync.RelayURL, read func(graspsync.RelayURL) (health.Record, bool)) Record {
	return Record{healthPrefix + u.String(), func() (health.Record, bool) { return read(u) }}
}

// OfHost returns the record of a host, like OfRelay.
func OfHost(host string, read func(string) (health.Record, bool)) Record {
	return Record{hostPrefix + host, func() (health.Record, bool) { return read(host) }}
}

func (r Record) value() ([]byte, bool) {
	record, ok := r.read()
	if !ok {
		return nil, false
	}
	return encode(record)
}

// encode returns JSON, or false if v cannot be encoded.
func encode(v any) ([]byte, bool) {
	b, err := json.Marshal(v)
	return b, err == nil
}

// Health queues changed records.
func (m *Memory) Health(records ...Record) {
	for _, r := range records {
		m.put(r.key, r.value)
	}
}

// SaveHealth blocks until the records are durable. Concurrent calls are written together. With an
// error a record may not be durable.
func (m *Memory) SaveHealth(ctx context.Context, records ...Record) error {
	if m.store == nil {
		return nil
	}
	changes := make([]writebehind.Change, len(records))
	for i, r := range records {
		changes[i] = writebehind.Change{Key: r.key, Value: r.value}
	}
	return m.buffer.Save(ctx, changes...)
}

// Learned queues the learned limits of a relay.
func (m *Memory) Learned(u graspsync.RelayURL, l relaylimits.Learned) {
	m.put(learnedPrefix+u.String(), func() ([]byte, bool) { return encode(l) })
}

// Kept queues the confirmed items of a relay. The events of these items must be durable.
func (m *Memory) Kept(k Kept) {
	b := encodeKept(k)
	queued := m.put(keptPrefix+k.Relay.String(), func() ([]byte, bool) { return b, true })
	m.mu.Lock()
	defer m.mu.Unlock()
	if queued {
		m.kept[k.Relay] = identity(b)
	} else {
		delete(m.kept, k.Relay) // the stored items are of another time and must get no newer marks
	}
}

// NothingKept removes the confirmed items of a relay.
func (m *Memory) NothingKept(u graspsync.RelayURL) {
	m.mu.Lock()
	delete(m.kept, u)
	m.mu.Unlock()
	m.remove(keptPrefix + u.String())
}

// Marks queues newer marks for the last values of Kept. Each call replaces all earlier marks. A
// relay without a mark falls back to the mark in its Kept.
func (m *Memory) Marks(all iter.Seq2[graspsync.RelayURL, time.Time]) {
	var marks []mark
	m.mu.Lock()
	for u, at := range all {
		if id, ok := m.kept[u]; ok {
			marks = append(marks, mark{u, at, id})
		}
	}
	m.mu.Unlock()
	if len(marks) > 0 {
		m.put(marksKey, func() ([]byte, bool) { return encodeMarks(marks), true })
	}
}

// Forget removes all values of a relay except its health, which is removed with its record.
func (m *Memory) Forget(u graspsync.RelayURL) {
	m.NothingKept(u)
	m.remove(learnedPrefix + u.String())
}

const maxChunks = 10_000

func chunkKey(name string, i int) string { return fmt.Sprintf("%s%s/%04d", chunksPrefix, name, i) }

// Chunks keeps chunks under a name without a slash, at most 10,000. A nil chunk is not kept. Only
// chunks that have changed are written.
func (m *Memory) Chunks(name string, chunks [][]byte) {
	for _, c := range m.exported(name, chunks) {
		m.put(c.Key, c.Value)
	}
}

// SaveChunks queues chunks and blocks until they are durable. With an error a chunk may not be
// durable.
func (m *Memory) SaveChunks(ctx context.Context, name string, chunks [][]byte) error {
	return m.buffer.Save(ctx, m.exported(name, chunks)...)
}

// exported returns the changes that store chunks and remove older ones.
func (m *Memory) exported(name string, chunks [][]byte) []writebehind.Change {
	if m.store == nil {
		return nil
	}
	if n := len(chunks) - maxChunks; n > 0 {
		m.cfg.Dropped("chunks", n)
		chunks = chunks[:maxChunks]
	}
	m.mu.Lock()
	before := m.chunks[name]
	m.chunks[name] = len(chunks)
	m.mu.Unlock()
	changes := make([]writebehind.Change, max(len(chunks), before))
	for i := range changes {
		var c []byte
		if i < len(chunks) {
			c = chunks[i]
		}
		changes[i] = writebehind.Change{Key: chunkKey(name, i), Value: func() ([]byte, bool) { return c, c != nil }}
	}
	return changes
}

func (m *Memory) remove(key string) { m.put(key, func() ([]byte, bool) { return nil, false }) }

// put queues a change and reports whether the queue had room.
func (m *Memory) put(key string, value writebehind.Value) bool {
	return m.store != nil && m.buffer.Put(key, value)
}
