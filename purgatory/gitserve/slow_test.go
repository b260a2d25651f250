package gitserve

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
)

// post begins a push or a fetch that says it has more to send than text.
func (r *rig) post(t *testing.T, service, text string, header ...string) net.Conn {
	t.Helper()
	u, err := url.Parse(r.url)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	lines := strings.Join(append(header, "Host: x"), "\r\n")
	_, err = fmt.Fprintf(conn, "POST /%s/x.git/%s HTTP/1.1\r\n%s\r\nContent-Length: 1000000\r\n\r\n%s", owner.Npub(), service, lines, text)
	require.NoError(t, err)
	return conn
}

// drip sends a byte now and then, until it can't.
func drip(t *testing.T, conn net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := conn.Write([]byte("0")); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
}

func status(t *testing.T, conn net.Conn) int {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

func taken(t *testing.T, p *places, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return has(p) == n }, 10*time.Second, time.Millisecond)
}

// unused waits until nobody uses a repository: the answer comes before that.
func unused(t *testing.T, r *Repositories) {
	t.Helper()
	require.Eventually(t, func() bool {
		return r.inUse.Len() == 0
	}, 10*time.Second, time.Millisecond)
}

func has(p *places) int {
	n, _ := p.count()
	return n
}

// fill takes all places, for somebody else.
func fill(t *testing.T, p *places) (empty func()) {
	t.Helper()
	var leave []func()
	for i := 0; ; i++ {
		one, ok := p.try(party{owner: fmt.Sprint(i), repo: fmt.Sprint(i)})
		if !ok {
			return func() {
				for _, f := range leave {
					f()
				}
			}
		}
		leave = append(leave, one)
	}
}

// allowed begins a push for an event that is known.
func (r *rig) allowed() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tips[event] = r.tip
	return packet(null + " " + r.tip + " refs/nostr/" + event + "\x00report-status")
}

// A place was taken before a byte was read: eight connections that sent a byte now and
// then, or a push that is refused, kept all pushes away.
func TestPushWithoutAuthorityTakesNoPlace(t *testing.T) {
	r := newRig(t, Config{MaxPushes: 1})
	for range 3 {
		r.post(t, receivePack, "")
		r.post(t, receivePack, "0")
		r.post(t, receivePack, packet(null+" "+r.tip+" refs/heads/main\x00report-status")) // there is no state
	}
	taken(t, r.git.pushes.visits.room, 9)
	git(t, r.work, "push", "-q", r.repo(), "main:refs/nostr/"+event)
	require.Equal(t, 9, has(r.git.pushes.visits.room))
}

// However patiently somebody sends, commands have their time in all.
func TestCommandTime(t *testing.T) {
	const most = 200 * time.Millisecond
	r := newRig(t, Config{fixed: numbers{CommandTime: most, MaxReaders: 2}})
	slow := r.post(t, receivePack, "1000")
	drip(t, slow)
	require.Equal(t, http.StatusBadRequest, status(t, slow))
	taken(t, r.git.pushes.visits.room, 0)
	git(t, r.work, "push", "-q", r.repo(), "main:refs/nostr/"+event)
}

// The time for commands ends with them: a push may send its pack, and wait for its place.
func TestCommandTimeEndsWithTheCommands(t *testing.T) {
	r := newRig(t, Config{fixed: numbers{CommandTime: 200 * time.Millisecond}, MaxPushes: 1})
	empty := fill(t, r.git.pushes.places)
	conn := r.post(t, receivePack, r.allowed())
	time.Sleep(400 * time.Millisecond)
	_, err := conn.Write(make([]byte, 1_000_000-len(r.allowed())))
	require.NoError(t, err)
	time.Sleep(400 * time.Millisecond)
	empty()
	require.Equal(t, http.StatusOK, status(t, conn)) // git says what it thinks of that
}

