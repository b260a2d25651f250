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
	"net/http"
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
	layout      *layout
	cfg         RepositoriesConfig
	clientBytes *limit.Slots // bytes per client

	mu sync.Mutex
	// guarded by mu
	uploads        *limit.Table[*upload, struct{}] // owned by the client that pushed
	byEvent        map[stagedEvent][]*upload       // the same uploads, the oldest first
	refused, ended map[string]uint64               // by reason
}

type stagedEvent struct {
	repo graspsync.RepoRef
	id   graspsync.EventID
}

// upload is a staged push, also as JSON in its folder.
type upload struct {
	path   string // of the folder, below the root
	Repo   graspsync.RepoRef
	Client string
	Bytes  int64
	Since  time.Time
	Tips   map[graspsync.EventID]string // of its events; guarded by mu of Staging
	slot   *limit.Slot
}

// leastStaged is the minimum charge per event, in bytes. It limits the number of uploads.
const leastStaged = 64 << 10

// maxPerEvent is the maximum number of pushes for one event, which are all examined when it arrives.
const maxPerEvent = 8

// By the exhausted limit.
var stagingRefusals = map[string]*refusal{
	"all":    {status: http.StatusForbidden, text: "too much was pushed to this server for events that are not here: publish the event first"},
	"client": {status: http.StatusForbidden, text: "you have pushed too much for events that are not here: publish the event first"},
	"event":  {status: http.StatusForbidden, text: "too many have pushed for this event: publish the event first"},
}

const stagedDir = "staged"

// noteName is the file with the JSON of an upload. Git uses no such name.
const noteName = "upload.json"

const (
	endedEvent      = "event"      // the event was stored
	endedExpired    = "expired"    // the event did not arrive in time
	endedReplaced   = "replaced"   // the same client pushed again
	endedDisplaced  = "displaced"  // evicted for another client, or after a restart with lower limits
	endedRepository = "repository" // the repository was removed
	endedUnreadable = "unreadable"
)

