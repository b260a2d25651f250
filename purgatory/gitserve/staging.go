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
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// Staging has the pushes for events that have not arrived. It lies beside the repositories, with a folder
// for each push, so that nobody can fetch any of it and it can be removed as a whole. [Open] makes it. All
// methods may be called concurrently.
type Staging struct {
	layout *layout
	log    *slog.Logger
	limits stagingLimits
	wg     sync.WaitGroup // sweeps

	mu sync.Mutex
	// guarded by mu
	uploads *limit.Table[*staged, struct{}] // by the client that pushes
	owners  map[graspsync.PubKey]*limit.Table[*staged, struct{}]
	clients map[string]int64 // bytes by address, and by network
	events  map[stagedFor][]*staged
	stuck   []string // folders that could not be removed
	timer   *time.Timer
	closed  bool
	refused map[string]uint64
	ended   map[string]uint64
}

// staged is a push for events that have not arrived, complete or on its way.
type staged struct {
	name    string // of its folder; empty while the push is on its way
	ref     graspsync.RepoRef
	who     limit.Stranger
	ids     []graspsync.EventID // the events for which it is
	tips    map[graspsync.EventID]nip34.ObjectID
	bytes   int64
	since   time.Time
	evicted bool
}

// stagedFor is an event, in the repository to which its data was pushed.
type stagedFor struct {
	ref graspsync.RepoRef
	id  graspsync.EventID
}

// stagingLimits bound what is staged: for how long, and how many bytes of one client, in the repositories of
// one owner, and in all.
type stagingLimits struct {
	hold                     time.Duration
	perClient, perOwner, all int64
}

// leastStaged is the least that each event of a push counts for, in bytes: a folder, its files and their
// note, and the memory for them. So the bounds of bytes bound the number too.
const leastStaged = 64 << 10

// maxPerEvent is the maximum number of pushes for one event. Each is looked into when the event arrives.
const maxPerEvent = 8

// quotaError is the reason why a push has no room, as its client is told. A push for an event that is stored
// needs no room of this kind.
type quotaError string

// Error returns the reason.
func (e quotaError) Error() string { return string(e) }

const (
	errStagedAll    quotaError = "too much was pushed to this server for events that are not here: publish the event first"
	errStagedOwner  quotaError = "too much was pushed to this owner's repositories for events that are not here: publish the event first"
	errStagedClient quotaError = "you have pushed too much for events that are not here: publish the event first"
	errStagedEvent  quotaError = "too many have pushed for this event: publish the event first"
)

// roomless are these reasons by the names that metrics have.
var roomless = map[string]quotaError{"all": errStagedAll, "owner": errStagedOwner, "client": errStagedClient, "event": errStagedEvent}

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
	endedDisplaced  = "displaced"  // evicted: another client needed the room, or there is less since a restart
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
func openStaging(l *layout, limits stagingLimits, log *slog.Logger) (*Staging, error) {
	s := &Staging{
		layout: l, log: log, limits: limits, uploads: stagedTable(limits.all),
		owners: make(map[graspsync.PubKey]*limit.Table[*staged, struct{}]), clients: make(map[string]int64), events: make(map[stagedFor][]*staged),
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
	var uploads []*staged
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
		if u.since.After(now) { // the clock was set back
			u.since = now
		}
		u.since = now.Add(u.since.Sub(now)) // it may be set from here on
		uploads = append(uploads, u)
	}
	slices.SortFunc(uploads, func(a, b *staged) int { return a.since.Compare(b.since) })
	var gone []string
	for _, u := range uploads {
		if !now.Before(u.since.Add(limits.hold)) {
			s.ended[endedExpired]++
			gone = append(gone, u.name)
			continue
		}
		bytes := u.bytes
		u.bytes = 0 // it is charged for them now
		displaced, err := s.charge(u, bytes)
		if err != nil {
			s.ended[endedDisplaced]++
			displaced = append(displaced, u.name)
		} else {
			s.list(u)
		}
		gone = append(gone, displaced...)
	}
	s.mu.Lock() // the sweep waits until there is a timer
	s.timer = time.AfterFunc(limits.hold, s.sweep)
	s.schedule()
	s.mu.Unlock()
	s.drop(gone)
	return s, nil
}