// Who sends a pack, or takes an answer, more slowly than he must is cut off, though he
// is never idle.
func TestMinRate(t *testing.T) {
	r := newRig(t, Config{fixed: numbers{MinRate: 100 << 10, RateWindow: 300 * time.Millisecond}, MaxPushes: 1, MaxFetches: 1})
	push := r.post(t, receivePack, r.allowed())
	ask := r.post(t, uploadPack, "0032want ")
	taken(t, r.git.pushes.visits.room, 1)
	drip(t, push)
	drip(t, ask)
	require.Equal(t, http.StatusOK, status(t, push)) // with a report
	require.Equal(t, http.StatusBadRequest, status(t, ask))
	taken(t, r.git.pushes.visits.room, 0)
	git(t, r.work, "push", "-q", r.repo(), "main:refs/nostr/"+event)
}

func TestMinRateOfAnAnswer(t *testing.T) {
	r := slowly(t, Config{fixed: numbers{MinRate: 1 << 20, RateWindow: 300 * time.Millisecond}, MaxFetches: 1}, "cat OUT; exec cat /dev/zero")
	u, err := url.Parse(r.url)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
	_, err = fmt.Fprintf(conn, "POST /%s/x.git/%s HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n0000", owner.Npub(), uploadPack)
	require.NoError(t, err)
	taken(t, r.git.fetches.places, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p := make([]byte, 1<<10); ; time.Sleep(20 * time.Millisecond) {
			if _, err := conn.Read(p); err != nil {
				return
			}
		}
	}()
	taken(t, r.git.fetches.places, 0)
	taken(t, r.git.fetches.visits.room, 0)
	require.NoError(t, conn.Close())
	<-done
}

// Who reads 20 KB/s all the time was cut off after half a minute, in which the system had
// no room for more: what is read is seen when more than a megabyte was. All is 200 times
// as fast here.
func TestSlowReadersAreServed(t *testing.T) {
	racetest.Amounts(t)
	const size = 16 << 20
	r := slowly(t, Config{fixed: numbers{
		MinRate:    100 << 10,
		Idle:       150 * time.Millisecond,
		RateWindow: 150 * time.Millisecond,
	}}, fmt.Sprintf("cat OUT; head -c %d /dev/zero", size))
	u, err := url.Parse(r.url)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /%s/x.git/%s HTTP/1.0\r\nHost: x\r\nContent-Length: 4\r\n\r\n0000", owner.Npub(), uploadPack)
	require.NoError(t, err)
	got := 0
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for p := make([]byte, 20_000); ; <-tick.C {
		n, err := io.ReadFull(conn, p)
		if got += n; err != nil {
			break
		}
	}
	require.Greater(t, got, size)
}

// Git that says nothing any more is ended; who takes what it says may take his time.
func TestAnswersAreNotBoundInTime(t *testing.T) {
	r := slowly(t, Config{fixed: numbers{Timeout: 500 * time.Millisecond}}, "cat OUT; for i in 1 2 3 4 5 6 7 8; do sleep 0.2; echo x; done; exec sleep 1000")
	began := time.Now()
	_, text := r.do(t, "POST", "/"+owner.Npub()+"/x.git/"+uploadPack, "0000")
	require.Equal(t, 8, strings.Count(text, "x\n"))
	require.Greater(t, time.Since(began), 1600*time.Millisecond)
}

// Git is not kept running for ever by who takes what it says a little at a time.
func TestGitIsNotKeptRunning(t *testing.T) {
	r := slowly(t, Config{fixed: numbers{Timeout: 500 * time.Millisecond}}, "cat OUT; while :; do echo y; sleep 0.01; done")
	_, text := r.do(t, "POST", "/"+owner.Npub()+"/x.git/"+uploadPack, "0000")
	require.Contains(t, text, "y\ny\n")
}

