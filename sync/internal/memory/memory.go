// Package memory stores the state of package sync that survives a restart: the health of relays and
// hosts, learned limits, progress, and chunks of other data. Writes happen in the background,
// except for health before a dial.
package memory

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/internal/writebehind"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// Keys of the store. Keys of chunks end with a number of four digits. Values are JSON, except the
// salt and chunks.
const (
	prefix        = "sync/"
	healthPrefix  = prefix + "health/"
	hostPrefix    = prefix + "host/"
	learnedPrefix = prefix + "learned/"
	keptPrefix    = prefix + "kept/"
	chunksPrefix  = prefix + "chunks/"
	saltKey       = prefix + "salt"
)

// SaltSize is the length of the salt in bytes.
const SaltSize = 16

const (
	keepFor    = 30 * 24 * time.Hour // lifetime of a relay's records after its last attempt
	clockSlack = time.Minute         // tolerated step back of the clock
	maxChunks  = 10_000
)

var errInvalid = errors.New("invalid value")

// Kept contains the items that a plan has confirmed on a relay, and the time up to which they are
// complete.
type Kept = plan.Kept

// keptRecord is a stored Kept. Items have 8 bytes each.
type keptRecord struct {
	Mark, PassAt time.Time
	Items        []byte
}

func encode(v any) ([]byte, bool) {
	b, err := json.Marshal(v)
	return b, err == nil
}

// Memory writes state to a store. It is safe for concurrent use, and methods that return no error
// never block.
type Memory struct {
	// set by New, read-only
	store  state.Store // nil: nothing is stored
	cfg    writebehind.Config
	buffer *writebehind.Buffer

	mu     sync.Mutex
	chunks map[string]int // number of chunks by name; guarded by mu
}

// New returns a Memory over store, which may be nil.
func New(store state.Store, cfg writebehind.Config) *Memory {
	return &Memory{store: store, cfg: cfg, buffer: writebehind.New(store, cfg), chunks: make(map[string]int)}
}

// Loaded is the stored state.
type Loaded struct {
	Health  map[graspsync.RelayURL]health.Record
	Hosts   map[string]health.Record
	Learned map[graspsync.RelayURL]relaylimits.Learned
	Kept    []Kept
	Chunks  map[string][][]byte // by name
	// Salt is part of the hashes in Kept. Load creates it if none is stored.
	Salt []byte
}

// Load reads the stored state, once, before all other calls. Unreadable values are counted as
// dropped and removed, and expired values are removed. After an error it returns the values read so
// far.
func (m *Memory) Load(ctx context.Context) (l Loaded, err error) {
	l = Loaded{
		Health:  make(map[graspsync.RelayURL]health.Record),
		Hosts:   make(map[string]health.Record),
		Learned: make(map[graspsync.RelayURL]relaylimits.Learned),
		Chunks:  make(map[string][][]byte),
	}
	now := time.Now()
	if m.store != nil {
		err = m.buffer.Load(ctx, prefix, func(key string, value []byte) {
			keep, err := false, writebehind.ErrTooLong
			if len(value) <= m.cfg.MaxValue {
				keep, err = m.load(&l, key, value, now)
			}
			if err != nil {
				m.cfg.Dropped("unreadable", 1)
				m.cfg.Logger.Warn("stored value dropped", "key", key, "error", err)
			}
			if err != nil || !keep {
				m.remove(key)
			}
		})
	}
	if l.Salt == nil { // then every Kept is useless
		l.Salt = make([]byte, SaltSize)
		_, _ = rand.Read(l.Salt) // never fails
		m.put(saltKey, func() ([]byte, bool) { return l.Salt, true })
		for _, k := range l.Kept {
			m.NothingKept(k.Relay)
		}
		l.Kept = nil
	}
	return l, err
}

// load reads one value. keep is false if the value is obsolete.
func (m *Memory) load(l *Loaded, key string, value []byte, now time.Time) (keep bool, err error) {
	kind, name, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
	switch kind + "/" {
	case "salt/":
		if l.Salt = value; len(value) != SaltSize {
			l.Salt, err = nil, errInvalid
		}
		return true, err
	case "chunks/":
		return true, m.loadChunk(l, name, value)
	case "host/":
		var r health.Record
		err = json.Unmarshal(value, &r)
		if keep = err == nil && now.Sub(r.LastAttempt) <= keepFor; keep {
			l.Hosts[name] = r
		}
		return keep, err
	}
	u, err := graspsync.ParseRelayURL(name)
	if err != nil {
		return false, fmt.Errorf("relay URL: %w", err)
	}
	switch kind + "/" {
	case "health/":
		var r health.Record
		err = json.Unmarshal(value, &r)
		if keep = err == nil && now.Sub(r.LastAttempt) <= keepFor; keep {
			l.Health[u] = r
		}
	case "learned/":
		var r relaylimits.Learned
		err = json.Unmarshal(value, &r)
		r.Clamp(now)
		if keep = err == nil && !r.Empty(now); keep {
			l.Learned[u] = r
		}
	case "kept/":
		return m.loadKept(l, u, value, now)
	}
	return keep, err
}

