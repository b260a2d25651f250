package gitserve

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pieces is a body that comes in pieces of these sizes.
type pieces []int

func (p *pieces) Read(b []byte) (int, error) {
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := min((*p)[0], len(b))
	if (*p)[0] -= n; (*p)[0] == 0 {
		*p = (*p)[1:]
	}
	return n, nil
}

// incomingBody is the body of a request of at most so many bytes.
func incomingBody(t *testing.T, h *Handler, from io.Reader, most int64, encoding string) (*body, error) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", from)
	r.Header.Set("Content-Encoding", encoding)
	return h.open(httptest.NewRecorder(), r, nil, most, time.Time{})
}

// Whether there is room is asked each time when 8 MiB have come since, and not before.
func TestRoomIsAskedForNowAndThen(t *testing.T) {
	r := newRig(t, Config{})
	from := pieces{roomEvery - 1, 1, roomEvery - 1, 1, roomEvery + 5, roomEvery - 1, 1, roomEvery - 1}
	b, err := incomingBody(t, r.git, &from, 100<<20, "")
	require.NoError(t, err)
	defer b.close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, b.file.Close())
	b.file = null
	var asked []int64
	b.room = func() error {
		asked = append(asked, b.size())
		return nil
	}
	p := make([]byte, 2*roomEvery)
	for err == nil {
		_, err = b.Read(p)
	}
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, []int64{roomEvery, 2 * roomEvery, 3*roomEvery + 5, 4*roomEvery + 5}, asked)
	require.Equal(t, int64(5*roomEvery+4), b.size())
}

// A body is taken up to its bound, plain or packed, read and kept as it is, and what is broken
// or too much says so.
func TestBodyOfARequest(t *testing.T) {
	r := newRig(t, Config{})
	const most = 100
	for _, encoding := range []string{"", "identity", "gzip", "x-gzip", "GZIP", "br"} {
		for _, size := range []int{0, 1, most - 1, most, most + 1} {
			text := random(t, size)[:size]
			from := []byte(text)
			if strings.Contains(strings.ToLower(encoding), "gzip") {
				var z bytes.Buffer
				w := gzip.NewWriter(&z)
				_, err := io.WriteString(w, text)
				require.NoError(t, err)
				require.NoError(t, w.Close())
				from = z.Bytes()
			}
			b, err := incomingBody(t, r.git, iotest.OneByteReader(bytes.NewReader(from)), most, encoding)
			if encoding == "br" {
				require.ErrorIs(t, err, errBody)
				continue
			}
			require.NoError(t, err)
			err = b.readAll()
			if size > most {
				var limit *limitError
				require.ErrorAs(t, err, &limit, "%s %d", encoding, size)
				require.ErrorContains(t, limit, fmt.Sprint(most))
				b.close()
				continue
			}
			require.NoError(t, err, "%s %d", encoding, size)
			require.EqualValues(t, size, b.size())
			kept, err := io.ReadAll(b.file)
			require.NoError(t, err)
			require.Equal(t, text, string(kept))
			require.True(t, b.begins(text[:size/2]))
			require.True(t, b.begins(text))
			require.False(t, b.begins(text+"x"))
			b.close()
		}
	}
	_, err := incomingBody(t, r.git, strings.NewReader("no gzip"), most, "gzip")
	require.ErrorIs(t, err, errBody)
	b, err := incomingBody(t, r.git, iotest.ErrReader(io.ErrClosedPipe), most, "")
	require.NoError(t, err)
	require.ErrorIs(t, b.readAll(), errBody)
	b.close()
	for left, skipped := range map[int]bool{0: true, 9: true, 10: true, 11: false} {
		b, err := incomingBody(t, r.git, strings.NewReader(strings.Repeat("x", left)), most, "")
		require.NoError(t, err)
		err = b.skip(10, time.Time{})
		require.Equal(t, skipped, err == nil, left)
		b.close()
	}
}