// openStaging reads the uploads of earlier processes. It removes those that are unreadable,
// expired, or over a limit.
func openStaging(l *layout, cfg RepositoriesConfig, tasks *tasks) (*Staging, error) {
	s := &Staging{
		layout: l, cfg: cfg, clientBytes: limit.NewSlots(math.MaxInt64, cfg.fixed.MaxStagedPerClient), byEvent: make(map[stagedEvent][]*upload),
		uploads: limit.NewTable[*upload, struct{}](int(max(1, cfg.MaxStaged/leastStaged)), cfg.MaxStaged), refused: make(map[string]uint64),
		ended: map[string]uint64{endedEvent: 0, endedExpired: 0, endedReplaced: 0, endedDisplaced: 0, endedRepository: 0, endedUnreadable: 0},
	}
	if err := l.root.Mkdir(stagedDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	folders, err := fs.ReadDir(l.root.FS(), stagedDir)
	if err != nil {
		return nil, err
	}
	var uploads, gone []*upload
	for _, f := range folders {
		u := &upload{path: path.Join(stagedDir, f.Name())}
		if err := s.read(u); err != nil {
			s.ended[endedUnreadable]++
			gone = append(gone, u)
			continue
		}
		uploads = append(uploads, u)
	}
	slices.SortFunc(uploads, func(a, b *upload) int { return a.Since.Compare(b.Since) })
	s.mu.Lock()
	for _, u := range uploads {
		displaced, err := s.add(u)
		if gone = append(gone, displaced...); err != nil {
			s.ended[endedDisplaced]++
		}
	}
	s.mu.Unlock()
	s.discard(gone)
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

func (s *Staging) read(u *upload) error {
	data, err := s.layout.root.ReadFile(path.Join(u.path, noteName))
	if err == nil {
		err = json.Unmarshal(data, u)
	}
	if err == nil && len(u.Tips) == 0 {
		err = errors.New("an upload without events")
	}
	if now := time.Now(); u.Since.After(now) { // the clock may have been set back
		u.Since = now
	}
	if there, rerr := s.layout.isThere(s.layout.at(u.Repo)); err == nil && !there {
		err = cmp.Or(rerr, purgatory.ErrNoRepository)
	}
	return err
}

func (s *Staging) expire(now time.Time) {
	s.end(endedExpired, func(u *upload) bool { return now.Sub(u.Since) >= s.cfg.StageHold })
}

// discard removes folders. If that fails, a restart may stage them again until they expire.
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
	for _, u := range s.byEvent[stagedEvent{ref, id}] {
		if tip, err := nip34.ParseObjectID(u.Tips[id]); err == nil {
			out = append(out, purgatory.Upload{
				Tip: tip, Dir: filepath.Join(s.layout.dir, filepath.FromSlash(u.path)), Bytes: u.Bytes,
				Discard: func() {
					s.mu.Lock()
					gone := s.remove(endedEvent, u, id)
					s.mu.Unlock()
					s.discard(gone)
				},
			})
		}
	}
	return out
}

func (s *Staging) leave(at string) {
	s.end(endedRepository, func(u *upload) bool { return s.layout.at(u.Repo) == at })
}

func (s *Staging) end(why string, which func(*upload) bool) {
	var gone []*upload
	s.mu.Lock()
	for u := range s.uploads.All() {
		if which(u) {
			gone = append(gone, u)
		}
	}
	for _, u := range gone {
		s.removeAll(why, u)
	}
	s.mu.Unlock()
	s.discard(gone)
}

// remove, removeAll and add: the caller holds mu, and must discard the returned uploads.

// remove removes an event from an upload, and the upload with its last event.
func (s *Staging) remove(why string, u *upload, id graspsync.EventID) (gone []*upload) {
	if _, ok := u.Tips[id]; !ok {
		return nil
	}
	delete(u.Tips, id)
	of := stagedEvent{u.Repo, id}
	if s.byEvent[of] = slices.DeleteFunc(s.byEvent[of], func(o *upload) bool { return o == u }); len(s.byEvent[of]) == 0 {
		delete(s.byEvent, of)
	}
	if len(u.Tips) > 0 {
		return nil
	}
	s.uploads.Delete(u)
	u.slot.Release()
	s.ended[why]++
	return []*upload{u}
}

func (s *Staging) removeAll(why string, u *upload) (gone []*upload) {
	for id := range u.Tips {
		gone = s.remove(why, u, id)
	}
	return gone
}

// add adds an upload. It removes the uploads that it displaces, and those of the same client for the
// same events. A refused upload is in gone.
func (s *Staging) add(u *upload) (gone []*upload, err error) {
	u.Bytes = max(u.Bytes, leastStaged*int64(len(u.Tips)))
	refuse := func(why string) ([]*upload, error) {
		s.refused[why]++
		return append(gone, u), stagingRefusals[why]
	}
	isSame := func(o *upload) bool { return u.Client != "" && o.Client == u.Client }
	for id := range u.Tips {
		if others := s.byEvent[stagedEvent{u.Repo, id}]; len(others) >= maxPerEvent && !slices.ContainsFunc(others, isSame) {
			return refuse("event")
		}
	}
	if u.slot = s.clientBytes.TryAcquire(clientNamed(u.Client), u.Bytes); u.slot == nil {
		return refuse("client")
	}
	displaced, ok := s.uploads.Put(u, clientNamed(u.Client), u.Bytes, struct{}{})
	for _, e := range displaced {
		gone = append(gone, s.removeAll(endedDisplaced, e.Key)...)
	}
	if !ok {
		u.slot.Release()
		return refuse("all")
	}
	for id := range u.Tips {
		of := stagedEvent{u.Repo, id}
		if i := slices.IndexFunc(s.byEvent[of], isSame); i >= 0 {
			gone = append(gone, s.remove(endedReplaced, s.byEvent[of][i], id)...)
		}
		s.byEvent[of] = append(s.byEvent[of], u)
	}
	return gone, nil
}

// keep stages the folder of a push, durably because the client is told so. The error is a refusal
// if a limit is exhausted.
func (s *Staging) keep(folder string, u *upload) error {
	l := s.layout
	u.path, u.Since = path.Join(stagedDir, rand.Text()), time.Now()
	text, err := json.Marshal(u)
	if err == nil {
		err = errors.Join(l.write(path.Join(folder, noteName), string(text)), l.sync(path.Join(folder, "pack")), l.sync(folder))
	}
	if err == nil {
		err = l.root.Rename(folder, u.path)
	}
	if err == nil {
		err = l.sync(stagedDir)
	}
	if err != nil {
		return fmt.Errorf("staging an upload: %w", errors.Join(err, l.root.RemoveAll(u.path)))
	}
	s.mu.Lock()
	gone, err := s.add(u)
	s.mu.Unlock()
	s.discard(gone)
	return err
}

// Collector returns the metrics, whose names begin with the namespace and "_staging".
func (s *Staging) Collector(namespace string) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "staging", name), help, labels, nil)
	}
	bytes := desc("bytes", "Bytes of pushes whose events are not stored.")
	uploads := desc("uploads", "Number of pushes whose events are not stored.")
	refused := desc("refused_total", "Total pushes without stored events that were refused, by the exhausted limit.", "reason")
	ended := desc("ended_total", "Total pushes without stored events that ended, by reason.", "reason")
	return &collector{[]*prometheus.Desc{bytes, uploads, refused, ended}, func(m metrics) {
		s.mu.Lock()
		sum, n, byRefusal, byEnd := s.uploads.Bytes(), s.uploads.Len(), maps.Clone(s.refused), maps.Clone(s.ended)
		s.mu.Unlock()
		m.gauge(bytes, float64(sum))
		m.gauge(uploads, float64(n))
		for reason := range stagingRefusals {
			m.counter(refused, float64(byRefusal[reason]), reason)
		}
		for reason, n := range byEnd {
			m.counter(ended, float64(n), reason)
		}
	}}
}
