package memory

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/writebehind"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

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

// Load reads the stored state. It is called once, before all other methods. Unreadable values are
// counted as dropped and removed, and expired values are removed. With an error, Load returns the
// values read before it.
func (m *Memory) Load(ctx context.Context) (Loaded, error) {
	l := loading{
		m: m, now: time.Now(), marks: make(map[graspsync.RelayURL]mark), ids: make(map[graspsync.RelayURL]uint64),
		out: Loaded{
			Health:  make(map[graspsync.RelayURL]health.Record),
			Hosts:   make(map[string]health.Record),
			Learned: make(map[graspsync.RelayURL]relaylimits.Learned),
			Chunks:  make(map[string][][]byte),
		},
	}
	var err error
	if m.store != nil {
		err = l.all(ctx)
	}
	l.finish()
	return l.out, err
}

type loading struct {
	m     *Memory
	now   time.Time
	out   Loaded
	marks map[graspsync.RelayURL]mark
	ids   map[graspsync.RelayURL]uint64
}

func (l *loading) all(ctx context.Context) error {
	return l.m.buffer.Load(ctx, prefix, func(key string, value []byte) (there bool, err error) {
		keep, err := l.one(key, value)
		if err != nil {
			l.m.cfg.Dropped("unreadable", 1)
			l.m.cfg.Logger.Warn("stored value dropped", "key", key, "error", err)
		}
		if err != nil || !keep {
			l.m.remove(key)
		}
		return true, nil
	})
}

// one handles one value. keep is false if the value is obsolete.
func (l *loading) one(key string, value []byte) (keep bool, err error) {
	if len(value) > l.m.cfg.MaxValue {
		return false, writebehind.ErrTooLong
	}
	switch key {
	case marksKey:
		l.marks, err = decodeMarks(value)
		return true, err
	case saltKey:
		if len(value) != SaltSize {
			return false, errLength
		}
		l.out.Salt = value
		return true, nil
	}
	for p, take := range map[string]func(graspsync.RelayURL, []byte) (bool, error){
		healthPrefix: l.health, learnedPrefix: l.learned, keptPrefix: l.kept,
	} {
		if name, ok := strings.CutPrefix(key, p); ok {
			u, err := parseURL(name)
			if err != nil {
				return false, err
			}
			return take(u, value)
		}
	}
	if host, ok := strings.CutPrefix(key, hostPrefix); ok {
		return l.host(host, value)
	}
	if name, ok := strings.CutPrefix(key, chunksPrefix); ok {
		return true, l.chunk(name, value)
	}
	return true, nil // written by a later version
}

func (l *loading) health(u graspsync.RelayURL, value []byte) (bool, error) {
	r, keep, err := l.record(value)
	if keep {
		l.out.Health[u] = r
	}
	return keep, err
}

func (l *loading) host(host string, value []byte) (bool, error) {
	if host == "" || len(host) > maxHost {
		return false, errLength
	}
	r, keep, err := l.record(value)
	if keep {
		l.out.Hosts[host] = r
	}
	return keep, err
}

func (l *loading) record(value []byte) (r health.Record, keep bool, err error) {
	r, err = decodeHealth(value)
	return r, err == nil && l.now.Sub(r.LastAttempt) <= keepFor, err
}

func (l *loading) learned(u graspsync.RelayURL, value []byte) (bool, error) {
	learned, err := decodeLearned(value, l.now)
	if err != nil || learned.Empty(l.now) {
		return false, err
	}
	l.out.Learned[u] = learned
	return true, nil
}

func (l *loading) kept(u graspsync.RelayURL, value []byte) (bool, error) {
	k, err := decodeKept(value)
	if err != nil {
		return false, err
	}
	k.Relay = u
	l.out.Kept = append(l.out.Kept, k)
	l.ids[u] = identity(value)
	return true, nil
}

func (l *loading) chunk(name string, value []byte) error {
	name, number, _ := strings.Cut(name, "/")
	i, err := strconv.ParseUint(number, 10, 16)
	if err != nil || name == "" || len(number) != 4 { // four digits are less than maxChunks
		return errLength
	}
	chunks := l.out.Chunks[name]
	for len(chunks) <= int(i) {
		chunks = append(chunks, nil)
	}
	chunks[i] = value
	l.out.Chunks[name] = chunks
	l.m.chunks[name] = len(chunks)
	return nil
}

// finish combines marks with their Kept and checks them. Hashes without their salt are useless, so
// then every Kept is removed.
func (l *loading) finish() {
	kept := l.out.Kept[:0]
	for _, k := range l.out.Kept {
		if newer := l.marks[k.Relay]; newer.of == l.ids[k.Relay] && newer.at.After(k.Mark) {
			k.Mark = newer.at
		}
		if l.out.Salt == nil || !plausible(&k, l.now) || l.now.Sub(k.Mark) > keepFor {
			l.m.remove(keptPrefix + k.Relay.String())
			continue
		}
		kept = append(kept, k)
		l.m.kept[k.Relay] = l.ids[k.Relay]
	}
	l.out.Kept = kept
	if l.out.Salt == nil {
		salt := make([]byte, SaltSize)
		_, _ = rand.Read(salt) // never fails
		l.out.Salt = salt
		l.m.put(saltKey, func() ([]byte, bool) { return salt, true })
	}
}
