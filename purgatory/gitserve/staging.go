package gitserve

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve/internal/staged"
)

// Staging is where what was pushed for events that are not here lies until they come:
// beside the repositories, each push in a folder of its own, so that nobody can fetch
// any of it and all of it goes at once. [Open] makes it. All methods may be called
// concurrently.
type Staging struct {
	layout *layout
	log    *slog.Logger
	hold   time.Duration  // for which things lie here
	wg     sync.WaitGroup // sweeps
	step   func()         // for tests, nil otherwise: something was done on the disk

	mu sync.Mutex
	// guarded by mu
	book    *staged.Book
	stuck   []string // folders that could not be removed
	timer   *time.Timer
	closed  bool
	refused map[string]uint64
	ended   map[string]uint64
}

// area is the folder of what is staged, below the root.
const area = "staged"

// noteName is the file in the folder of an upload that says what it is. Git has no file
// of this name where it keeps objects.
const noteName = "upload.json"

// stuckPause is how long it takes until what could not be removed is tried again.
const stuckPause = time.Minute

// The reasons for which uploads end.
const (
	endedEvent      = "event"      // it has come
	endedExpired    = "expired"    // it has not
	endedReplaced   = "replaced"   // the same client has pushed again
	endedDisplaced  = "displaced"  // somebody else needed the room, whose network had less, or there is less since a restart
	endedRepository = "repository" // that has gone
	endedUnreadable = "unreadable"
)

// note is what the folder of an upload says of it.
type note struct {
	Repo   string            `json:"repo"`
	Client string            `json:"client"`
	Tips   map[string]string `json:"tips"` // by the ids of their events
	Bytes  int64             `json:"bytes"`
	Since  time.Time         `json:"since"`
}

// openStaging reads what an earlier process has left, and removes what is of no use, whose time
// is over and what has no room any more.
func openStaging(l *layout, limits staged.Limits, log *slog.Logger) (*Staging, error) {
	s := &Staging{
		layout: l, log: log, hold: limits.Hold, book: staged.New(limits),
		refused: make(map[string]uint64), ended: make(map[string]uint64),
	}
	for name := range roomless {
		s.refused[name] = 0
	}
	for _, name := range []string{endedEvent, endedExpired, endedReplaced, endedDisplaced, endedRepository, endedUnreadable} {
		s.ended[name] = 0
	}
	if err := l.root.Mkdir(area, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	folders, err := fs.ReadDir(l.root.FS(), area)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var uploads []staged.Upload
	for _, f := range folders {
		u, err := s.read(f.Name())
		if path := (*fs.PathError)(nil); errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist) {
			s.log.Error("what was pushed for an event that is not here could not be read, and stays until the next start",
				"folder", graspsync.Printable(f.Name()), "error", graspsync.Printable(err.Error()))
			continue
		}
		if err != nil {
			s.ended[endedUnreadable]++
			if err := s.discard(f.Name()); err != nil {
				return nil, err
			}
			continue
		}
		if u.Since.After(now) { // the clock was set back
			u.Since = now
		}
		u.Since = now.Add(u.Since.Sub(now)) // it may be set from here on
		uploads = append(uploads, u)
	}
	slices.SortFunc(uploads, func(a, b staged.Upload) int { return a.Since.Compare(b.Since) })
	var gone []string
	for _, u := range uploads {
		switch {
		case !now.Before(u.Since.Add(s.hold)):
			s.ended[endedExpired]++
			gone = append(gone, u.Name)
		case s.book.Restore(u) != nil:
			s.ended[endedDisplaced]++
			gone = append(gone, u.Name)
		}
	}
	gone = append(gone, s.displaced()...)
	s.mu.Lock() // the sweep waits until there is a timer
	s.timer = time.AfterFunc(s.hold, s.sweep)
	s.schedule()
	s.mu.Unlock()
	s.drop(gone)
	return s, nil
}

// read reads what the folder of an upload says of it. Its repository must be there.
func (s *Staging) read(name string) (u staged.Upload, err error) {
	data, err := s.layout.root.ReadFile(path.Join(area, name, noteName))
	if err != nil {
		return u, err
	}
	var n note
	if err := json.Unmarshal(data, &n); err != nil {
		return u, err
	}
	u = staged.Upload{Name: name, Client: n.Client, Bytes: n.Bytes, Since: n.Since, Tips: make(map[graspsync.EventID]nip34.ObjectID)}
	if u.Repo, err = graspsync.ParseRepoRef(n.Repo); err != nil {
		return u, err
	}
	if there, err := s.layout.isThere(s.layout.at(u.Repo)); err != nil || !there {
		return u, cmp.Or(err, purgatory.ErrNoRepository)
	}
	for event, tip := range n.Tips {
		id, err := graspsync.ParseEventID(event)
		if err != nil {
			return u, err
		}
		if u.Tips[id], err = nip34.ParseObjectID(tip); err != nil {
			return u, err
		}
	}
	return u, nil
}

