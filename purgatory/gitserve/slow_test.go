package gitserve

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
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

func taken(t *testing.T, tokens chan struct{}, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(tokens) == n }, 10*time.Second, time.Millisecond)
}

func (r *rig) allowed() string {
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
	taken(t, r.git.pushes.readers, 9)
	git(t, r.work, "push", "-q", r.repo(), "main:refs/nostr/"+event)
	require.Len(t, r.git.pushes.readers, 9)
}

// However patiently somebody sends: commands have their time in all, and what is refused
// has no more.
func TestCommandTime(t *testing.T) {
	const most = 200 * time.Millisecond
	r := newRig(t, Config{CommandTime: most, MaxReaders: 2})
	slow := r.post(t, receivePack, "1000")
	drip(t, slow)
	refused := r.post(t, receivePack, packet(null+" "+r.tip+" refs/heads/main\x00report-status"))
	drip(t, refused)
	require.Equal(t, http.StatusBadRequest, status(t, slow))
	require.Equal(t, http.StatusForbidden, status(t, refused))
	taken(t, r.git.pushes.readers, 0)
	git(t, r.work, "push", "-q", r.repo(), "main:refs/nostr/"+event)
}

// So does what is refused when it had its place already.
func TestCommandTimeOfAPushWithoutRoom(t *testing.T) {
	r := newRig(t, Config{CommandTime: 200 * time.Millisecond})
	r.git.free = func(string) (uint64, error) { return 0, nil }
	conn := r.post(t, receivePack, r.allowed())
	drip(t, conn)
	require.Equal(t, http.StatusInsufficientStorage, status(t, conn))
}

// The time for commands ends with them: a push may wait for its place, and send its pack.
func TestCommandTimeEndsWithTheCommands(t *testing.T) {
	r := newRig(t, Config{CommandTime: 200 * time.Millisecond, MaxPushes: 1})
	r.git.pushes.places <- struct{}{}
	conn := r.post(t, receivePack, r.allowed())
	time.Sleep(400 * time.Millisecond)
	<-r.git.pushes.places
	taken(t, r.git.pushes.places, 1)
	_, err := conn.Write(make([]byte, 1_000_000-len(r.allowed())))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status(t, conn)) // git says what it thinks of that
}

// Who sends a pack, or takes an answer, more slowly than he must is cut off, though he
// is never idle. His place is free then.
func TestMinRate(t *testing.T) {
	r := newRig(t, Config{MinRate: 100 << 10, RateWindow: 300 * time.Millisecond, MaxPushes: 1, MaxFetches: 1})
	push := r.post(t, receivePack, r.allowed())
	ask := r.post(t, uploadPack, "0032want ")
	taken(t, r.git.pushes.places, 1)
	drip(t, push)
	drip(t, ask)
	require.Equal(t, http.StatusBadRequest, status(t, push))
	require.Equal(t, http.StatusBadRequest, status(t, ask))
	taken(t, r.git.pushes.places, 0)
	git(t, r.work, "push", "-q", r.repo(), "main:refs/nostr/"+event)
}

func TestMinRateOfAnAnswer(t *testing.T) {
	r := slowly(t, Config{MinRate: 1 << 20, RateWindow: 300 * time.Millisecond, MaxFetches: 1}, "cat OUT; exec cat /dev/zero")
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
	taken(t, r.git.fetches.readers, 0)
	require.NoError(t, conn.Close())
	<-done
}

// Everybody may ask what is here: who does not take the answer keeps no place.
func TestSlowReaderOfAnAdvertisement(t *testing.T) {
	r := slowly(t, Config{MaxPushes: 1, MaxFetches: 1}, "cat OUT; head -c 15000000 /dev/zero")
	u, err := url.Parse(r.url)
	require.NoError(t, err)
	for service, way := range map[string]lane{uploadPack: r.git.fetches, receivePack: r.git.pushes} {
		conn, err := net.Dial("tcp", u.Host)
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		_, err = fmt.Fprintf(conn, "GET /%s/x.git/info/refs?service=%s HTTP/1.1\r\nHost: x\r\n\r\n", owner.Npub(), service)
		require.NoError(t, err)
		p := make([]byte, 1)
		_, err = conn.Read(p)
		require.NoError(t, err)
		taken(t, way.places, 0)
		require.Len(t, way.readers, 1, "it is still being answered")
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

// Who does not read what became of his push keeps no place, unless that is so much that
// many like him would fill the memory.
func TestSlowReaderOfAReport(t *testing.T) {
	for more, places := range map[int]int{0: 0, smallReport + 1: 1} {
		r := slowly(t, Config{MaxPushes: 1}, fmt.Sprintf("cat OUT; head -c %d /dev/zero", more))
		w := &stuck{httptest.NewRecorder(), make(chan struct{})}
		body := packet(null + " " + r.tip + " refs/nostr/" + event + "\x00report-status")
		tell := sync.OnceFunc(func() { close(w.told) })
		t.Cleanup(tell)
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.git.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+owner.Npub()+"/x.git/"+receivePack, strings.NewReader(body)))
		}()
		require.Eventually(t, func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.pushed) == 1
		}, 10*time.Second, time.Millisecond)
		time.Sleep(20 * time.Millisecond) // it is about to leave its place, or not
		taken(t, r.git.pushes.places, places)
		require.Len(t, r.git.pushes.readers, 1)
		tell()
		<-done
		require.Empty(t, r.git.pushes.places)
		require.Greater(t, w.Body.Len(), more, "all of it was heard")
	}
}

