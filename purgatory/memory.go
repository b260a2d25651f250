package purgatory

import (
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
)

// question is what one server would be asked: for the objects of states, or for those
// that only pull requests name, which anybody can write. They do not share a request:
// a server refuses all of it for one object that it lacks.
type question struct {
	repo     graspsync.RepoRef
	from     graspsync.CloneURL
	pulls    bool // for objects that only pull requests name
	stranger bool // only a pull request names the server, or the objects
	ids      []nip34.ObjectID
	hash     [32]byte // of all that it would be asked for
	next     int      // in these, after what it is asked for
	last     bool     // it is asked for the last of them
	roomless bool     // it is not asked for some of the objects, which have no room
	whose    whose    // for whom it is asked, unless that is several
	several  bool
	apart    bool // it is about one author's objects of those of several
	lacked   bool // it had none of all that when it was asked last
}

func (m *memory) question(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n resolve.Need, pulls bool) question {
	q := question{repo: ref, from: from, pulls: pulls, stranger: pulls || !slices.Contains(n.Own, from)}
	h := sha256.New()
	for _, id := range n.IDs {
		if _, ofState := slices.BinarySearchFunc(n.States, id, resolve.CompareIDs); ofState == pulls {
			continue
		}
		if l, ok := m.lacks[ref][keyOfRoomless(from, id)]; pulls && ok && now.Before(l.until) {
			q.roomless = true
			continue
		}
		q.ids = append(q.ids, id)
		h.Write([]byte(id.String()))
	}
	h.Sum(q.hash[:0])
	return q
}

// beyond reports whether a question is about more than another one that was asked: about
// other objects, or about those of one author where nobody could tell what came for whom.
func (q question) beyond(asked question) bool {
	if q.pulls != asked.pulls || q.apart && asked.several {
		return len(q.ids) > 0
	}
	had := setOf(asked.ids)
	return slices.ContainsFunc(q.ids, func(id nip34.ObjectID) bool {
		_, again := had[id]
		return !again
	})
}

// key is what is remembered of the answer by.
func (q question) key() urlKey { return keyOf(q.from, q.pulls) }

// memory is what was learned from servers about repositories: the bytes that they
// sent, and what they do not have.
type memory struct {
	cfg   Config
	repos map[repoDay]*dayBudget
	hosts map[graspsync.HostPort]*dayBudget
	// owners are what each has of a host's; it is not kept over a restart, which the host's is
	owners map[hostOwner]*dayBudget
	lacks  map[graspsync.RepoRef]map[urlKey]lack
	size   int // of lacks
}

// urlKey stands for a URL, which may be 2 KiB long, and what it is asked for.
type urlKey [12]byte

func keyOf(u graspsync.CloneURL, pulls bool) urlKey {
	s := u.String()
	if pulls {
		s += " pulls"
	}
	return urlKeyOf(s)
}

// keyOfRoomless stands for one object that only pull requests name, and that has no room as a
// URL has it. Anybody writes these: it is asked for the others all the same.
func keyOfRoomless(u graspsync.CloneURL, id nip34.ObjectID) urlKey {
	return urlKeyOf(u.String() + " " + id.String())
}

func urlKeyOf(s string) urlKey {
	sum := sha256.Sum256([]byte(s))
	return urlKey(sum[:12])
}

// repoDay counts for a repository what its maintainers' servers sent, and what those
// of strangers did: these can't use up all that it may have.
type repoDay struct {
	repo     graspsync.RepoRef
	stranger bool
}

// dayBudget counts bytes over 24 hours.
type dayBudget struct {
	since time.Time
	bytes int64
}

// lack is that a server did not have what it was asked for.
type lack struct {
	hash     [32]byte
	whatever bool // it is about everything, not only what the hash is of
	times    int  // in a row
	until    time.Time
	passed   bool // it was asked for the rest since
	// What it sends has no room where repositories take up all that they may: it is asked
	// again as soon as there is room for so many bytes. Zero: it is not that.
	full int64
	// What it sends at once is beyond a limit: it is asked for one part of the objects only,
	// of 2^halved, beginning with this one.
	halved, from int
	// What it sent was not complete, and nobody could tell what of it was whose: it is asked
	// for one author's objects at a time.
	apart bool
}

const (
	// maxMemory bounds the repositories, servers and lacks that are remembered.
	maxMemory = 50_000
	// lackMost is how long a server is not asked again, at most, for what it does not
	// have: it may get it yet.
	lackMost = 10 * time.Minute
	day      = 24 * time.Hour
)

func newMemory(cfg Config) memory {
	return memory{
		cfg: cfg, repos: make(map[repoDay]*dayBudget), hosts: make(map[graspsync.HostPort]*dayBudget), owners: make(map[hostOwner]*dayBudget),
		lacks: make(map[graspsync.RepoRef]map[urlKey]lack),
	}
}

