package purgatory

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
)

// plainMemory is what memory should be, with a list of all that was ever learned in place of
// sums and hashes.
type plainMemory struct {
	cfg   Config
	came  []cameBytes
	lacks map[string]*plainLack // by repository, URL, and what was asked for
}

type cameBytes struct {
	what  string
	since time.Time // that the day has begun in which it counts
	bytes int64
}

type plainLack struct {
	of           string // all that it would have been asked for
	whatever     bool
	times        int
	until        time.Time
	passed       bool
	halved, from int
	apart        bool
	full         int64
}

func (m *plainMemory) add(what string, bytes int64, now time.Time) {
	since := now
	for _, c := range m.came {
		if c.what == what && now.Before(c.since.Add(24*time.Hour)) {
			since = c.since
		}
	}
	m.came = append(m.came, cameBytes{what, since, bytes})
}

func (m *plainMemory) spent(what string, now time.Time) (sum int64) {
	for _, c := range m.came {
		if c.what == what && now.Before(c.since.Add(24*time.Hour)) {
			sum += c.bytes
		}
	}
	return sum
}

func plainKey(repo string, from graspsync.CloneURL, what any) string {
	return fmt.Sprintf("%s %s %v", repo, from, what)
}

// plainQuestion is what could be asked for: ids, but for those without room.
type plainQuestion struct {
	key, repo, host string
	owner           string
	from            graspsync.CloneURL
	pulls, stranger bool
	all, asked      []nip34.ObjectID
	roomless        bool
	next            int
	last, several   bool
}

func (m *plainMemory) question(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n resolve.Need, pulls bool) plainQuestion {
	q := plainQuestion{
		key: plainKey(ref.String(), from, pulls), repo: ref.String(), owner: ref.Owner.String(), from: from, host: fmt.Sprint(from.HostPort()),
		pulls: pulls, stranger: pulls || !slices.Contains(n.Own, from),
	}
	for _, id := range n.IDs {
		if slices.Contains(n.States, id) == pulls {
			continue
		}
		if l := m.lacks[plainKey(ref.String(), from, id)]; pulls && l != nil && now.Before(l.until) {
			q.roomless = true
		} else {
			q.all = append(q.all, id)
		}
	}
	return q
}

func (m *plainMemory) lacking(now time.Time, q plainQuestion) bool {
	l := m.lacks[q.key]
	return l != nil && now.Before(l.until) && (l.whatever || l.of == fmt.Sprint(q.all))
}

func (m *plainMemory) refuses(now time.Time, q plainQuestion) string {
	own, strangers := m.spent(q.repo+" own", now), m.spent(q.repo+" strangers", now)
	if own+strangers >= m.cfg.Limits.MaxRepoDay || q.stranger && strangers >= m.cfg.Limits.MaxRepoDay/2 {
		return "repo_day"
	}
	if m.hostSpent(now, q) {
		return "host_day"
	}
	if len(q.all) == 0 || m.lacking(now, q) && m.full(q) == 0 {
		return "lacking"
	}
	return ""
}

// hostSpent says that a host's day is over, or the first half of it for who had more than others.
func (m *plainMemory) hostSpent(now time.Time, q plainQuestion) bool {
	owners, all := make(map[string]bool), m.spent(q.host, now)
	for _, c := range m.came {
		if strings.HasPrefix(c.what, q.host+" for ") && m.spent(c.what, now) > 0 {
			owners[c.what] = true
		}
	}
	mine := m.spent(q.host+" for "+q.owner, now)
	much := mine > m.cfg.Limits.MaxHostDay/1024 && mine > all/int64(max(1, len(owners)))
	return all >= m.cfg.Limits.MaxHostDay || much && all >= m.cfg.Limits.MaxHostDay/2
}

// full says for how much there must be room.
func (m *plainMemory) full(q plainQuestion) int64 {
	if l := m.lacks[q.key]; l != nil && l.of == fmt.Sprint(q.all) {
		return l.full
	}
	return 0
}

// prefers says whether pull requests come first, and whether these, or the others, are asked
// for now.
func (m *plainMemory) prefer(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n resolve.Need) plainQuestion {
	stranger := !slices.Contains(n.Own, from)
	first, rest := m.question(now, ref, from, n, stranger), m.question(now, ref, from, n, !stranger)
	if len(first.all) == 0 {
		if len(rest.all) > 0 || rest.roomless {
			return rest
		}
		return first
	}
	if len(rest.all) == 0 {
		return first
	}
	if m.lacking(now, first) {
		return rest
	}
	l := m.lacks[first.key]
	if l != nil && !l.whatever && !l.passed && l.of == fmt.Sprint(first.all) && m.refuses(now, rest) == "" {
		return rest
	}
	return first
}