// What a client has not taken is kept, also while it is being written.
func TestSpoolKnowsWhatIsUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stuck{httptest.NewRecorder(), make(chan struct{})}
		s := newSpool(t.Context(), w)
		_, _ = s.Write(make([]byte, maxSpool)) // never fails
		synctest.Wait()
		require.Equal(t, maxSpool, s.left())
		close(w.told)
		synctest.Wait()
		require.Zero(t, s.left())
		s.close()
		require.Equal(t, maxSpool, w.Body.Len())
	})
}

// Without a place one is waited for, and then the client is told to come again.
func TestNoPlace(t *testing.T) {
	r := newRig(t, Config{MaxPushes: 1, MaxFetches: 1, MaxReaders: 1, Wait: 100 * time.Millisecond})
	at := "/" + owner.Npub() + "/x.git/"
	again := func(method, path string) {
		t.Helper()
		began := time.Now()
		resp, _ := r.do(t, method, path, "0000")
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, path)
		require.Equal(t, "30", resp.Header.Get("Retry-After"))
		require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
	}
	for service, way := range map[string]lane{uploadPack: r.git.fetches, receivePack: r.git.pushes} {
		for _, tokens := range []chan struct{}{way.places, way.readers} {
			tokens <- struct{}{}
			again("GET", at+"info/refs?service="+service)
			again("POST", at+service)
			<-tokens
			resp, _ := r.do(t, "POST", at+service, "0000")
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
	}
}

// One client does not keep others away, whatever it does.
func TestMaxPerClient(t *testing.T) {
	r := newRig(t, Config{
		MaxPerClient: 2, Wait: 100 * time.Millisecond,
		Client: func(r *http.Request) string { return r.Header.Get("X-Real-IP") },
	})
	r.post(t, receivePack, "", "X-Real-IP: a")
	held := r.post(t, uploadPack, "", "X-Real-IP: a")
	require.Eventually(t, func() bool { return len(r.git.pushes.readers)+len(r.git.fetches.readers) == 2 }, 10*time.Second, time.Millisecond)
	ask := func(name string) int {
		resp, _ := r.do(t, "GET", "/"+owner.Npub()+"/x.git/info/refs?service="+uploadPack, "", "X-Real-IP", name)
		return resp.StatusCode
	}
	require.Equal(t, http.StatusServiceUnavailable, ask("a"))
	for range 3 {
		r.post(t, uploadPack, "") // has no name
	}
	taken(t, r.git.fetches.readers, 4)
	require.Equal(t, http.StatusOK, ask("b"))
	require.NoError(t, held.Close())
	taken(t, r.git.fetches.readers, 3)
	require.Eventually(t, func() bool { return ask("a") == http.StatusOK }, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool {
		r.git.clients.mu.Lock()
		defer r.git.clients.mu.Unlock()
		return len(r.git.clients.known) == 1
	}, 10*time.Second, time.Millisecond, "who is gone is forgotten")
}

func TestRemote(t *testing.T) {
	for from, want := range map[string]string{
		"8.8.8.8:1":               "8.8.8.8",
		"[::ffff:8.8.8.8]:1":      "8.8.8.8",
		"[2a00:1:2:3:4:5:6:7]:80": "2a00:1:2:3::/64",
		"[2a00:1:2:3::1]:81":      "2a00:1:2:3::/64",
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

func TestPace(t *testing.T) {
	now := time.Unix(1000, 0)
	p := Config{Idle: 20 * time.Second, RateWindow: 30 * time.Second, MinRate: 10}.pace(now.Add(time.Hour))
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
					pace := Config{}.withDefaults().pace(time.Time{})
					began, done, err := time.Now(), 0, error(nil)
					for p := make([]byte, piece); err == nil && done < 1<<20; {
						var n int
						if reading {
							n, err = (&patientBody{w, http.NewResponseController(w), &pace}).Read(p)
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
					require.Less(t, time.Since(began), 10*time.Minute)
				}
			})
		})
	}
}
