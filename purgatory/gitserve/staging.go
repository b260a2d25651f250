package gitserve

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// Staging stores pushes for events that are not stored. Each push has a folder beside the
// repositories, so clients cannot fetch its objects. All methods may be called concurrently.
type Staging struct {
	layout *layout
	cfg    RepositoriesConfig
	parts  *limit.Slots // bytes per client

	mu sync.Mutex
	// guarded by mu
	uploads *uploadTable                      // owned by the client that pushes
	owners  map[graspsync.PubKey]*uploadTable // the same uploads, by repository owner
	events  map[stagedFor][]*upload
	refused map[*refusal]uint64
	ended   map[string]uint64
}

type uploadTable = limit.Table[*upload, struct{}]

func newUploadTable(bytes int64) *uploadTable {
	return limit.NewTable[*upload, struct{}](int(max(1, bytes/leastStaged)), bytes)
}

type upload struct {
	s    *Staging
	path string // of the folder, below the root
	ref  graspsync.RepoRef
	who  limit.Stranger

	// guarded by mu of Staging
	tips    map[graspsync.EventID]nip34.ObjectID // of its events; empty: not staged
	bytes   int64
	slot    *limit.Slot
	since   time.Time
	kept    bool // complete
	evicted bool
}

type stagedFor struct {
	ref graspsync.RepoRef
	id  graspsync.EventID
}

// leastStaged is the minimum charge per event, in bytes, so that byte limits also limit the number
// of uploads.
const leastStaged = 64 << 10

// maxPerEvent is the maximum number of pushes for one event, because all are examined when it
// arrives.
const maxPerEvent = 8

var (
	errStagedAll    = full("too much was pushed to this server for events that are not here: publish the event first")
	errStagedOwner  = full("too much was pushed to this owner's repositories for events that are not here: publish the event first")
	errStagedClient = full("you have pushed too much for events that are not here: publish the event first")
	errStagedEvent  = full("too many have pushed for this event: publish the event first")
)

var stagedLimits = map[*refusal]string{errStagedAll: "all", errStagedOwner: "owner", errStagedClient: "client", errStagedEvent: "event"}

const area = "staged"

// noteName is the file that describes an upload. Git uses no such name.
const noteName = "upload.json"

const (
	endedEvent      = "event"      // the event was stored
	endedExpired    = "expired"    // the event did not arrive in time
	endedReplaced   = "replaced"   // the same client pushed again
	endedDisplaced  = "displaced"  // evicted for another client, or after a restart with lower limits
	endedRepository = "repository" // the repository was removed
	endedUnreadable = "unreadable"
)

type note struct {
	Repo   string            `json:"repo"`
	Client string            `json:"client"`
	Tips   map[string]string `json:"tips"` // by event id
	Bytes  int64             `json:"bytes"`
	Since  time.Time         `json:"since"`
}