func (m *plainMemory) choose(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n resolve.Need) plainQuestion {
	q := m.prefer(now, ref, from, n)
	if len(q.all) == 0 {
		q.last = true
		return q
	}
	l := m.lacks[q.key]
	if l == nil {
		l = &plainLack{}
	}
	order, at := slices.Clone(q.all), 0
	if l.halved > 0 || l.apart {
		at = l.from % len(order)
	}
	most := len(order)
	for range l.halved {
		most /= 2
	}
	if l.apart && q.pulls {
		slices.SortStableFunc(order, func(a, b nip34.ObjectID) int { return whoseOf(n, a).compare(whoseOf(n, b)) })
	}
	for i := range order {
		id := order[(at+i)%len(order)]
		if l.apart && q.pulls && (at+i >= len(order) || whoseOf(n, id) != whoseOf(n, order[at])) {
			break
		}
		if i < max(1, most) {
			q.asked = append(q.asked, id)
		}
	}
	q.next = at + len(q.asked)
	q.last = q.next >= len(order)
	for _, id := range q.asked {
		q.several = q.several || q.pulls && whoseOf(n, id) != whoseOf(n, q.asked[0])
	}
	return q
}

func (m *plainMemory) learn(now time.Time, q plainQuestion, seen Fetched) {
	if seen.Bytes > 0 {
		m.add(q.repo+map[bool]string{true: " strangers", false: " own"}[q.stranger], seen.Bytes, now)
		m.add(q.host, seen.Bytes, now)
		m.add(q.host+" for "+q.owner, seen.Bytes, now)
	}
	if l := m.lacks[plainKey(q.repo, q.from, !q.pulls)]; l != nil {
		l.passed = true
	}
	l := m.lacks[q.key]
	if l == nil {
		l = &plainLack{}
	}
	limit, vain := errors.Is(seen.Err, ErrLimit), errors.Is(seen.Err, ErrNotServed) || seen.Err == nil && seen.Missing == seen.Wanted
	switch {
	case limit && len(q.asked) > 1:
		m.lacks[q.key] = &plainLack{of: fmt.Sprint(q.all), halved: l.halved + 1, from: l.from, apart: l.apart, passed: true}
	case limit && errors.Is(seen.Err, errNoRoom):
		m.lacks[plainKey(q.repo, q.from, q.asked[0])] = &plainLack{whatever: true, until: now.Add(24 * time.Hour)}
		if l.halved > 0 {
			l.halved--
		}
	case errors.Is(seen.Err, ErrFull):
		m.lacks[q.key] = &plainLack{
			of: fmt.Sprint(q.all), until: now.Add(24 * time.Hour), full: seen.Bytes, halved: l.halved, from: q.next, apart: l.apart,
		}
	case errors.Is(seen.Err, ErrSlow):
		if l.whatever || l.of != fmt.Sprint(q.all) {
			l = &plainLack{of: fmt.Sprint(q.all), halved: l.halved, from: l.from, apart: l.apart}
		}
		l.times++
		l.until = now.Add(min(m.cfg.Times.Backoff/2<<min(l.times-1, 10), 10*time.Minute))
		m.lacks[q.key] = l
	case limit:
		m.lacks[q.key] = &plainLack{whatever: true, until: now.Add(24 * time.Hour)}
	case vain:
		if l.whatever || l.of != fmt.Sprint(q.all) {
			l = &plainLack{of: fmt.Sprint(q.all), halved: l.halved, from: l.from, apart: l.apart}
		}
		l.passed, l.full, l.from = false, 0, q.next
		switch {
		case q.several && seen.Err == nil:
			l.apart, l.from = true, 0
		case l.apart && !q.last: // the others of these have their turn before it counts
		default:
			l.times++
			wait := m.cfg.Times.Backoff / 2
			for range l.times - 1 {
				wait = min(2*wait, 10*time.Minute)
			}
			l.until = now.Add(min(wait, 10*time.Minute))
		}
		m.lacks[q.key] = l
	}
}

// forget leaves of a repository what must wait for the next day.
func (m *plainMemory) forget(ref graspsync.RepoRef) {
	maps.DeleteFunc(m.lacks, func(key string, l *plainLack) bool {
		return key[:len(ref.String())] == ref.String() && !l.whatever
	})
}

// What servers are asked for, and when not, is what a memory says that keeps all it hears.
func TestMemoryAgainstAPlainOne(t *testing.T) {
	racetest.Amounts(t)
	for seed := range uint64(150) {
		compareMemories(t, rand.New(rand.NewPCG(seed, 3)))
	}
}