// Everybody may ask what is here: who does not take the answer keeps no place.
func TestSlowReaderOfAnAdvertisement(t *testing.T) {
	r := slowly(t, Config{MaxPushes: 1, MaxFetches: 1}, "cat OUT; head -c 15000000 /dev/zero")
	configured(t, r.dir())
	u, err := url.Parse(r.url)
	require.NoError(t, err)
	for i, service := range []string{uploadPack, receivePack} {
		conn, err := net.Dial("tcp", u.Host)
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		_, err = fmt.Fprintf(conn, "GET /%s/x.git/info/refs?service=%s HTTP/1.1\r\nHost: x\r\n\r\n", owner.Npub(), service)
		require.NoError(t, err)
		p := make([]byte, 1)
		_, err = conn.Read(p)
		require.NoError(t, err)
		taken(t, r.git.asks.places, 0)
		unused(t, r.repos)
		require.Equal(t, i+1, has(r.git.asks.visits.room), "it is still being answered")
	}
}

// stuck is a client that takes nothing until it is told to.
type stuck struct {
	*httptest.ResponseRecorder
	told chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.told
	return s.ResponseRecorder.Write(p)
}

// What a client has not taken is kept, also while it is being written, and its file is
// written round and round.
func TestSpoolKnowsWhatIsUnheard(t *testing.T) {
	const most = 100_000
	r := newRig(t, Config{})
	text := make([]byte, 10*most)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(text) // never fails
	w := &stuck{httptest.NewRecorder(), make(chan struct{})}
	s, err := r.git.disk.newSpool(t.Context(), w, nil, most)
	require.NoError(t, err)
	n, err := s.Write(text[:most])
	require.NoError(t, err)
	require.Equal(t, most, n)
	require.EqualValues(t, most, s.left())
	close(w.told)
	for p := text[most:]; len(p) > 0; {
		n, err := s.Write(p[:min(len(p), 7001)])
		require.NoError(t, err)
		p = p[n:]
	}
	s.close()
	require.True(t, bytes.Equal(text, w.Body.Bytes()))
	_, err = s.file.(*os.File).Stat()
	require.Error(t, err, "its file is closed")
}

// Who has gone is not written for, and git is told so.
func TestSpoolOfAClientThatHasGone(t *testing.T) {
	r := newRig(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	w := &stuck{httptest.NewRecorder(), make(chan struct{})}
	s, err := r.git.disk.newSpool(ctx, w, nil, 1000)
	require.NoError(t, err)
	wrote := make(chan error)
	go func() {
		_, err := s.Write(make([]byte, 2000))
		wrote <- err
	}()
	require.Eventually(t, func() bool { return s.left() == 1000 }, 10*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-wrote, errGone)
	_, err = s.Write([]byte("x"))
	require.ErrorIs(t, err, errGone)
	close(w.told)
	s.close()

	s, err = r.git.disk.newSpool(t.Context(), gone{httptest.NewRecorder()}, nil, 1000)
	require.NoError(t, err)
	_, err = s.Write(make([]byte, 5000))
	require.ErrorIs(t, err, errGone)
	s.close()

	s, err = r.git.disk.newSpool(t.Context(), httptest.NewRecorder(), nil, 1000)
	require.NoError(t, err)
	require.NoError(t, s.file.Close())
	_, err = s.Write(make([]byte, 10))
	require.ErrorIs(t, err, os.ErrClosed, "a disk that fails")
	s.close()
}

// Where the disk is full git is not ahead of its client by much, but goes on.
func TestSpoolWithoutRoom(t *testing.T) {
	for name, full := range map[string]int64{"from the first": 0, "later": leastAhead + roomEvery} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{MinFreeDisk: 1})
			var asked int64
			r.git.disk.free = func(string) (uint64, error) {
				if asked += roomEvery; asked > full {
					return 0, nil
				}
				return 1 << 40, nil
			}
			w := &stuck{httptest.NewRecorder(), make(chan struct{})}
			s, err := r.git.disk.newSpool(t.Context(), w, nil, maxAhead)
			require.NoError(t, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = s.Write(make([]byte, 3*roomEvery))
			}()
			require.Eventually(t, func() bool { return s.left() == max(full, leastAhead) }, 10*time.Second, time.Millisecond)
			close(w.told)
			<-done
			s.close()
			require.Equal(t, 3*roomEvery, w.Body.Len())
		})
	}
}