// read reads what the folder of an upload says of it. Its repository must be there.
func (s *Staging) read(name string) (u *staged, err error) {
	data, err := s.layout.root.ReadFile(path.Join(area, name, noteName))
	if err != nil {
		return u, err
	}
	var n note
	if err := json.Unmarshal(data, &n); err != nil {
		return u, err
	}
	u = &staged{name: name, bytes: n.Bytes, since: n.Since, tips: make(map[graspsync.EventID]nip34.ObjectID)}
	if n.Client != "" {
		u.who = clientNamed(n.Client)
	}
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

// sweep removes what has been here for long enough, and says when to come again.
func (s *Staging) sweep() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.wg.Add(1)
	defer s.wg.Done()
	now := time.Now()
	due := s.end(endedExpired, func(u *staged) bool { return !now.Before(u.since.Add(s.limits.hold)) })
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
	for u := range s.uploads.All() {
		if u.name != "" {
			next = time.Until(u.since.Add(s.limits.hold))
			break
		}
	}
	if len(s.stuck) > 0 {
		next = min(max(next, 0), stuckPause)
	}
	s.timer.Reset(next)
}

// drop removes folders of pushes that have ended. Those that can't be removed are
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
	return s.layout.root.RemoveAll(old)
}

// of returns what was pushed for an event, as [purgatory.Repositories] has it.
func (s *Staging) of(ref graspsync.RepoRef, id graspsync.EventID) (out []purgatory.Upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.events[stagedFor{ref, id}] {
		if u.name != "" {
			out = append(out, purgatory.Upload{Tip: u.tips[id], Dir: filepath.Join(s.layout.dir, area, u.name), Bytes: u.bytes})
		}
	}
	return out
}

// strike removes what was pushed for an event, which has come.
func (s *Staging) strike(ref graspsync.RepoRef, id graspsync.EventID) {
	s.mu.Lock()
	gone := s.unstage(endedEvent, stagedFor{ref, id}, func(*staged) bool { return true })
	s.mu.Unlock()
	s.drop(gone)
}

// unstage removes an event from some of the complete pushes for it, and ends those that are for no other one. It
// returns their folders. It is called with mu held.
func (s *Staging) unstage(why string, event stagedFor, which func(*staged) bool) (gone []string) {
	for _, u := range slices.Clone(s.events[event]) {
		if u.name == "" || !which(u) {
			continue
		}
		u.ids = slices.DeleteFunc(u.ids, func(id graspsync.EventID) bool { return id == event.id })
		if s.unlist(u, event.id); len(u.ids) == 0 {
			s.remove(u)
			s.ended[why]++
			gone = append(gone, u.name)
		}
	}
	return gone
}

// leave removes what was pushed to a repository that goes.
func (s *Staging) leave(at string) {
	s.mu.Lock()
	gone := s.end(endedRepository, func(u *staged) bool { return s.layout.at(u.ref) == at })
	s.mu.Unlock()
	s.drop(gone)
}

// end ends some of the complete pushes, and returns their folders. It is called with mu held.
func (s *Staging) end(why string, which func(*staged) bool) (gone []string) {
	var ended []*staged
	for u := range s.uploads.All() {
		if u.name != "" && which(u) {
			ended = append(ended, u)
		}
	}
	for _, u := range ended {
		s.remove(u)
		gone = append(gone, u.name)
	}
	s.ended[why] += uint64(len(gone))
	return gone
}

func stagedTable(bytes int64) *limit.Table[*staged, struct{}] {
	return limit.NewTable[*staged, struct{}](int(max(1, bytes/leastStaged)), bytes)
}

// list has a push be found by its events. It is called with mu held.
func (s *Staging) list(u *staged) {
	for _, id := range u.ids {
		event := stagedFor{u.ref, id}
		s.events[event] = append(s.events[event], u)
	}
}

func (s *Staging) unlist(u *staged, id graspsync.EventID) {
	event := stagedFor{u.ref, id}
	if s.events[event] = slices.DeleteFunc(s.events[event], func(o *staged) bool { return o == u }); len(s.events[event]) == 0 {
		delete(s.events, event)
	}
}

// remove forgets a push. It may be called again. It is called with mu held.
func (s *Staging) remove(u *staged) {
	s.uploads.Delete(u)
	if of := s.owners[u.ref.Owner]; of != nil {
		if of.Delete(u); of.Len() == 0 {
			delete(s.owners, u.ref.Owner)
		}
	}
	for _, id := range u.ids {
		s.unlist(u, id)
	}
	s.count(u, 0)
}

