package purgatory

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// Observation is something that happened: [Began], [Ended], [Lapsed], [Fetched]
// or [Incomplete].
type Observation interface{ observation() }

// The observations.
type (
	// Began says that an event waits.
	Began struct {
		ID       graspsync.EventID
		Event    *nostr.Event // nil for a placeholder
		ByUser   bool
		Deadline time.Time
	}
	// Ended says that an event waits no longer.
	Ended struct {
		ID     graspsync.EventID
		Event  *nostr.Event // nil for a placeholder
		Fate   Fate
		Waited time.Duration
	}
	// Lapsed says that an announcement whose waiting has ended, since it had expired, can't be
	// revived any more either: those whom it lists are not listed by it from now on.
	Lapsed struct {
		ID    graspsync.EventID
		Event *nostr.Event
	}
	// Fetched says that a server was asked for git data.
	Fetched struct {
		Repo    graspsync.RepoRef
		URL     graspsync.URL
		Wanted  int   // objects
		Missing int   // of them, afterwards
		Bytes   int64 // that came
		Err     error // nil if the server answered as it should
	}
	// Incomplete says that an attempt has asked every server that can be asked now.
	Incomplete struct {
		Repo    graspsync.RepoRef
		Attempt int // in a row, from 1
		Next    time.Time
	}
)

func (Began) observation()      {}
func (Ended) observation()      {}
func (Lapsed) observation()     {}
func (Fetched) observation()    {}
func (Incomplete) observation() {}

// Fate is how the waiting of an event ended.
type Fate uint8

// The fates.
const (
	// Released: its data is here, and it is served.
	Released Fate = iota + 1
	// Expired: its time was over.
	Expired
	// Replaced: a newer version waits in its place.
	Replaced
	// Deleted: its author deleted it.
	Deleted
	// NotStored: its data is here, but the relay refused it, or had a newer version of it
	// or its deletion by then. It is called refused.
	NotStored
	// Displaced: it gave way to another event when there were no places left. It may come
	// again.
	Displaced
	// Unwanted: it was the announcement of somebody whom an announcement that waited has
	// listed, and none does any more. It may come again.
	Unwanted
)

// String returns the name of the fate in lower case.
func (f Fate) String() string {
	switch f {
	case Released:
		return "released"
	case Expired:
		return "expired"
	case Replaced:
		return "replaced"
	case Deleted:
		return "deleted"
	case NotStored:
		return "refused"
	case Displaced:
		return "displaced"
	case Unwanted:
		return "unwanted"
	}
	return fmt.Sprintf("fate(%d)", uint8(f))
}

// stats counts what happens.
type stats struct {
	held                            atomic.Uint64
	fates                           [Unwanted + 1]atomic.Uint64
	fetches, failed, objects, bytes atomic.Uint64
	unreadable                      atomic.Uint64
	queue                           atomic.Int64 // repositories hunted for

	mu sync.Mutex
	// guarded by mu
	dropped  map[string]uint64 // by reason
	panics   map[string]uint64 // that were contained, by whose code it was
	byDomain map[string]*domainStats
}

// drop counts what a bound kept out.
func (s *stats) drop(reason string) { s.dropSome(reason, 1) }

func (s *stats) dropSome(reason string, n int) {
	if n <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	increase(&s.dropped, reason, n)
}

func (s *stats) panicked(whose string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	increase(&s.panics, whose, 1)
}

func increase(m *map[string]uint64, key string, n int) {
	if *m == nil {
		*m = make(map[string]uint64)
	}
	(*m)[key] += uint64(n)
}

// The keys of what is logged.
const (
	keyEvent = "event"
	keyRepo  = "repo"
	keyURL   = "url"
	keyError = "error"
)

// fetched counts a request to a server.
func (s *stats) fetched(f Fetched) {
	s.fetches.Add(1)
	s.bytes.Add(uint64(f.Bytes))
	s.objects.Add(uint64(f.Wanted - f.Missing))
	if f.Err != nil {
		s.failed.Add(1)
	}
}

func (p *Purgatory) began(e ledger.Entry) {
	p.stats.held.Add(1)
	p.observe(Began{ID: e.ID, Event: e.Event, ByUser: e.ByUser, Deadline: e.Deadline})
}

func (p *Purgatory) ended(e ledger.Entry, why Fate) {
	p.stats.fates[why].Add(1)
	level := slog.LevelDebug
	if why == Released {
		level = slog.LevelInfo
	}
	p.cfg.Logger.Log(context.Background(), level, "event waits no longer", keyEvent, e.ID.String(),
		"class", e.Class.String(), "fate", why.String())
	p.observe(Ended{ID: e.ID, Event: e.Event, Fate: why, Waited: time.Since(e.Seen)})
}