// Without a place one is waited for, and then the client is told to come again.
func TestNoPlace(t *testing.T) {
	r := newRig(t, Config{MaxPushes: 1, MaxFetches: 1, fixed: numbers{MaxReaders: 1, Wait: 100 * time.Millisecond}})
	at := "/" + owner.Npub() + "/x.git/"
	again := func(method, path, body string) {
		t.Helper()
		began := time.Now()
		resp, _ := r.do(t, method, path, body)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, path)
		require.Equal(t, "30", resp.Header.Get("Retry-After"))
		require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
	}
	body := map[string]string{uploadPack: "0000", receivePack: r.allowed()}
	for service, way := range map[string]lane{uploadPack: r.git.fetches, receivePack: r.git.pushes} {
		for _, p := range []*places{way.places, way.visits.room} {
			if service == receivePack && p == way.places {
				continue // it hears that by a report
			}
			empty := fill(t, p)
			again("POST", at+service, body[service])
			empty()
			resp, _ := r.do(t, "POST", at+service, body[service])
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
		for _, p := range []*places{r.git.asks.places, r.git.asks.visits.room} {
			empty := fill(t, p)
			again("GET", at+"info/refs?service="+service, "")
			again("GET", strings.TrimSuffix(at, "/"), "") // the page takes as much reading
			empty()
		}
		empty := fill(t, way.places)
		git(t, r.work, "ls-remote", r.repo()) // that has room of its own
		empty()
		empty = fill(t, r.git.asks.places)
		again("POST", at+uploadPack, listsRefs+"0000")
		empty()
	}
}

// One client does not keep others away, whatever it does; where there is room it may have
// more than its share: many may come from one address.
func TestMaxPerClient(t *testing.T) {
	r := newRig(t, Config{
		fixed: numbers{MaxReaders: 12, MaxPerClient: 2, Wait: 100 * time.Millisecond}, Client: func(r *http.Request) string { return r.Header.Get("X-Real-IP") },
	})
	var held []net.Conn
	for range 6 {
		held = append(held, r.post(t, uploadPack, "", "X-Real-IP: a"))
	}
	room := r.git.fetches.visits.room
	taken(t, room, 6)
	ask := func(name string) int {
		resp, _ := r.do(t, "POST", "/"+owner.Npub()+"/x.git/"+uploadPack, "0000", "X-Real-IP", name)
		return resp.StatusCode
	}
	require.Equal(t, http.StatusServiceUnavailable, ask("a"))
	for range 2 {
		r.post(t, uploadPack, "") // has no name
	}
	taken(t, room, 8)
	require.Equal(t, http.StatusOK, ask("b"))
	for _, conn := range held {
		require.NoError(t, conn.Close())
	}
	taken(t, room, 2)
	require.Eventually(t, func() bool { return ask("a") == http.StatusOK }, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool {
		room.mu.Lock()
		defer room.mu.Unlock()
		return room.shares[share{byClient, "a"}] == nil
	}, 10*time.Second, time.Millisecond, "who is gone is forgotten")
}

func TestRemote(t *testing.T) {
	for from, want := range map[string]string{
		"8.8.8.8:1":               "8.8.8.8",
		"[::ffff:8.8.8.8]:1":      "8.8.8.8",
		"[2a00:1:2:3:4:5:6:7]:80": "2a00:1:2:3:4:5:6:7",
		"127.0.0.1:1":             "",
		"[::1]:1":                 "",
		"172.17.0.1:1":            "",
		"[fe80::1%eth0]:1":        "",
		"@":                       "",
		"x:1":                     "",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = from
		require.Equal(t, want, remote(r), from)
	}
}

