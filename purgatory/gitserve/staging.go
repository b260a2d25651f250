package gitserve

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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

// Staging is the storage of pushes for events that are not stored. Each push has a folder beside
// the repositories, so clients cannot fetch the objects, and they can be removed together. [Open]
// creates it. All methods may be called concurrently.
type Staging struct {
	layout *layout
	log    *slog.Logger
	limits stagingLimits
	parts  *limit.Slots // bytes per client

	mu sync.Mutex
	// guarded by mu
	uploads        *limit.Table[*upload, struct{}]                      // owned by the client that pushes
	owners         map[graspsync.PubKey]*limit.Table[*upload, struct{}] // the same uploads, by repository owner
	events         map[stagedFor][]*upload
	refused, ended map[string]uint64
}

// upload is a push with its own folder, complete or in progress.
type upload struct {
	s    *Staging
	path string // of the folder, below the root
	ref  graspsync.RepoRef
	who  limit.Stranger

	// guarded by mu of Staging
	ids     []graspsync.EventID // events of the push; empty: not staged
	tips    map[graspsync.EventID]nip34.ObjectID
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

// stagingLimits are the limits of staged data: time, and bytes per client, per repository owner,
// and in total.
type stagingLimits struct {
	hold                     time.Duration
	perClient, perOwner, all int64
}

// leastStaged is the minimum charge per event, in bytes. It covers the folder, files and memory, so
// that byte limits also limit the number of uploads.
const leastStaged = 64 << 10

// maxPerEvent is the maximum number of pushes for one event. All of them are examined when the
// event arrives.
const maxPerEvent = 8

// quotaError is a message to clients about a full staging area. Pushes for stored events do not use
// the staging area.
type quotaError string

func (e quotaError) Error() string { return string(e) }

const (
	errStagedAll    quotaError = "too much was pushed to this server for events that are not here: publish the event first"
	errStagedOwner  quotaError = "too much was pushed to this owner's repositories for events that are not here: publish the event first"
	errStagedClient quotaError = "you have pushed too much for events that are not here: publish the event first"
	errStagedEvent  quotaError = "too many have pushed for this event: publish the event first"
)

const area = "staged"

// noteName is the file that describes an upload in its folder. Git uses no such name in object
// directories.
const noteName = "upload.json"

// Reasons for the end of an upload.
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

// openStaging reads the uploads of earlier processes. It removes uploads that are unreadable,
// expired, or over a limit.
func openStaging(l *layout, limits stagingLimits, log *slog.Logger, tasks *tasks) (*Staging, error) {
	s := &Staging{
		layout: l, log: log, limits: limits, parts: limit.NewSlots(math.MaxInt64, limits.perClient), uploads: uploadTable(limits.all),
		owners: make(map[graspsync.PubKey]*limit.Table[*upload, struct{}]), events: make(map[stagedFor][]*upload),
		refused: map[string]uint64{"all": 0, "owner": 0, "client": 0, "event": 0},
		ended:   map[string]uint64{endedEvent: 0, endedExpired: 0, endedReplaced: 0, endedDisplaced: 0, endedRepository: 0, endedUnreadable: 0},
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
		if !time.Now().Before(u.since.Add(limits.hold)) {
			s.ended[endedExpired]++
			gone = append(gone, u)
			continue
		}
		displaced, err := s.charge(u, u.bytes)
		if err != nil {
			s.ended[endedDisplaced]++
			displaced = append(displaced, u)
		}
		gone = append(gone, displaced...)
	}
	s.mu.Unlock()
	for _, u := range gone {
		if err := l.away(u.path); err != nil {
			return nil, err
		}
	}
	tasks.beside(s.expire)
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
		u.ids = append(u.ids, id)
	}
	return u, nil
}

func (s *Staging) expire(ctx context.Context) {
	tick := time.NewTicker(max(s.limits.hold/20, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		s.end(endedExpired, func(u *upload) bool { return !now.Before(u.since.Add(s.limits.hold)) })
	}
}

// discard removes the folders of ended uploads. A folder that cannot be removed now is removed
// after a restart.
func (s *Staging) discard(uploads []*upload) {
	for _, u := range uploads {
		if err := s.layout.away(u.path); err != nil {
			s.log.Warn("removing staged data failed", "error", err)
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
				Discard: func() { s.strike(u, id) },
			})
		}
	}
	return out
}