// openStaging reads the uploads of earlier processes. It removes those that are unreadable,
// expired, or over a limit.
func openStaging(l *layout, cfg RepositoriesConfig, tasks *tasks) (*Staging, error) {
	s := &Staging{
		layout: l, cfg: cfg, parts: limit.NewSlots(math.MaxInt64, cfg.fixed.MaxStagedPerClient), uploads: newUploadTable(cfg.MaxStaged),
		owners: make(map[graspsync.PubKey]*uploadTable), events: make(map[stagedFor][]*upload), refused: make(map[*refusal]uint64),
		ended: map[string]uint64{endedEvent: 0, endedExpired: 0, endedReplaced: 0, endedDisplaced: 0, endedRepository: 0, endedUnreadable: 0},
	}
	if err := l.root.Mkdir(area, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	folders, err := fs.ReadDir(l.root.FS(), area)
	if err != nil {
		return nil, err
	}
	var uploads, gone []*upload
	for _, f := range folders {
		u, err := s.read(path.Join(area, f.Name()))
		var failed *fs.PathError
		switch {
		case err == nil:
			uploads = append(uploads, u)
		case errors.As(err, &failed) && !errors.Is(err, fs.ErrNotExist):
			return nil, err
		default:
			s.ended[endedUnreadable]++
			gone = append(gone, u)
		}
	}
	slices.SortFunc(uploads, func(a, b *upload) int { return a.since.Compare(b.since) })
	s.mu.Lock()
	for _, u := range uploads {
		displaced, err := s.charge(u, u.bytes)
		if gone = append(gone, displaced...); err != nil {
			s.ended[endedDisplaced]++
			gone = append(gone, u)
		}
	}
	s.mu.Unlock()
	for _, u := range gone {
		if err := l.away(u.path); err != nil {
			return nil, err
		}
	}
	s.expire(time.Now())
	tasks.beside(func(ctx context.Context) {
		tick := time.NewTicker(max(cfg.StageHold/20, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				s.expire(now)
			case <-ctx.Done():
				return
			}
		}
	})
	return s, nil
}

// read reads the note of an upload. Its repository must exist.
func (s *Staging) read(folder string) (u *upload, err error) {
	u = &upload{s: s, path: folder, kept: true, tips: make(map[graspsync.EventID]nip34.ObjectID)}
	data, err := s.layout.root.ReadFile(path.Join(folder, noteName))
	if err != nil {
		return u, err
	}
	var n note
	if err := json.Unmarshal(data, &n); err != nil {
		return u, err
	}
	now := time.Now()
	u.bytes, u.since = n.Bytes, now.Add(min(0, n.Since.Sub(now))) // the clock may have been set back
	u.who = clientNamed(n.Client)
	if u.ref, err = graspsync.ParseRepoRef(n.Repo); err != nil {
		return u, err
	}
	if there, err := s.layout.isThere(s.layout.at(u.ref)); err != nil || !there {
		return u, cmp.Or(err, purgatory.ErrNoRepository)
	}
	for event, tip := range n.Tips {
		id, err := graspsync.ParseEventID(event)
		if err != nil {
			return u, err
		}
		if u.tips[id], err = nip34.ParseObjectID(tip); err != nil {
			return u, err
		}
	}
	return u, nil
}

func (s *Staging) expire(now time.Time) {
	s.end(endedExpired, func(u *upload) bool { return now.Sub(u.since) >= s.cfg.StageHold })
}

// discard removes folders. After a failure the next Open removes them.
func (s *Staging) discard(uploads []*upload) {
	for _, u := range uploads {
		if err := s.layout.away(u.path); err != nil {
			s.cfg.Logger.Warn("removing staged data failed", "error", err)
		}
	}
}

func (s *Staging) of(ref graspsync.RepoRef, id graspsync.EventID) (out []purgatory.Upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.events[stagedFor{ref, id}] {
		if u.kept {
			out = append(out, purgatory.Upload{
				Tip: u.tips[id], Dir: filepath.Join(s.layout.dir, filepath.FromSlash(u.path)), Bytes: u.bytes,
				Discard: func() {
					s.mu.Lock()
					gone := s.strike(endedEvent, u, id)
					s.mu.Unlock()
					s.discard(gone)
				},
			})
		}
	}
	return out
}

func (s *Staging) leave(at string) {
	s.end(endedRepository, func(u *upload) bool { return s.layout.at(u.ref) == at })
}

func (s *Staging) end(why string, which func(*upload) bool) {
	var gone []*upload
	s.mu.Lock()
	for u := range s.uploads.All() {
		if u.kept && which(u) {
			gone = append(gone, u)
		}
	}
	for _, u := range gone {
		s.remove(u)
	}
	s.ended[why] += uint64(len(gone))
	s.mu.Unlock()
	s.discard(gone)
}

// The caller of the methods below holds mu. It must discard the returned uploads.

// strike removes an event from an upload, and the upload with its last event.
func (s *Staging) strike(why string, u *upload, id graspsync.EventID) (gone []*upload) {
	if _, ok := u.tips[id]; !ok {
		return nil
	}
	if s.unlist(u, id); len(u.tips) > 0 {
		return nil
	}
	s.remove(u)
	s.ended[why]++
	return []*upload{u}
}

func (s *Staging) unlist(u *upload, id graspsync.EventID) {
	delete(u.tips, id)
	event := stagedFor{u.ref, id}
	if s.events[event] = slices.DeleteFunc(s.events[event], func(o *upload) bool { return o == u }); len(s.events[event]) == 0 {
		delete(s.events, event)
	}
}

// remove removes an upload from all tables. It may be called again.
func (s *Staging) remove(u *upload) {
	s.uploads.Delete(u)
	if of := s.owners[u.ref.Owner]; of != nil {
		if of.Delete(u); of.Len() == 0 {
			delete(s.owners, u.ref.Owner)
		}
	}
	for id := range u.tips {
		s.unlist(u, id)
	}
	if u.slot != nil {
		u.slot.Release()
	}
}

// charge sets the size of an upload. A refusal removes it.
func (s *Staging) charge(u *upload, bytes int64) (gone []*upload, err *refusal) {
	if u.slot == nil {
		err = s.list(u)
	} else {
		u.slot.Release()
	}
	u.bytes = max(bytes, leastStaged*int64(len(u.tips)))
	u.slot = s.parts.TryAcquire(u.who, u.bytes)
	switch {
	case err != nil:
	case u.evicted:
		err = errStagedAll
	case u.slot == nil:
		err = errStagedClient
	default:
		of := s.owners[u.ref.Owner]
		if of == nil {
			of = newUploadTable(s.cfg.fixed.MaxStagedPerOwner)
			s.owners[u.ref.Owner] = of
		}
		evicted, ok := of.Put(u, u.who, u.bytes, struct{}{})
		if !ok {
			err = errStagedOwner
		} else if more, ok := s.uploads.Put(u, u.who, u.bytes, struct{}{}); !ok {
			err = errStagedAll
		} else {
			evicted = append(evicted, more...)
		}
		for _, e := range evicted {
			s.remove(e.Key)
			if e.Key.evicted = true; e.Key.kept {
				s.ended[endedDisplaced]++
				gone = append(gone, e.Key)
			}
		}
	}
	if err != nil {
		s.refused[err]++
		s.remove(u)
		u.evicted = true
	}
	return gone, err
}

func (s *Staging) list(u *upload) *refusal {
	for id := range u.tips {
		event := stagedFor{u.ref, id}
		if others := s.events[event]; len(others) >= maxPerEvent && !slices.ContainsFunc(others, u.sameClient) {
			return errStagedEvent
		}
		s.events[event] = append(s.events[event], u)
	}
	return nil
}

func (u *upload) sameClient(o *upload) bool { return o != u && o.who.ID != "" && o.who == u.who }

// begin creates a folder for a push, staged if tips is not empty. The caller must call end.
func (s *Staging) begin(ref graspsync.RepoRef, who limit.Stranger, tips map[graspsync.EventID]nip34.ObjectID) (*upload, error) {
	u := &upload{s: s, path: s.layout.fresh(), ref: ref, who: who, tips: tips}
	if err := u.charge(0); err != nil {
		return nil, err
	}
	for _, d := range []string{"", "pack"} {
		if err := s.layout.root.Mkdir(path.Join(u.path, d), 0o700); err != nil {
			return nil, errors.Join(fmt.Errorf("creating a staging folder: %w", err), u.end())
		}
	}
	return u, nil
}

func (u *upload) staged() bool {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	return len(u.tips) > 0
}

func (u *upload) charge(bytes int64) error {
	u.s.mu.Lock()
	if len(u.tips) == 0 && !u.evicted {
		u.s.mu.Unlock()
		return nil
	}
	gone, err := u.s.charge(u, bytes)
	u.s.mu.Unlock()
	u.s.discard(gone)
	if err != nil {
		return err
	}
	return nil
}

func (s *Staging) part(who limit.Stranger) int64 {
	most := min(s.cfg.fixed.MaxStagedPerOwner, s.cfg.MaxStaged)
	if who.ID != "" {
		most = min(most, s.cfg.fixed.MaxStagedPerClient)
	}
	return most
}

// keep stages an upload for the events of tips, durably because the client is told so. It replaces
// uploads of the same client for the same events.
func (u *upload) keep(tips map[graspsync.EventID]nip34.ObjectID) error {
	s, l, since := u.s, u.s.layout, time.Now()
	n := note{Repo: u.ref.String(), Client: u.who.ID, Tips: make(map[string]string), Since: since}
	s.mu.Lock()
	n.Bytes = u.bytes
	s.mu.Unlock()
	for id, tip := range tips {
		n.Tips[id.String()] = tip.String()
	}
	text, err := json.Marshal(n)
	if err == nil {
		err = errors.Join(l.write(path.Join(u.path, noteName), string(text)), l.sync(path.Join(u.path, "pack")), l.sync(u.path))
	}
	to := path.Join(area, rand.Text())
	if err == nil {
		err = l.root.Rename(u.path, to)
	}
	if err == nil {
		u.path = to // end removes this folder if the sync fails
		err = l.sync(area)
	}
	if err != nil {
		return fmt.Errorf("staging an upload: %w", err)
	}
	var gone []*upload
	s.mu.Lock()
	defer func() {
		s.mu.Unlock()
		s.discard(gone)
	}()
	if u.evicted {
		s.refused[errStagedAll]++
		return errStagedAll
	}
	u.kept, u.since = true, since
	s.uploads.Touch(u) // moves it to the end of the eviction order
	s.owners[u.ref.Owner].Touch(u)
	for id := range u.tips {
		if _, here := tips[id]; !here { // its command was refused
			s.unlist(u, id)
			continue
		}
		for _, o := range slices.Clone(s.events[stagedFor{u.ref, id}]) {
			if o.kept && u.sameClient(o) {
				gone = append(gone, s.strike(endedReplaced, o, id)...)
			}
		}
	}
	return nil
}

func (u *upload) release() {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	u.s.remove(u)
	u.evicted = false
}

func (u *upload) end() error {
	u.s.mu.Lock()
	kept := u.kept
	u.s.mu.Unlock()
	if kept {
		return nil
	}
	u.release()
	return u.s.layout.root.RemoveAll(u.path)
}

// Collector returns the metrics, whose names begin with the namespace and "_staging".
func (s *Staging) Collector(namespace string) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "staging", name), help, labels, nil)
	}
	bytes := desc("bytes", "Bytes of pushes whose events are not stored, including pushes in progress.")
	uploads := desc("uploads", "Number of pushes whose events are not stored.")
	refused := desc("refused_total", "Total pushes without stored events that were refused, by the exhausted limit.", "reason")
	ended := desc("ended_total", "Total pushes without stored events that ended, by reason.", "reason")
	return &collector{[]*prometheus.Desc{bytes, uploads, refused, ended}, func(m metrics) {
		s.mu.Lock()
		sum, n := s.uploads.Bytes(), 0
		for u := range s.uploads.All() {
			if u.kept {
				n++
			}
		}
		byRefusal, byEnd := maps.Clone(s.refused), maps.Clone(s.ended)
		s.mu.Unlock()
		m.gauge(bytes, float64(sum))
		m.gauge(uploads, float64(n))
		for why, reason := range stagedLimits {
			m.counter(refused, float64(byRefusal[why]), reason)
		}
		for reason, n := range byEnd {
			m.counter(ended, float64(n), reason)
		}
	}}
}