// sweep removes what has been here for long enough, and says when to come again.
func (s *Staging) sweep() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.wg.Add(1)
	defer s.wg.Done()
	due := s.book.Due(time.Now())
	s.ended[endedExpired] += uint64(len(due))
	due = append(s.stuck, due...)
	s.stuck = nil
	s.mu.Unlock()
	s.drop(due)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schedule()
}

// schedule is called with mu held.
func (s *Staging) schedule() {
	if s.closed {
		return
	}
	next := time.Hour // there is always a timer
	if at, ok := s.book.Next(); ok {
		next = time.Until(at)
	}
	if len(s.stuck) > 0 {
		next = min(max(next, 0), stuckPause)
	}
	s.timer.Reset(next)
}

// drop removes folders that the book has forgotten. Those that can't be removed are
// tried again.
func (s *Staging) drop(names []string) {
	for _, name := range names {
		err := s.discard(name)
		if err == nil {
			continue
		}
		s.mu.Lock()
		s.stuck = append(s.stuck, name)
		s.schedule()
		s.mu.Unlock()
		s.log.Warn("what was pushed for an event could not be removed", "error", err)
	}
}

// discard removes a folder: in one step for all who look.
func (s *Staging) discard(name string) error {
	old := s.layout.fresh()
	err := s.layout.root.Rename(path.Join(area, name), old)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing an upload: %w", err)
	}
	s.did()
	return s.layout.root.RemoveAll(old)
}

func (s *Staging) did() {
	if s.step != nil {
		s.step()
	}
}

// of returns what was pushed for an event, as [purgatory.Repositories] has it.
func (s *Staging) of(ref graspsync.RepoRef, id graspsync.EventID) (out []purgatory.Upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.book.Of(ref, id) {
		out = append(out, purgatory.Upload{Tip: u.Tips[id], Dir: filepath.Join(s.layout.dir, area, u.Name), Bytes: u.Bytes})
	}
	return out
}

// strike removes what was pushed for an event, which has come.
func (s *Staging) strike(ref graspsync.RepoRef, id graspsync.EventID) {
	s.mu.Lock()
	gone := s.book.Strike(ref, id)
	s.ended[endedEvent] += uint64(len(gone))
	s.mu.Unlock()
	s.drop(gone)
}

// leave removes what was pushed to a repository that goes.
func (s *Staging) leave(at string) {
	s.mu.Lock()
	gone := s.book.To(func(ref graspsync.RepoRef) bool { return s.layout.at(ref) == at })
	for _, name := range gone {
		s.book.Remove(name)
	}
	s.ended[endedRepository] += uint64(len(gone))
	s.mu.Unlock()
	s.drop(gone)
}

func (s *Staging) close() {
	s.mu.Lock()
	s.closed = true
	s.timer.Stop()
	s.mu.Unlock()
	s.wg.Wait()
}

// arrival is a push on its way.
type arrival struct {
	s      *Staging
	grant  *staged.Grant // nil: nothing of it is for an event that is not stored
	folder string        // below the root; what git writes goes there
	kept   bool
}

// quotaError is why something has no room.
type quotaError struct{ why error }

// Error says it to who pushed, and what helps in any case: a push for an event that is
// here needs no room of this kind.
func (e *quotaError) Error() string { return e.why.Error() + ": publish the event first" }

// begin makes a folder for a push, and room in the area if it is for some events. The arrival must be
// ended.
func (s *Staging) begin(ref graspsync.RepoRef, client string, ids []graspsync.EventID) (*arrival, error) {
	a := &arrival{s: s, folder: s.layout.fresh()}
	if len(ids) > 0 {
		s.mu.Lock()
		grant, err := s.book.Begin(ref, client, ids)
		err = s.refuse(err)
		gone := s.displaced()
		s.mu.Unlock()
		s.drop(gone)
		if err != nil {
			return nil, err
		}
		a.grant = grant
	}
	defer s.did()
	for _, d := range []string{"", "pack"} {
		if err := s.layout.root.Mkdir(path.Join(a.folder, d), 0o700); err != nil {
			return nil, errors.Join(fmt.Errorf("making room for an upload: %w", err), a.end())
		}
	}
	return a, nil
}

// roomless are the reasons why something has no room, by the names that metrics have.
var roomless = map[string]error{
	"all": staged.ErrAll, "repository": staged.ErrRepo, "client": staged.ErrClient, "event": staged.ErrEvent,
}