// count makes the bytes of a push count for its client and the network of that.
func (s *Staging) count(u *staged, bytes int64) {
	for _, name := range []string{u.who.ID, u.who.Group} {
		if s.clients[name] += bytes - u.bytes; s.clients[name] == 0 {
			delete(s.clients, name)
		}
	}
	u.bytes = bytes
}

// charge makes a push take up a number of bytes, or leastStaged for each of its events if that is more. It
// returns the folders of pushes that were evicted. An error is a quotaError; the push takes up nothing then, and
// has no room any more. It is called with mu held.
func (s *Staging) charge(u *staged, bytes int64) (gone []string, err error) {
	bytes = max(bytes, leastStaged*int64(len(u.ids)))
	of := s.owners[u.ref.Owner]
	if of == nil {
		of = stagedTable(s.limits.perOwner)
		s.owners[u.ref.Owner] = of
	}
	var evicted []limit.Entry[*staged, struct{}]
	put := func(to *limit.Table[*staged, struct{}], full quotaError) {
		if err != nil {
			return
		}
		more, ok := to.Put(u, u.who, bytes, struct{}{})
		if evicted = append(evicted, more...); !ok {
			err = full
		}
	}
	switch {
	case u.evicted:
		err = errStagedAll
	case s.beyondPart(u, bytes-u.bytes):
		err = errStagedClient
	default:
		put(of, errStagedOwner)
		put(s.uploads, errStagedAll)
	}
	for _, e := range evicted {
		gone = append(gone, s.evict(e.Key)...)
	}
	if err != nil {
		s.remove(u)
		u.evicted = true
		return gone, err
	}
	s.count(u, bytes)
	return gone, nil
}

// beyondPart reports whether a push would have its client, or the network of that, exceed its part.
func (s *Staging) beyondPart(u *staged, more int64) bool {
	return u.who.ID != "" && s.clients[u.who.ID]+more > s.limits.perClient ||
		u.who.Group != "" && s.clients[u.who.Group]+more > limit.GroupParts*s.limits.perClient
}

// evict ends a push to make room, and returns its folder if it is complete. It is called with mu held.
func (s *Staging) evict(u *staged) (gone []string) {
	s.remove(u)
	u.evicted = true
	if u.name == "" {
		return nil
	}
	s.ended[endedDisplaced]++
	return []string{u.name}
}

// crowd returns the push that yields to a new one for the same event, nil if none must. It is called with mu
// held.
func (s *Staging) crowd(u *staged, id graspsync.EventID) (yields *staged, err error) {
	others := limit.NewTable[*staged, struct{}](maxPerEvent, 0)
	for _, o := range s.events[stagedFor{u.ref, id}] {
		if o.name == "" || o.who.ID == "" || o.who != u.who { // else the new one replaces it
			others.Put(o, o.who, 1, struct{}{})
		}
	}
	evicted, ok := others.Put(u, u.who, 1, struct{}{})
	switch {
	case !ok:
		return nil, errStagedEvent
	case len(evicted) > 0:
		return evicted[0].Key, nil
	}
	return nil, nil
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
	staged *staged // nil: nothing of it is for an event that is not stored, or has room
	folder string  // below the root; what git writes goes there
	kept   bool
}

// begin makes a folder for a push, and room in the area if it is for some events. The arrival must be
// ended.
func (s *Staging) begin(ref graspsync.RepoRef, who limit.Stranger, ids []graspsync.EventID) (*arrival, error) {
	a := &arrival{s: s, folder: s.layout.fresh()}
	if len(ids) > 0 {
		a.staged = &staged{ref: ref, who: who, ids: ids}
		s.mu.Lock()
		gone, err := s.admit(a.staged)
		s.mu.Unlock()
		s.drop(gone)
		if err != nil {
			return nil, err
		}
	}
	for _, d := range []string{"", "pack"} {
		if err := s.layout.root.Mkdir(path.Join(a.folder, d), 0o700); err != nil {
			return nil, errors.Join(fmt.Errorf("making room for an upload: %w", err), a.end())
		}
	}
	return a, nil
}