// Whoever says whose a request is: a host has as many addresses of IPv6 as he likes.
func TestClientsAreNetworks(t *testing.T) {
	for name, want := range map[string][2]string{
		"8.8.8.8":            {"8.8.8.8", "8.8.8.0/24"},
		"::ffff:8.8.8.8":     {"8.8.8.8", "8.8.8.0/24"},
		"2a00:1:2:3:4:5:6:7": {"2a00:1:2:3::/64", "2a00:1:2::/48"},
		"2a00:1:2:3::1":      {"2a00:1:2:3::/64", "2a00:1:2::/48"},
		"2a00:1:2:4::1%zone": {"2a00:1:2:4::/64", "2a00:1:2::/48"},
		"somebody":           {"somebody", "somebody"},
		"":                   {"", ""},
	} {
		client, network := identify(name)
		require.Equal(t, want, [2]string{client, network}, name)
	}
}

// The name that a header gives counts as an address as well.
func TestPartyOfARequest(t *testing.T) {
	r := newRig(t, Config{Client: func(r *http.Request) string { return r.Header.Get("X-Real-IP") }})
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	req.Header.Set("X-Real-IP", "2a00:1:2:3:4:5:6:7")
	require.Equal(t, party{"2a00:1:2:3::/64", "2a00:1:2::/48", owner.Hex(), owner.Ref("x").String()}, r.git.party(req, owner.Ref("x")))
}

func TestPace(t *testing.T) {
	now := time.Unix(1000, 0)
	p := Config{fixed: numbers{Idle: 20 * time.Second, RateWindow: 30 * time.Second, MinRate: 10}}.sending(nil, now.Add(time.Hour))
	in := func(seconds int) {
		t.Helper()
		require.Equal(t, time.Duration(seconds)*time.Second, p.deadline(now).Sub(now))
	}
	in(20)
	p.step(100, 15*time.Second)
	in(15) // of the window
	p.step(199, 10*time.Second)
	in(5)
	now = now.Add(time.Minute) // we kept it waiting
	in(5)
	p.step(1, 4*time.Second)
	in(20) // that was enough
	p.step(1000, 0)
	p.step(0, 29*time.Second)
	in(1) // what it sent before helps it no more
	p.end = now
	in(0)
}

// wire is a connection on which every step takes its time.
type wire struct {
	http.ResponseWriter
	step          time.Duration
	reads, writes time.Time // the deadlines
}

func (w *wire) SetReadDeadline(at time.Time) error {
	w.reads = at
	return nil
}

func (w *wire) SetWriteDeadline(at time.Time) error {
	w.writes = at
	return nil
}

func (w *wire) FlushError() error { return nil }

func (w *wire) take(p []byte, until time.Time) (int, error) {
	time.Sleep(w.step)
	if time.Now().After(until) {
		return 0, os.ErrDeadlineExceeded
	}
	return len(p), nil
}

func (w *wire) Read(p []byte) (int, error)  { return w.take(p, w.reads) }
func (w *wire) Write(p []byte) (int, error) { return w.take(p, w.writes) }

// Whoever keeps the least rate may be slow for as long as his request may take; who is a
// little slower is cut off within a window.
func TestSteadyClients(t *testing.T) {
	for name, tt := range map[string]struct {
		step time.Duration
		ok   bool
	}{"fast enough": {3700 * time.Millisecond, true}, "too slow": {4100 * time.Millisecond, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, reading := range []bool{true, false} {
					w := &wire{step: tt.step}
					pace := Config{}.withDefaults().sending(nil, time.Time{})
					if !reading {
						pace = Config{}.withDefaults().taking(nil, time.Time{})
					}
					began, done, err := time.Now(), 0, error(nil)
					for p := make([]byte, piece); err == nil && done < 1<<20; {
						var n int
						if reading {
							n, err = (&patientBody{Reader: w, c: http.NewResponseController(w), pace: &pace}).Read(p)
						} else {
							n, err = (&patient{w, http.NewResponseController(w), &pace}).Write(p)
						}
						done += n
						time.Sleep(time.Minute) // what we need does not count
					}
					if tt.ok {
						require.NoError(t, err)
						continue
					}
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
					require.Less(t, time.Since(began), 70*time.Minute, "with %d pauses", done/piece)
				}
			})
		})
	}
}