// refuse counts why something has no room. It is called with mu held.
func (s *Staging) refuse(err error) error {
	if err == nil {
		return nil
	}
	for name, why := range roomless {
		if errors.Is(err, why) {
			s.refused[name]++
		}
	}
	return &quotaError{err}
}

// charge says how many bytes an arrival takes up by now. An error means that it has no
// room for them.
func (a *arrival) charge(bytes int64) error {
	if a.grant == nil {
		return nil
	}
	a.s.mu.Lock()
	err := a.s.refuse(a.s.book.Charge(a.grant, bytes))
	gone := a.s.displaced()
	a.s.mu.Unlock()
	a.s.drop(gone)
	return err
}

// displaced returns the folders of what had to make room. It is called with mu held.
func (s *Staging) displaced() []string {
	gone := s.book.Displaced()
	s.ended[endedDisplaced] += uint64(len(gone))
	return gone
}

// left is how many bytes more an arrival has room for.
func (a *arrival) left() int64 {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	return a.s.book.Left(a.grant)
}

// bytes is what an arrival takes up, as far as it was charged.
func (a *arrival) bytes() int64 {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	return a.grant.Bytes()
}

// measure charges an arrival with what lies in its folder now.
func (a *arrival) measure() error {
	var sum int64
	err := fs.WalkDir(a.s.layout.root.FS(), a.folder, func(_ string, d fs.DirEntry, err error) error {
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
	return a.charge(sum)
}

// keep gives an arrival its place, durably: whoever was told that it is here can rely on
// that.
func (a *arrival) keep(ref graspsync.RepoRef, client string, tips map[graspsync.EventID]nip34.ObjectID) error {
	if err := a.measure(); err != nil {
		return err
	}
	s := a.s
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	u := staged.Upload{Name: hex.EncodeToString(random[:]), Tips: tips, Since: time.Now()}
	n := note{Repo: ref.String(), Client: client, Tips: make(map[string]string), Bytes: a.bytes(), Since: u.Since}
	for id, tip := range tips {
		n.Tips[id.String()] = tip.String()
	}
	text, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("keeping an upload: %w", err)
	}
	l := s.layout
	if err := errors.Join(l.write(path.Join(a.folder, noteName), string(text)), l.sync(path.Join(a.folder, "pack")), l.sync(a.folder)); err != nil {
		return fmt.Errorf("keeping an upload: %w", err)
	}
	s.did()
	to := path.Join(area, u.Name)
	if err := l.root.Rename(a.folder, to); err != nil {
		return fmt.Errorf("keeping an upload: %w", err)
	}
	a.folder = to // it is removed from there, if it may not be on the disk
	s.did()
	if err := l.sync(area); err != nil {
		return fmt.Errorf("keeping an upload: %w", err)
	}
	a.kept = true
	s.mu.Lock()
	gone := s.book.Keep(a.grant, u)
	s.ended[endedReplaced] += uint64(len(gone))
	s.schedule()
	s.mu.Unlock()
	s.drop(gone)
	return nil
}

// release gives back the room of an arrival.
func (a *arrival) release() {
	if a.grant == nil {
		return
	}
	a.s.mu.Lock()
	a.s.book.End(a.grant)
	a.s.mu.Unlock()
	a.grant = nil
}

// end removes what was not kept, and gives back its room.
func (a *arrival) end() error {
	a.release()
	if a.kept {
		return nil
	}
	return a.s.layout.root.RemoveAll(a.folder)
}

// Collector returns the metrics, computed when they are asked for. The caller registers
// it. namespace goes before their names, without an underscore.
func (s *Staging) Collector(namespace string) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "staging", name), help, labels, nil)
	}
	return &stagingCollector{
		s:       s,
		bytes:   desc("bytes", "What pushes for events that are not here take up, those under way included."),
		uploads: desc("uploads", "Pushes for events that are not here."),
		refused: desc("refused_total", "Pushes for events that are not here that had no room, by whose.", "reason"),
		ended:   desc("ended_total", "Pushes for events that were not here and are gone, by why.", "reason"),
	}
}

type stagingCollector struct {
	s                              *Staging
	bytes, uploads, refused, ended *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *stagingCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.bytes, c.uploads, c.refused, c.ended} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *stagingCollector) Collect(ch chan<- prometheus.Metric) {
	c.s.mu.Lock()
	bytes, uploads := c.s.book.Bytes(), c.s.book.Len()
	refused, ended := maps.Clone(c.s.refused), maps.Clone(c.s.ended)
	c.s.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(bytes))
	ch <- prometheus.MustNewConstMetric(c.uploads, prometheus.GaugeValue, float64(uploads))
	for reason, n := range refused {
		ch <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(n), reason)
	}
	for reason, n := range ended {
		ch <- prometheus.MustNewConstMetric(c.ended, prometheus.CounterValue, float64(n), reason)
	}
}