// admit gives a push room to begin with, and returns the folders of pushes that yield. It is called with mu
// held.
func (s *Staging) admit(u *staged) (gone []string, err error) {
	yield := make(map[graspsync.EventID]*staged)
	for _, id := range u.ids {
		o, err := s.crowd(u, id)
		if err != nil {
			return nil, s.refuse(err)
		}
		if o != nil {
			yield[id] = o
		}
	}
	if gone, err = s.charge(u, 0); err != nil {
		return gone, s.refuse(err)
	}
	for id, o := range yield {
		if o.name == "" {
			gone = append(gone, s.evict(o)...)
			continue
		}
		gone = append(gone, s.unstage(endedDisplaced, stagedFor{u.ref, id}, func(other *staged) bool { return other == o })...)
	}
	s.list(u)
	return gone, nil
}

// refuse counts why something has no room. It is called with mu held.
func (s *Staging) refuse(err error) error {
	for name, why := range roomless {
		if errors.Is(err, why) {
			s.refused[name]++
		}
	}
	return err
}

// charge says how many bytes an arrival takes up by now. An error means that it has no
// room for them.
func (a *arrival) charge(bytes int64) error {
	if a.staged == nil {
		return nil
	}
	a.s.mu.Lock()
	gone, err := a.s.charge(a.staged, bytes)
	err = a.s.refuse(err)
	a.s.mu.Unlock()
	a.s.drop(gone)
	return err
}

// part is the maximum of what a client may have staged in the repositories of one owner, in bytes.
func (s *Staging) part(who limit.Stranger) int64 {
	if who.ID == "" {
		return min(s.limits.perOwner, s.limits.all)
	}
	return min(s.limits.perClient, s.limits.perOwner, s.limits.all)
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
func (a *arrival) keep(tips map[graspsync.EventID]nip34.ObjectID) error {
	if err := a.measure(); err != nil {
		return err
	}
	s, u := a.s, a.staged
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	name, since := hex.EncodeToString(random[:]), time.Now()
	s.mu.Lock()
	n := note{Repo: u.ref.String(), Client: u.who.ID, Tips: make(map[string]string), Bytes: u.bytes, Since: since}
	s.mu.Unlock()
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
	to := path.Join(area, name)
	if err := l.root.Rename(a.folder, to); err != nil {
		return fmt.Errorf("keeping an upload: %w", err)
	}
	a.folder = to // it is removed from there, if it may not be on the disk
	if err := l.sync(area); err != nil {
		return fmt.Errorf("keeping an upload: %w", err)
	}
	s.mu.Lock()
	gone, err := s.keep(u, name, tips, since)
	s.mu.Unlock()
	s.drop(gone)
	if err == nil {
		a.kept, a.staged = true, nil
	}
	return err
}

// keep has a push be complete. It replaces those that the same client has pushed for the same events, and returns
// their folders. It is called with mu held.
func (s *Staging) keep(u *staged, name string, tips map[graspsync.EventID]nip34.ObjectID, since time.Time) (gone []string, err error) {
	if u.evicted {
		return nil, s.refuse(errStagedAll)
	}
	u.name, u.tips, u.since = name, tips, since
	s.uploads.Touch(u) // the oldest are evicted first
	s.owners[u.ref.Owner].Touch(u)
	for _, id := range slices.Clone(u.ids) {
		if _, here := tips[id]; !here { // its command was refused meanwhile
			u.ids = slices.DeleteFunc(u.ids, func(other graspsync.EventID) bool { return other == id })
			s.unlist(u, id)
		} else if u.who.ID != "" {
			gone = append(gone, s.unstage(endedReplaced, stagedFor{u.ref, id}, func(o *staged) bool { return o != u && o.who == u.who })...)
		}
	}
	s.schedule()
	return gone, nil
}

// release gives back the room of an arrival.
func (a *arrival) release() {
	if a.staged == nil {
		return
	}
	a.s.mu.Lock()
	a.s.remove(a.staged)
	a.s.mu.Unlock()
	a.staged = nil
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
		bytes:   desc("bytes", "Bytes of pushes whose events are not stored, including pushes in progress."),
		uploads: desc("uploads", "Number of pushes whose events are not stored."),
		refused: desc("refused_total", "Total pushes without stored events that were refused, by the exhausted limit.", "reason"),
		ended:   desc("ended_total", "Total pushes without stored events that ended, by reason.", "reason"),
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
	bytes, uploads := c.s.uploads.Bytes(), 0
	for u := range c.s.uploads.All() {
		if u.name != "" {
			uploads++
		}
	}
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
