package gitserve_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// post begins a request that announces more data than text.
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

func status(t *testing.T, conn net.Conn) int {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// allowed begins a push for a stored event.
func (r *rig) allowed() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tips[event] = r.tip
	return packet(null + " " + r.tip + " refs/nostr/" + event + "\x00report-status")
}

// A client that read 20 KB/s constantly was cut off after half a minute, because written data is
// seen in steps of more than a megabyte. The test is a hundred times as fast.
func TestSlowReadersAreServed(t *testing.T) {
	racetest.Amounts(t)
	const size = 16 << 20
	r := slowly(t, gitserve.Config{}.With(gitserve.Fixed{
		RateWindow: time.Second,
	}), fmt.Sprintf("cat OUT; head -c %d /dev/zero", size))
	u, err := url.Parse(r.url)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	defer conn.Close()
	// With a large buffer the server would see the client's progress in steps of megabytes.
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(64<<10))
	_, err = fmt.Fprintf(conn, "POST /%s/x.git/%s HTTP/1.0\r\nHost: x\r\nContent-Length: 4\r\n\r\n0000", owner.Npub(), uploadPack)
	require.NoError(t, err)
	got := 0
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for p := make([]byte, 20_000); ; <-tick.C {
		n, err := io.ReadFull(conn, p)
		if got += n; err != nil {
			break
		}
	}
	require.Greater(t, got, size)
}

// A git without output is ended. A client may read an answer slowly.
func TestAnswersAreNotBoundInTime(t *testing.T) {
	r := slowly(t, gitserve.Config{}.With(gitserve.Fixed{Timeout: 700 * time.Millisecond}), "cat OUT; for i in 1 2 3 4 5 6 7 8; do sleep 0.1; echo x; done; exec sleep 1000")
	began := time.Now()
	_, text := r.do(t, "POST", "/"+owner.Npub()+"/x.git/"+uploadPack, "0000")
	require.Equal(t, 8, strings.Count(text, "x\n"))
	require.Greater(t, time.Since(began), 800*time.Millisecond)
}

// A client that does not read its answer keeps the git process until another request needs it.
func TestSlowReaderYields(t *testing.T) {
	r := slowly(t, gitserve.Config{MaxPushes: 1, MaxFetches: 1}.With(gitserve.Fixed{RateWindow: 4 * time.Second}), "cat OUT; head -c 15000000 /dev/zero")
	u, err := url.Parse(r.url)
	require.NoError(t, err)
	for _, service := range []string{uploadPack, uploadPack} {
		conn, err := net.Dial("tcp", u.Host)
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		_, err = fmt.Fprintf(conn, "GET /%s/x.git/info/refs?service=%s HTTP/1.1\r\nHost: x\r\n\r\n", owner.Npub(), service)
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		require.NoError(t, err)
		require.Equal(t, 1, r.count(t, "running", "ask"))
		resp, _ := r.do(t, "GET", "/"+owner.Npub()+"/x.git/info/refs?service="+service, "")
		require.Equal(t, http.StatusOK, resp.StatusCode, "it needs the same process")
		r.taken(t, "requests", "ask", 0)
	}
	require.EqualValues(t, 2, r.count(t, "shed_total", "ask"))
}

// A request waits for a slot, and is then refused with Retry-After.
func TestNoPlace(t *testing.T) {
	r := newRig(t, gitserve.Config{MaxPushes: 1, MaxFetches: 1}.With(gitserve.Fixed{MaxReaders: 1, Wait: 100 * time.Millisecond}))
	at := "/" + owner.Npub() + "/x.git/"
	again := func(method, path, body string) {
		t.Helper()
		began := time.Now()
		resp, _ := r.do(t, method, path, body)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, path)
		require.Equal(t, "30", resp.Header.Get("Retry-After"))
		require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
	}
	for service, kind := range map[string]string{uploadPack: "fetch", receivePack: "push"} {
		if kind == "fetch" { // a push gets the error in a report
			empty := r.git.Fill(kind)
			again("POST", at+service, "0000")
			empty()
		}
		conn := r.post(t, service, "") // takes the only slot
		r.taken(t, "requests", kind, 1)
		again("POST", at+service, "0000")
		require.NoError(t, conn.Close())
		r.taken(t, "requests", kind, 0)
		resp, _ := r.do(t, "POST", at+service, "0000")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		empty := r.git.Fill("ask")
		again("GET", at+"info/refs?service="+service, "")
		again("POST", at+uploadPack, "0014command=ls-refs"+"0000")
		empty()
		for _, kind := range []string{kind, "page"} {
			empty = r.git.Fill(kind)
			git(t, r.work, "ls-remote", r.repo()) // lists of refs have separate slots
			empty()
		}
		empty = r.git.Fill("page")
		again("GET", strings.TrimSuffix(at, "/"), "")
		empty()
	}
}