// choose says what a server is asked for: what states need first, of a server that only
// pull requests name what these need. As long as it lacks that, it is asked for the rest
// every other time: neither keeps the other from being fetched.
func (m *memory) choose(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n resolve.Need) question {
	q := m.prefer(now, ref, from, n)
	l := m.lacks[ref][q.key()]
	all := q.ids
	at := 0
	if l.halved > 0 || l.apart {
		at = l.from % max(1, len(all))
	}
	q.lacked = l.times > 0 && l.hash == q.hash
	q.apart = l.apart && q.pulls
	if q.apart {
		slices.SortStableFunc(all, func(a, b nip34.ObjectID) int { return whoseOf(n, a).compare(whoseOf(n, b)) })
		end := at
		for end < len(all) && whoseOf(n, all[end]) == whoseOf(n, all[at]) {
			end++
		}
		q.ids = all[at:end]
	} else {
		q.ids = slices.Concat(all[at:], all[:at])
	}
	if len(q.ids) > 1 {
		q.ids = q.ids[:min(len(q.ids), max(1, len(all)>>l.halved))]
	}
	q.next = at + len(q.ids)
	q.last = q.next >= len(all)
	if q.pulls && len(q.ids) > 0 {
		q.whose = whoseOf(n, q.ids[0])
		q.several = slices.ContainsFunc(q.ids, func(id nip34.ObjectID) bool { return whoseOf(n, id) != q.whose })
	}
	return q
}

func (m *memory) prefer(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n resolve.Need) question {
	first, rest := m.question(now, ref, from, n, false), m.question(now, ref, from, n, true)
	if !slices.Contains(n.Own, from) {
		first, rest = rest, first
	}
	if len(rest.ids) > 0 && (len(first.ids) == 0 || m.yields(now, first, rest)) || rest.roomless && len(first.ids) == 0 {
		return rest
	}
	return first
}

// yields reports whether a server that lacks what it is to be asked for is asked for
// the rest.
func (m *memory) yields(now time.Time, first, rest question) bool {
	if m.lacking(now, first) {
		return true
	}
	l, ok := m.lacks[first.repo][first.key()]
	return ok && l.hash == first.hash && !l.whatever && !l.passed && m.refuses(now, rest) == ""
}

// lacking reports whether a server is known not to have what it would be asked for.
func (m *memory) lacking(now time.Time, q question) bool {
	l, ok := m.lacks[q.repo][q.key()]
	return ok && now.Before(l.until) && (l.hash == q.hash || l.whatever)
}

// full returns for how many bytes there must be room before a server is asked; zero if that
// is not why it is not.
func (m *memory) full(q question) int64 {
	if l := m.lacks[q.repo][q.key()]; l.hash == q.hash {
		return l.full
	}
	return 0
}

// refuses returns why a server is not to be asked now; empty if it is.
func (m *memory) refuses(now time.Time, q question) string {
	own, strangers := spent(m.repos, repoDay{q.repo, false}, now), spent(m.repos, repoDay{q.repo, true}, now)
	switch {
	case own+strangers >= m.cfg.Limits.MaxRepoDay, q.stranger && strangers >= m.cfg.Limits.MaxRepoDay/2:
		return "repo_day"
	case m.hostSpent(now, q):
		return "host_day"
	}
	if len(q.ids) == 0 || m.lacking(now, q) && m.full(q) == 0 {
		return "lacking"
	}
	return ""
}

// hostOwner counts for the owner of repositories what a host sent.
type hostOwner struct {
	host  graspsync.HostPort
	owner graspsync.PubKey
}

// hostHardly is what part of a host's day is hardly anything.
const hostHardly = 1024

// hostSpent reports whether an owner has had enough of a host today. A few keys use up a day: half of it is for owners who
// have had no more than others in the mean, or hardly anything.
func (m *memory) hostSpent(now time.Time, q question) bool {
	host := q.from.HostPort()
	all, most := spent(m.hosts, host, now), m.cfg.Limits.MaxHostDay
	if all < most/2 || all >= most {
		return all >= most
	}
	mine := spent(m.owners, hostOwner{host, q.repo.Owner}, now)
	owners := int64(0)
	for o, b := range m.owners {
		if o.host == host && now.Sub(b.since) < day {
			owners++
		}
	}
	return mine > max(all/max(1, owners), most/hostHardly)
}

// spent is what a budget was charged with, and forgets those that are over.
func spent[K comparable](budgets map[K]*dayBudget, k K, now time.Time) int64 {
	b := budgets[k]
	if b == nil {
		return 0
	}
	if now.Sub(b.since) >= day {
		delete(budgets, k)
		return 0
	}
	return b.bytes
}

