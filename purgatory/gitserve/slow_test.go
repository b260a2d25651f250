package gitserve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/limit"
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

func taken(t *testing.T, p *slots, n int) {
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

func has(p *slots) int {
	n, _ := p.Stats()
	return int(n)
}

// fill takes all slots, for nobody.
func fill(t *testing.T, p *slots) (empty func()) {
	t.Helper()
	var all []*limit.Slot
	for slot := p.TryAcquire(limit.Stranger{}, 1); slot != nil; slot = p.TryAcquire(limit.Stranger{}, 1) {
		all = append(all, slot)
	}
	return func() {
		for _, slot := range all {
			slot.Release()
		}
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
	taken(t, r.git.pushes.open, 9)
	git(t, r.work, "push", "-q", r.repo(), "main:refs/nostr/"+event)
	require.Equal(t, 9, has(r.git.pushes.open))
}

// However patiently somebody sends, commands have their time in all.
func TestCommandTime(t *testing.T) {
	const most = 200 * time.Millisecond
	r := newRig(t, Config{fixed: numbers{CommandTime: most, MaxReaders: 2}})
	slow := r.post(t, receivePack, "1000")
	drip(t, slow)
	require.Equal(t, http.StatusBadRequest, status(t, slow))
	taken(t, r.git.pushes.open, 0)
	git(t, r.work, "push", "-q", r.repo(), "main:refs/nostr/"+event)
}

// The time for commands ends with them: a push may send its pack, and wait for its place.
func TestCommandTimeEndsWithTheCommands(t *testing.T) {
	r := newRig(t, Config{fixed: numbers{CommandTime: 200 * time.Millisecond}, MaxPushes: 1})
	empty := fill(t, r.git.pushes.processes)
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
	taken(t, r.git.pushes.open, 1)
	drip(t, push)
	drip(t, ask)
	require.Equal(t, http.StatusOK, status(t, push)) // with a report
	require.Equal(t, http.StatusBadRequest, status(t, ask))
	taken(t, r.git.pushes.open, 0)
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
	taken(t, r.git.fetches.processes, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p := make([]byte, 1<<10); ; time.Sleep(20 * time.Millisecond) {
			if _, err := conn.Read(p); err != nil {
				return
			}
		}
	}()
	taken(t, r.git.fetches.processes, 0)
	taken(t, r.git.fetches.open, 0)
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

// A client that does not read its answer keeps the git process until somebody else wants it.
func TestSlowReaderYields(t *testing.T) {
	r := slowly(t, Config{MaxPushes: 1, MaxFetches: 1, fixed: numbers{RateWindow: 4 * time.Second}}, "cat OUT; head -c 15000000 /dev/zero")
	configured(t, r.dir())
	u, err := url.Parse(r.url)
	require.NoError(t, err)
	for _, service := range []string{uploadPack, receivePack} {
		conn, err := net.Dial("tcp", u.Host)
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		_, err = fmt.Fprintf(conn, "GET /%s/x.git/info/refs?service=%s HTTP/1.1\r\nHost: x\r\n\r\n", owner.Npub(), service)
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		require.NoError(t, err)
		require.Equal(t, 1, has(r.git.asks.processes))
		resp, _ := r.do(t, "GET", "/"+owner.Npub()+"/x.git", "")
		require.Equal(t, http.StatusOK, resp.StatusCode, "a page needs the same process")
		taken(t, r.git.asks.open, 0)
	}
	require.EqualValues(t, 2, r.git.asks.count())
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
	for service, way := range map[string]*requests{uploadPack: r.git.fetches, receivePack: r.git.pushes} {
		for _, p := range []*slots{way.processes, way.open} {
			if service == receivePack && p == way.processes {
				continue // it hears that by a report
			}
			empty := fill(t, p)
			again("POST", at+service, body[service])
			empty()
			resp, _ := r.do(t, "POST", at+service, body[service])
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
		for _, p := range []*slots{r.git.asks.processes, r.git.asks.open} {
			empty := fill(t, p)
			again("GET", at+"info/refs?service="+service, "")
			again("GET", strings.TrimSuffix(at, "/"), "") // the page takes as much reading
			empty()
		}
		empty := fill(t, way.processes)
		git(t, r.work, "ls-remote", r.repo()) // that has room of its own
		empty()
		empty = fill(t, r.git.asks.processes)
		again("POST", at+uploadPack, listsRefs+"0000")
		empty()
	}
}

// One client has a part of the requests of a kind, also where there is room.
func TestMaxPerClient(t *testing.T) {
	r := newRig(t, Config{
		fixed: numbers{MaxReaders: 12, MaxPerClient: 2, Wait: 100 * time.Millisecond}, Client: func(r *http.Request) string { return r.Header.Get("X-Real-IP") },
	})
	for _, name := range []string{"a", "a", "", "", ""} { // of these three are nobody's
		r.post(t, uploadPack, "", "X-Real-IP: "+name)
	}
	taken(t, r.git.fetches.open, 5)
	ask := func(name string) int {
		resp, _ := r.do(t, "POST", "/"+owner.Npub()+"/x.git/"+uploadPack, "0000", "X-Real-IP", name)
		return resp.StatusCode
	}
	require.Equal(t, http.StatusServiceUnavailable, ask("a"))
	require.Equal(t, http.StatusOK, ask("b"))
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
	for name, want := range map[string]limit.Stranger{
		"8.8.8.8":            {ID: "8.8.8.8", Group: "8.8.8.0/24"},
		"2a00:1:2:3:4:5:6:7": {ID: "2a00:1:2:3::/64", Group: "2a00:1:2::/48"},
		"2a00:1:2:3::/64":    {ID: "2a00:1:2:3::/64", Group: "2a00:1:2::/48"},
		"somebody":           {ID: "somebody"},
		"":                   {},
	} {
		require.Equal(t, want, clientNamed(name), name)
	}
}
