package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/writebehind"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// The keys. Chunks have a number of four digits after their name.
const (
	prefix         = "sync/"
	healthPrefix   = prefix + "health/"
	hostPrefix     = prefix + "host/"
	factsPrefix    = prefix + "learned/"
	setAsidePrefix = prefix + "set_aside/"
	keptPrefix     = prefix + "kept/"
	chunksPrefix   = prefix + "chunks/"
	marksKey       = prefix + "marks"
	saltKey        = prefix + "salt"
)

// SaltSize is the length of the salt.
const SaltSize = 16

// Config holds the bounds and times of a [Memory]. The zero value works.
type Config struct {
	// Delay is how long changes are gathered that nobody waits for. Defaults to 3 s.
	Delay time.Duration
	// Timeout bounds each call of the store. Defaults to 1 min.
	Timeout time.Duration
	// MaxValue is the longest value, in bytes; longer ones are dropped and counted.
	// Defaults to 4 MiB, or 500,000 items of one relay.
	MaxValue int
	// MaxQueue bounds the keys whose changes wait; more are dropped and counted.
	// Defaults to 250,000.
	MaxQueue int
	// Keep is how long a relay's records are kept after it was last tried. Defaults
	// to 30 days.
	Keep time.Duration
	// Logger gets what fails. Defaults to discarding it.
	Logger *slog.Logger
	// Dropped counts what was dropped, by reason. Must not block. May be nil.
	Dropped func(reason string, n int)
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.Delay, 3 * time.Second}, {&c.Timeout, time.Minute}, {&c.Keep, 30 * 24 * time.Hour}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.MaxValue == 0 {
		c.MaxValue = 4 << 20
	}
	if c.MaxQueue == 0 {
		c.MaxQueue = 250_000
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Dropped == nil {
		c.Dropped = func(string, int) {}
	}
	return c
}

// Memory keeps things. Its methods may be called concurrently; those that return no
// error never block. Make one with [New].
type Memory struct {
	// set by New, read-only
	store  state.Store // nil: nothing is kept
	cfg    Config
	buffer *writebehind.Buffer

	mu sync.Mutex
	// guarded by mu
	kept   map[graspsync.RelayURL]uint64 // identities of what was told last
	chunks map[string]int                // how many there are, by name
}

// New returns a Memory over store, which may be nil.
func New(store state.Store, cfg Config) *Memory {
	cfg = cfg.withDefaults()
	return &Memory{
		store: store, cfg: cfg, buffer: writebehind.New(store, writebehind.Config{
			Delay: cfg.Delay, Timeout: cfg.Timeout, MaxValue: cfg.MaxValue, MaxQueue: cfg.MaxQueue, Logger: cfg.Logger,
			Dropped: func(reason string, n int) { cfg.Dropped("memory_"+reason, n) },
		}),
		kept:   make(map[graspsync.RelayURL]uint64),
		chunks: make(map[string]int),
	}
}

// Run writes until ctx ends. What is queued then is not written: call Flush before.
// It must be called once, unless the Memory has no store.
func (m *Memory) Run(ctx context.Context) { m.buffer.Run(ctx) }

// Flush returns when everything that was told before is durable; the error says what
// is not.
func (m *Memory) Flush(ctx context.Context) error { return m.buffer.Flush(ctx) }

// Record is a record of health that is read when it is written.
type Record struct {
	key  string
	read func() (health.Record, bool)
}

// OfRelay is the record of a relay, as read returns it; false means that there is
// none any more.
func OfRelay(u graspsync.RelayURL, read func(graspsync.RelayURL) (health.Record, bool)) Record {
	return Record{healthPrefix + u.String(), func() (health.Record, bool) { return read(u) }}
}

// OfHost is the record of a host, like OfRelay.
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

// encode writes JSON; what can't be written is not kept.
func encode(v any) ([]byte, bool) {
	b, err := json.Marshal(v)
	return b, err == nil
}

// Health says that records have changed.
func (m *Memory) Health(records ...Record) {
	for _, r := range records {
		m.put(r.key, r.value)
	}
}

// SaveHealth returns when records are durable, as of now or later; the error says
// that one may not be. Those that are saved at the same time are written together.
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

// Facts keeps what was learned about a relay.
func (m *Memory) Facts(u graspsync.RelayURL, f relaylimits.Facts) {
	m.put(factsPrefix+u.String(), func() ([]byte, bool) { return encode(f) })
}

// SetAside keeps the values, at most 1,000, that a relay chokes on.
func (m *Memory) SetAside(u graspsync.RelayURL, values []relaylimits.Aside) {
	values = values[:min(len(values), maxSetAside)]
	m.put(setAsidePrefix+u.String(), func() ([]byte, bool) {
		if len(values) == 0 {
			return nil, false
		}
		return encode(values)
	})
}

// Kept keeps what is confirmed of a relay. Everything that k says must be durable.
func (m *Memory) Kept(k Kept) {
	b := encodeKept(k)
	queued := m.put(keptPrefix+k.Relay.String(), func() ([]byte, bool) { return b, true })
	m.mu.Lock()
	defer m.mu.Unlock()
	if queued {
		m.kept[k.Relay] = identity(b)
	} else {
		delete(m.kept, k.Relay) // what is kept is of another time: no newer marks for it
	}
}

// NothingKept says that nothing is confirmed of a relay any more.
func (m *Memory) NothingKept(u graspsync.RelayURL) {
	m.mu.Lock()
	delete(m.kept, u)
	m.mu.Unlock()
	m.remove(keptPrefix + u.String())
}

// Marks keeps newer marks for what was last told with Kept. All of them are told
// together, those that are not, are what Kept said.
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

// Forget drops everything about a relay but its health: that is dropped when the
// record is gone.
func (m *Memory) Forget(u graspsync.RelayURL) {
	m.NothingKept(u)
	m.remove(factsPrefix + u.String())
	m.remove(setAsidePrefix + u.String())
}

// Exporter is something that is kept as chunks of bytes, which mean nothing to
// anybody else. A change of it should change few chunks: only these are written.
type Exporter interface {
	// Export returns the chunks, at most 10,000; one that is nil is not kept. They are
	// read until the next call.
	Export() [][]byte
	// Import takes over what was exported before a restart, or what is left of it: a
	// chunk that could not be read is nil. It must stand anything.
	Import(chunks [][]byte)
}

const maxChunks = 10_000

func chunkKey(name string, i int) string { return fmt.Sprintf("%s%s/%04d", chunksPrefix, name, i) }

// Chunks keeps what an Exporter exports, under a name without a slash.
func (m *Memory) Chunks(name string, chunks [][]byte) {
	for _, c := range m.exported(name, chunks) {
		m.put(c.Key, c.Value)
	}
}

// SaveChunks is Chunks, and returns when they are durable; the error says that one may
// not be.
func (m *Memory) SaveChunks(ctx context.Context, name string, chunks [][]byte) error {
	return m.buffer.Save(ctx, m.exported(name, chunks)...)
}

// exported is what must be written so that there are these chunks, and no others.
func (m *Memory) exported(name string, chunks [][]byte) []writebehind.Change {
	if m.store == nil {
		return nil
	}
	if n := len(chunks) - maxChunks; n > 0 {
		m.cfg.Dropped("memory_chunks", n)
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

// put queues a change that nobody waits for. It reports whether there was room.
func (m *Memory) put(key string, value writebehind.Value) bool {
	return m.store != nil && m.buffer.Put(key, value)
}