func compareMemories(t *testing.T, rng *rand.Rand) {
	cfg := Config{Limits: Limits{MaxRepoDay: 40, MaxHostDay: 50}, Times: Times{Backoff: time.Minute}}
	if rng.IntN(2) == 0 {
		cfg.Limits.MaxRepoDay, cfg.Limits.MaxHostDay = 1<<40, 1<<40
	}
	m, plain := newMemory(cfg), &plainMemory{cfg: cfg, lacks: make(map[string]*plainLack)}
	now := time.Now()
	var urls []graspsync.CloneURL
	for _, at := range []string{"a.example/x", "a.example/y", "b.example/x"} {
		u, err := graspsync.ParseCloneURL("https://" + at)
		require.NoError(t, err)
		urls = append(urls, u)
	}
	ids := make([]nip34.ObjectID, 7)
	for i := range ids {
		ids[i], _ = nip34.ParseObjectID(fmt.Sprintf("%040x", i+1))
	}
	refs := []graspsync.RepoRef{{Owner: graspsync.PubKey{1}, Identifier: "r"}, {Owner: graspsync.PubKey{2}, Identifier: "r"}}
	draw := func() (n resolve.Need) {
		n.Own, n.Strangers = urls[:1+rng.IntN(2)], urls[2:]
		n.Authors = make(map[nip34.ObjectID]graspsync.PubKey)
		states := rng.IntN(4) // of states, none at times
		for i, id := range ids {
			switch {
			case rng.IntN(4) == 0:
				continue
			case i < states:
				n.States = append(n.States, id)
			default:
				n.Authors[id] = graspsync.PubKey{byte(rng.IntN(3))}
			}
			n.IDs = append(n.IDs, id)
		}
		return n
	}
	needs := []resolve.Need{draw(), draw()}
	for range 120 {
		now = now.Add([]time.Duration{0, time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 10 * time.Minute, time.Hour, 12 * time.Hour}[rng.IntN(8)])
		i := rng.IntN(2)
		if rng.IntN(12) == 0 {
			needs[i] = draw()
		}
		ref, from, n := refs[i], urls[rng.IntN(3)], needs[i]
		if rng.IntN(25) == 0 {
			m.forget(ref)
			plain.forget(ref)
		}
		got, want := m.choose(now, ref, from, n), plain.choose(now, ref, from, n)
		require.Equal(t, want.pulls, got.pulls)
		require.Equal(t, want.stranger, got.stranger)
		require.Equal(t, want.roomless, got.roomless)
		require.Equal(t, want.asked, slices.Clip(append([]nip34.ObjectID(nil), got.ids...)))
		require.Equal(t, want.several, got.several)
		require.Equal(t, want.last, got.last)
		why := plain.refuses(now, want)
		require.Equal(t, why, m.refuses(now, got))
		require.Equal(t, plain.full(want), m.full(got))
		if why == "" {
			seen := Fetched{Wanted: len(got.ids), Bytes: int64(rng.IntN(3) * rng.IntN(15))}
			switch rng.IntN(8) {
			case 7:
				seen.Err = fmt.Errorf("%w: %w", ErrSlow, ErrLimit)
			case 0:
				seen.Err = ErrNotServed
			case 6:
				seen.Err = fmt.Errorf("%w: %w", ErrLimit, ErrFull)
			case 1:
				seen.Missing = seen.Wanted
			case 2:
				seen.Missing = max(0, seen.Wanted-1)
			case 3:
				seen.Err = fmt.Errorf("%w: bytes", ErrLimit)
			case 4:
				if got.pulls { // it is only these that are refused for that
					seen.Err = fmt.Errorf("%w: %w", ErrLimit, errNoRoom)
				}
			default:
				seen.Err = errors.New("busy")
			}
			m.learn(now, got, seen)
			plain.learn(now, want, seen)
		}
		size := 0
		for _, of := range m.lacks {
			require.NotEmpty(t, of)
			size += len(of)
		}
		require.Equal(t, size, m.size)
		require.Len(t, plain.lacks, size)
	}
}

// What is remembered is bounded, by repositories as by servers: something goes for what comes,
// though it must not be asked for before the next day.
func TestMemoryIsBounded(t *testing.T) {
	m, now := newMemory(Config{}), time.Now()
	for i := range maxMemory + 10 {
		ref := graspsync.RepoRef{Identifier: fmt.Sprint(i)}
		m.put(ref, urlKey{}, lack{whatever: true, until: now.Add(day)})
		add(m.repos, repoDay{repo: ref}, 1, now)
		if i > 10 && i < maxMemory-10 {
			continue
		}
		require.Equal(t, min(i+1, maxMemory), m.size)
		require.Len(t, m.lacks[ref], 1, "what came last is there")
		require.Equal(t, min(i+1, maxMemory), len(m.repos))
		require.EqualValues(t, 1, spent(m.repos, repoDay{repo: ref}, now))
	}
}