// loadKept reads a Kept. A mark in the far future came from a wrong clock and proves nothing.
func (m *Memory) loadKept(l *Loaded, u graspsync.RelayURL, value []byte, now time.Time) (keep bool, err error) {
	var r keptRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return false, err
	}
	k := Kept{Relay: u, Mark: r.Mark, PassAt: r.PassAt}
	for b := range slices.Chunk(r.Items, 8) {
		if len(b) < 8 {
			return false, errInvalid
		}
		k.Items = append(k.Items, binary.BigEndian.Uint64(b))
	}
	if !slices.IsSorted(k.Items) {
		return false, errInvalid
	}
	if len(k.Items) == 0 || k.Mark.After(now.Add(clockSlack)) || now.Sub(k.Mark) > keepFor {
		return false, nil
	}
	k.Mark, k.PassAt = backoff.Earlier(k.Mark, now), backoff.Earlier(k.PassAt, now)
	l.Kept = append(l.Kept, k)
	return true, nil
}

func (m *Memory) loadChunk(l *Loaded, name string, value []byte) error {
	name, number, _ := strings.Cut(name, "/")
	i, err := strconv.ParseUint(number, 10, 16)
	if err != nil || name == "" || len(number) != 4 { // four digits are less than maxChunks
		return errInvalid
	}
	chunks := l.Chunks[name]
	for len(chunks) <= int(i) {
		chunks = append(chunks, nil)
	}
	chunks[i] = value
	l.Chunks[name], m.chunks[name] = chunks, len(chunks)
	return nil
}

// Run writes changes until ctx ends. Changes queued at that time are lost, so call Flush before.
func (m *Memory) Run(ctx context.Context) { m.buffer.Run(ctx) }

// Flush blocks until all earlier changes are durable. The error lists failed writes.
func (m *Memory) Flush(ctx context.Context) error { return m.buffer.Flush(ctx) }

// Record is a health record that is read at the time of writing.
type Record = writebehind.Change

// OfRelay returns the record of a relay. read returns false if the record no longer exists.
func OfRelay(u graspsync.RelayURL, read func(graspsync.RelayURL) (health.Record, bool)) Record {
	return recordOf(healthPrefix+u.String(), u, read)
}

// OfHost returns the record of a host, like OfRelay.
func OfHost(host string, read func(string) (health.Record, bool)) Record {
	return recordOf(hostPrefix+host, host, read)
}

func recordOf[K any](key string, of K, read func(K) (health.Record, bool)) Record {
	return Record{Key: key, Value: func() ([]byte, bool) {
		if r, ok := read(of); ok {
			return encode(r)
		}
		return nil, false
	}}
}

// Health queues changed records.
func (m *Memory) Health(records ...Record) {
	for _, r := range records {
		m.put(r.Key, r.Value)
	}
}

// SaveHealth blocks until the records are durable. Concurrent calls are written together. After an
// error some records may be lost.
func (m *Memory) SaveHealth(ctx context.Context, records ...Record) error {
	if m.store == nil {
		return nil
	}
	return m.buffer.Save(ctx, records...)
}

// Learned queues the learned limits of a relay.
func (m *Memory) Learned(u graspsync.RelayURL, l relaylimits.Learned) {
	m.put(learnedPrefix+u.String(), func() ([]byte, bool) { return encode(l) })
}

// Kept queues the confirmed items of a relay. The events of these items must be durable.
func (m *Memory) Kept(k Kept) {
	r := keptRecord{Mark: k.Mark, PassAt: k.PassAt, Items: make([]byte, 0, 8*len(k.Items))}
	for _, it := range k.Items {
		r.Items = binary.BigEndian.AppendUint64(r.Items, it)
	}
	m.put(keptPrefix+k.Relay.String(), func() ([]byte, bool) { return encode(r) })
}

// NothingKept removes the confirmed items of a relay.
func (m *Memory) NothingKept(u graspsync.RelayURL) { m.remove(keptPrefix + u.String()) }

// Forget removes all values of a relay except its health, which is removed with its record.
func (m *Memory) Forget(u graspsync.RelayURL) {
	m.NothingKept(u)
	m.remove(learnedPrefix + u.String())
}

// SaveChunks queues at most 10,000 chunks under a name without a slash, and blocks until they are
// durable. A nil chunk is removed. Only changed chunks are written.
func (m *Memory) SaveChunks(ctx context.Context, name string, chunks [][]byte) error {
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
		changes[i] = writebehind.Change{
			Key: fmt.Sprintf("%s%s/%04d", chunksPrefix, name, i), Value: func() ([]byte, bool) { return c, c != nil },
		}
	}
	return m.buffer.Save(ctx, changes...)
}

func (m *Memory) remove(key string) { m.put(key, func() ([]byte, bool) { return nil, false }) }

func (m *Memory) put(key string, value writebehind.Value) {
	if m.store != nil {
		m.buffer.Put(key, value)
	}
}