// strike removes an upload for a stored event.
func (s *Staging) strike(u *upload, id graspsync.EventID) {
	s.mu.Lock()
	gone := s.unstage(endedEvent, stagedFor{u.ref, id}, func(o *upload) bool { return o == u })
	s.mu.Unlock()
	s.discard(gone)
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

// The caller of the methods below holds mu. They return ended uploads, whose folders the caller
// must remove.

// unstage removes an event from complete uploads, and ends uploads without other events.
func (s *Staging) unstage(why string, event stagedFor, which func(*upload) bool) (gone []*upload) {
	for _, u := range slices.Clone(s.events[event]) {
		if !u.kept || !which(u) {
			continue
		}
		if s.unlist(u, event.id); len(u.ids) == 0 {
			s.remove(u)
			s.ended[why]++
			gone = append(gone, u)
		}
	}
	return gone
}

func uploadTable(bytes int64) *limit.Table[*upload, struct{}] {
	return limit.NewTable[*upload, struct{}](int(max(1, bytes/leastStaged)), bytes)
}

func (s *Staging) unlist(u *upload, id graspsync.EventID) {
	u.ids = slices.DeleteFunc(slices.Clone(u.ids), func(other graspsync.EventID) bool { return other == id })
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
	for _, id := range u.ids {
		s.unlist(u, id)
	}
	if u.slot != nil {
		u.slot.Release()
	}
}

// charge sets the size of an upload, at least leastStaged per event. An error is a quotaError, and
// the upload is then removed.
func (s *Staging) charge(u *upload, bytes int64) (gone []*upload, err error) {
	first := u.slot == nil
	if u.bytes = max(bytes, leastStaged*int64(len(u.ids))); !first {
		u.slot.Release()
	}
	u.slot = s.parts.TryAcquire(u.who, u.bytes)
	for _, id := range u.ids {
		event := stagedFor{u.ref, id}
		if others := s.events[event]; first && len(others) >= maxPerEvent && !slices.ContainsFunc(others, u.sameClient) {
			err = s.refuse("event", errStagedEvent)
		} else if first {
			s.events[event] = append(others, u)
		}
	}
	switch {
	case err != nil:
	case u.evicted:
		err = s.refuse("all", errStagedAll)
	case u.slot == nil:
		err = s.refuse("client", errStagedClient)
	default:
		of := s.owners[u.ref.Owner]
		if of == nil {
			of = uploadTable(s.limits.perOwner)
			s.owners[u.ref.Owner] = of
		}
		evicted, ok := of.Put(u, u.who, u.bytes, struct{}{})
		if !ok {
			err = s.refuse("owner", errStagedOwner)
		} else if more, ok := s.uploads.Put(u, u.who, u.bytes, struct{}{}); !ok {
			evicted, err = append(evicted, more...), s.refuse("all", errStagedAll)
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
		s.remove(u)
		u.evicted = true
	}
	return gone, err
}

// sameClient reports whether two uploads are from the same named client.
func (u *upload) sameClient(o *upload) bool { return o != u && o.who.ID != "" && o.who == u.who }

func (s *Staging) refuse(name string, err error) error {
	s.refused[name]++
	return err
}

// begin creates a folder for a push, with room in the staging area if ids is not empty. The caller
// must call end.
func (s *Staging) begin(ref graspsync.RepoRef, who limit.Stranger, ids []graspsync.EventID) (*upload, error) {
	u := &upload{s: s, path: s.layout.fresh(), ref: ref, who: who, ids: ids}
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
	return len(u.ids) > 0
}

// charge sets the current size of an upload. The error is a quotaError.
func (u *upload) charge(bytes int64) error {
	u.s.mu.Lock()
	if len(u.ids) == 0 && !u.evicted {
		u.s.mu.Unlock()
		return nil
	}
	gone, err := u.s.charge(u, bytes)
	u.s.mu.Unlock()
	u.s.discard(gone)
	return err
}

// part returns the maximum size that a client may have staged for one owner, in bytes.
func (s *Staging) part(who limit.Stranger) int64 {
	if who.ID == "" {
		return min(s.limits.perOwner, s.limits.all)
	}
	return min(s.limits.perClient, s.limits.perOwner, s.limits.all)
}

func (u *upload) measure() error {
	var sum int64
	err := fs.WalkDir(u.s.layout.root.FS(), u.path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("measuring an upload: %w", err)
	}
	return u.charge(sum)
}

// keep moves an upload to the staging area, durably because the client is told so. It replaces
// uploads of the same client for the same events.
func (u *upload) keep(tips map[graspsync.EventID]nip34.ObjectID) error {
	if err := u.measure(); err != nil {
		return err
	}
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
	if u.evicted {
		err = s.refuse("all", errStagedAll)
	} else {
		u.kept, u.tips, u.since = true, tips, since
		s.uploads.Touch(u) // moves it to the end of the eviction order
		s.owners[u.ref.Owner].Touch(u)
		for _, id := range u.ids {
			if _, here := tips[id]; !here { // its command was refused
				s.unlist(u, id)
			} else {
				gone = append(gone, s.unstage(endedReplaced, stagedFor{u.ref, id}, u.sameClient)...)
			}
		}
	}
	s.mu.Unlock()
	s.discard(gone)
	return err
}

// release frees the room of an incomplete upload.
func (u *upload) release() {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	u.s.remove(u)
	u.ids, u.evicted = nil, false
}

// end removes an upload unless it was kept.
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

// Collector returns the metrics, whose names begin with the namespace and "_staging". The caller
// registers the collector.
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
		for reason, n := range byRefusal {
			m.counter(refused, float64(n), reason)
		}
		for reason, n := range byEnd {
			m.counter(ended, float64(n), reason)
		}
	}}
}