// A disk has room for what leaves exactly as much free as must stay.
func TestRoom(t *testing.T) {
	r := newRig(t, Config{MinFreeDisk: 1000})
	free := uint64(0)
	r.git.disk.free = func(string) (uint64, error) { return free, nil }
	for _, c := range []struct {
		free uint64
		more int64
		room bool
	}{{0, 0, false}, {999, 0, false}, {1000, 0, true}, {1000, 1, false}, {1001, 1, true}, {1500, 500, true}, {1499, 500, false}, {math.MaxUint64, math.MaxInt64, true}} {
		free = c.free
		err := r.git.disk.room(c.more)
		require.Equal(t, c.room, err == nil, "%+v", c)
		if err != nil {
			require.ErrorIs(t, err, errDisk)
		}
	}
}

// A client has until its wait, its window or all its time is over, whichever is first.
func TestDeadlineOfAWait(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	now := time.Unix(1000, 0)
	for range 2000 {
		p := pace{
			idle: time.Duration(rng.IntN(5)), window: time.Duration(5 + rng.IntN(5)), least: int64(1 + rng.IntN(4)),
			waited: time.Duration(rng.IntN(5)), came: int64(rng.IntN(3)),
		}
		all := []time.Time{now.Add(p.idle), now.Add(p.window - p.waited)}
		if rng.IntN(2) == 0 {
			p.end = now.Add(time.Duration(rng.IntN(12) - 2))
			all = append(all, p.end)
		}
		require.Equal(t, slices.MinFunc(all, time.Time.Compare), p.deadline(now), "%+v", p)
		n, took := rng.IntN(4), time.Duration(rng.IntN(4))
		want := p
		want.came, want.waited = p.came+int64(n), p.waited+took
		if want.came >= p.least {
			want.came, want.waited = 0, 0
		}
		p.step(n, took)
		require.Equal(t, want, p)
	}
	require.EqualValues(t, 1, Config{fixed: numbers{MinRate: 1}}.least(time.Millisecond), "never nothing")
	require.EqualValues(t, 30_000, Config{fixed: numbers{MinRate: 1000}}.least(30*time.Second))
}