// learn takes in what a server sent. One that does not have what it was asked for is
// asked less and less often, until it is asked for something else. One that went beyond a
// limit is asked for half of it, what came stays; if that is one object, it is not asked
// again for this repository before the next day, or for this object if it is the pull
// requests that have no room for it, or for minutes if it was time that was up.
func (m *memory) learn(now time.Time, q question, seen Fetched) {
	if seen.Bytes > 0 {
		add(m.repos, repoDay{q.repo, q.stranger}, seen.Bytes, now)
		add(m.hosts, q.from.HostPort(), seen.Bytes, now)
		add(m.owners, hostOwner{q.from.HostPort(), q.repo.Owner}, seen.Bytes, now)
	}
	other := keyOf(q.from, !q.pulls)
	if l, ok := m.lacks[q.repo][other]; ok {
		l.passed = true
		m.lacks[q.repo][other] = l
	}
	switch {
	case errors.Is(seen.Err, ErrLimit) && len(q.ids) > 1:
		l := m.lacks[q.repo][q.key()]
		m.remember(q, lack{hash: q.hash, halved: l.halved + 1, from: l.from, apart: l.apart, passed: true})
	case errors.Is(seen.Err, ErrLimit) && errors.Is(seen.Err, errNoRoom):
		m.put(q.repo, keyOfRoomless(q.from, q.ids[0]), lack{whatever: true, until: now.Add(day)})
		if l, ok := m.lacks[q.repo][q.key()]; ok && l.halved > 0 { // the others are fewer now
			l.halved--
			m.remember(q, l)
		}
	case errors.Is(seen.Err, ErrFull):
		l := m.lacks[q.repo][q.key()]
		m.remember(q, lack{hash: q.hash, until: now.Add(day), full: seen.Bytes, halved: l.halved, from: q.next, apart: l.apart})
	case errors.Is(seen.Err, ErrSlow):
		l := m.lacks[q.repo][q.key()]
		if l.hash != q.hash || l.whatever {
			l = lack{hash: q.hash, halved: l.halved, from: l.from, apart: l.apart}
		}
		l.times++
		l.until = now.Add(backoff.Doubled(m.cfg.Times.Backoff/2, lackMost, l.times))
		m.remember(q, l)
	case errors.Is(seen.Err, ErrLimit):
		m.remember(q, lack{whatever: true, until: now.Add(day)})
	case errors.Is(seen.Err, ErrNotServed), seen.Err == nil && seen.Missing == seen.Wanted:
		l := m.lacks[q.repo][q.key()]
		if l.hash != q.hash || l.whatever {
			l = lack{hash: q.hash, halved: l.halved, from: l.from, apart: l.apart}
		}
		l.from = q.next
		l.passed, l.full = false, 0
		switch {
		case q.several && seen.Err == nil: // it has something: of whom?
			l.apart, l.from = true, 0
		case !l.apart || q.last:
			l.times++
			l.until = now.Add(backoff.Doubled(m.cfg.Times.Backoff/2, lackMost, l.times))
		}
		m.remember(q, l)
	}
}

func (m *memory) remember(q question, l lack) { m.put(q.repo, q.key(), l) }

func (m *memory) put(repo graspsync.RepoRef, from urlKey, l lack) {
	if m.size >= maxMemory {
		for ref := range m.lacks { // any: what is forgotten costs a request
			m.forget(ref)
			break
		}
	}
	if m.lacks[repo] == nil {
		m.lacks[repo] = make(map[urlKey]lack)
	}
	if _, again := m.lacks[repo][from]; !again {
		m.size++
	}
	m.lacks[repo][from] = l
}

// forget forgets what servers lack for a repository that needs nothing. What must not
// be asked before the next day is kept.
func (m *memory) forget(ref graspsync.RepoRef) {
	for u, l := range m.lacks[ref] {
		if !l.whatever || m.size >= maxMemory {
			delete(m.lacks[ref], u)
			m.size--
		}
	}
	if len(m.lacks[ref]) == 0 {
		delete(m.lacks, ref)
	}
}

func add[K comparable](budgets map[K]*dayBudget, k K, n int64, now time.Time) {
	if b := budgets[k]; b != nil && now.Sub(b.since) < day {
		b.bytes += n
		return
	}
	if len(budgets) >= maxMemory {
		for o := range budgets { // any: to look for one whose day is over would take longer each time
			delete(budgets, o)
			break
		}
	}
	budgets[k] = &dayBudget{since: now, bytes: n}
}

// recall remembers what a server lacked.
func (m *memory) recall(ref graspsync.RepoRef, r lackRecord, now time.Time) error {
	var u urlKey
	l := lack{whatever: r.IDs == "", times: max(0, min(r.Times, mostVain))}
	err := decodeHex(u[:], r.URL)
	if !l.whatever {
		herr := decodeHex(l.hash[:], r.IDs)
		err = errors.Join(err, herr)
	}
	if err != nil {
		return err
	}
	most := lackMost
	if l.whatever {
		most = day
	}
	l.until = recalled(now, r.Until, most)
	m.put(ref, u, l)
	return nil
}