// What git answers is handed on: its status, those headers that clients of git look at, and
// every byte.
func TestAnswerOfGit(t *testing.T) {
	for text, want := range map[string]struct {
		status int
		err    bool
		body   string
	}{
		"Status: 404 Not Found\r\nContent-Type: a/b\r\n\r\ngone":               {status: 404, body: "gone"},
		"Status: 403\r\nContent-Type: a/b\r\n\r\n":                             {status: 403},
		"Content-Type: a/b\r\nCache-Control: no-cache\r\nX-Y: z\r\n\r\n1\n\n2": {status: 200, body: "1\n\n2"},
		"Expires: now\r\nPragma: no-cache\r\n\r\nx":                            {status: 200, body: "x"},
		"Status: none\r\n\r\nx":                                                {err: true},
		"Content-Type: a/b\r\n":                                                {err: true},
		"":                                                                     {err: true},
		"no header\r\n\r\n":                                                    {err: true},
	} {
		w := httptest.NewRecorder()
		status, err := answer(w, iotest.OneByteReader(strings.NewReader(text)))
		require.Equal(t, want.err, err != nil, text)
		require.Equal(t, want.status, status, text)
		require.Equal(t, want.body, w.Body.String())
		require.Equal(t, !want.err, w.Flushed || want.body == "" && w.Code == status, text)
		if err != nil {
			require.Empty(t, w.Header())
			continue
		}
		require.Equal(t, want.status, w.Code)
		for _, name := range []string{"Content-Type", "Cache-Control", "Expires", "Pragma"} {
			require.Equal(t, strings.Contains(text, name), w.Header().Get(name) != "", "%s: %s", text, name)
		}
		require.Empty(t, w.Header().Get("X-Y"))
		require.Empty(t, w.Header().Get("Status"))
	}
	status, err := answer(httptest.NewRecorder(), io.MultiReader(strings.NewReader("A: b\r\n\r\nx"), iotest.ErrReader(io.ErrClosedPipe)))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.Equal(t, 200, status)
	status, err = answer(gone{httptest.NewRecorder()}, strings.NewReader("A: b\r\n\r\nx"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.Equal(t, 200, status)
}

// The end of what git complains about is kept, and fit for a log.
func TestTail(t *testing.T) {
	for _, n := range []int{0, maxTail - 1, maxTail, maxTail + 1, 2*maxTail + 7} {
		text := fmt.Sprintf("%0*d", n, 123)[:n]
		for _, size := range []int{1, 7, max(n, 1)} {
			s := &tail{}
			for part := range slices.Chunk([]byte(text), size) {
				done, err := s.Write(part)
				require.NoError(t, err)
				require.Len(t, part, done)
			}
			require.Equal(t, `"`+text[max(0, n-300):]+`"`, s.String())
		}
	}
	s := &tail{}
	_, _ = s.Write([]byte("\x1b[2J"))
	require.Equal(t, `"\x1b[2J"`, s.String())
}

// Who has more than his share has to leave first, then who does not wait for his turn, then
// the slowest, and of those as slow whose owner has most.
func TestWhoLeavesFirst(t *testing.T) {
	var all []sight
	for i := range 3 * 3 * 4 {
		all = append(all, sight{over: i%2 == 0, queued: i/2%2 == 0, rate: float64(i / 4 % 3), crowd: i / 12})
	}
	value := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	for _, a := range all {
		for _, b := range all {
			want := cmp.Or(value(b.over)-value(a.over), value(a.queued)-value(b.queued), cmp.Compare(a.rate, b.rate), cmp.Compare(b.crowd, a.crowd))
			require.Equal(t, want, a.compare(b), "%+v %+v", a, b)
		}
	}
}

// The rate of a visit is judged when it has waited for its client for long enough, and is that
// of what came lately.
func TestSightOfAVisit(t *testing.T) {
	l := newVisits(Config{fixed: numbers{RateWindow: 100 * time.Second}}.withDefaults(), 1000) // settled after 10 s
	now := time.Unix(1000, 0)
	wait := func(time.Time) error { return nil }
	v := &visit{of: l, kept: 5, stalled: true}
	require.Equal(t, sight{kept: 5, stalled: true}, v.look(now), "it does not wait for it")
	require.NoError(t, v.arm(wait, now, now.Add(time.Hour)))
	require.False(t, v.look(now.Add(10*time.Second-1)).waits)
	require.True(t, v.look(now.Add(10*time.Second)).waits)
	require.NoError(t, v.disarm(3000, 20*time.Second))
	require.EqualValues(t, 3000, v.moved, "exactly twice as long is still looked at")
	require.Equal(t, 20*time.Second, v.waited)
	require.NoError(t, v.disarm(0, 10*time.Second))
	require.EqualValues(t, 1500, v.moved)
	require.Equal(t, 15*time.Second, v.waited)
	require.NoError(t, v.arm(wait, now, now.Add(time.Hour)))
	require.InDelta(t, 1500.0/20, v.look(now.Add(5*time.Second)).rate, 1e-9)
	require.Positive(t, v.look(now.Add(10*time.Second-1)).rate)
	require.Zero(t, v.look(now.Add(10*time.Second)).rate, "nothing came for as long")
	v.left = errBusy
	require.True(t, v.look(now).left)
	require.ErrorIs(t, v.arm(wait, now, now), errBusy)
	require.ErrorIs(t, v.disarm(0, 0), errBusy)
	require.NoError(t, (*visit)(nil).arm(wait, now, now))
	require.NoError(t, (*visit)(nil).disarm(1, 1))
	require.NoError(t, (*visit)(nil).keep(1))
}

// Of what all may keep nobody has more than three quarters, and no client more than a half.
func TestObstaclesOfWhatIsKept(t *testing.T) {
	l := newVisits(Config{}.withDefaults(), 1000)
	who := party{client: "c", network: "n", owner: "o", repo: "r"}
	for kept, want := range map[int64]struct {
		self, full bool
		shares     int
	}{500: {}, 501: {self: true}, 750: {self: true}, 751: {self: true, shares: 3}, 1000: {self: true, shares: 3}, 1001: {self: true, full: true, shares: 3}} {
		v := &visit{of: l, who: who}
		l.add(v, kept)
		o := l.obstacle(who)
		require.Equal(t, want.self, o.self, kept)
		require.Equal(t, want.full, o.full, kept)
		require.Len(t, o.shares, want.shares, kept)
		other := l.obstacle(party{owner: "x", repo: "y"})
		require.False(t, other.self)
		require.Empty(t, other.shares)
		require.Equal(t, want.full, other.full)
		l.add(v, -kept)
		require.Empty(t, l.of)
	}
}

// An owner may have what he may have, less one byte; so may pull requests, and all together.
func TestBoundsOfTheCeiling(t *testing.T) {
	for _, c := range []struct {
		owner, all int64
		pulls      bool
		want       error
	}{{owner: 100, want: errOwnerFull}, {owner: 100, pulls: true, want: errPullsFull}, {all: 100, want: errFull}, {all: 100, pulls: true, want: errFull}} {
		repos := newRepositories(t)
		l := measuring(repos, RepositoriesConfig{MaxOwnerBytes: c.owner, MaxBytes: c.all})
		lev := &levy{c: l, ref: owner.Ref("x"), pulls: c.pulls}
		require.NoError(t, lev.charge(99))
		require.ErrorIs(t, lev.charge(100), c.want)
		require.NoError(t, lev.charge(98), "what it sends is what counts")
		other := &levy{c: l, ref: owner.Ref("y"), pulls: !c.pulls}
		require.Equal(t, c.all > 0, other.charge(2) != nil, "of an owner the other kind has a room of its own")
		other.end()
		lev.end()
		require.Zero(t, l.sum)
		lev.end()
		require.Zero(t, l.sum)
		require.Equal(t, 2, l.sizes[owner.PubKey().String()].ends, "each counts once")
	}
	for name, now := range map[string]bool{
		"a.git/objects/pack/tmp_pack_1": true, "a.git/graspsync-quarantine-1/pack/x": true, "a.git/objects/tmp_objdir-1/x": true,
		"a.git/objects/pack/pack-1.pack": false, "a.git/refs/heads/my_tmp_x": false, "a.git/graspsync-linked": false,
	} {
		require.Equal(t, now, forNow(name), name)
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	for n := int64(1); n < 4; n++ {
		info, err := os.Stat(filepath.Join(dir, "a"))
		require.NoError(t, err)
		require.Equal(t, n, linksOf(info))
		require.NoError(t, os.Link(filepath.Join(dir, "a"), filepath.Join(dir, fmt.Sprint(n))))
	}
}

// All that is here is measured every hour, by one at a time.
func TestAllIsMeasuredEveryHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &ceiling{walking: make(chan struct{}, 1)}
		now := time.Now()
		require.True(t, c.stale(now), "it never was")
		require.False(t, c.stale(now), "somebody does it")
		<-c.walking
		c.walked = now
		require.False(t, c.stale(now.Add(time.Hour-1)))
		require.True(t, c.stale(now.Add(time.Hour)))
	})
}

// A client that reads is sent what comes in pieces, each in its time, and what it can't be sent
// is not taken for sent.
func TestPatientWrites(t *testing.T) {
	for _, n := range []int{0, 1, piece - 1, piece, piece + 1, 3*piece + 5} {
		w := &counting{ResponseRecorder: httptest.NewRecorder(), fails: math.MaxInt}
		p := &patient{ResponseWriter: w, c: http.NewResponseController(w), pace: &pace{idle: time.Hour, window: time.Hour, least: 1}}
		done, err := p.Write(make([]byte, n))
		require.NoError(t, err)
		require.Equal(t, n, done)
		require.Equal(t, n, w.Body.Len())
		require.Len(t, w.sizes, (n+piece-1)/piece)
		if len(w.sizes) > 1 {
			require.Equal(t, piece, w.sizes[0])
		}
	}
	w := &counting{ResponseRecorder: httptest.NewRecorder(), fails: 1}
	p := &patient{ResponseWriter: w, c: http.NewResponseController(w), pace: &pace{idle: time.Hour, window: time.Hour, least: 1}}
	done, err := p.Write(make([]byte, 3*piece))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.Equal(t, piece+1, done)
}

// counting fails after so many writes, in the midst of one.
type counting struct {
	*httptest.ResponseRecorder
	sizes []int
	fails int
}

func (c *counting) Write(p []byte) (int, error) {
	if len(c.sizes) == c.fails {
		return 1, io.ErrClosedPipe
	}
	c.sizes = append(c.sizes, len(p))
	return c.ResponseRecorder.Write(p)
}
