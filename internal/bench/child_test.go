package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
)

// remote is the relay process as seen from here. It must be used by one goroutine.
type remote struct {
	in    io.Writer
	out   *bufio.Scanner
	addr  string // host:port of the proxy
	total int
	ids   map[string]bool // of the events that a client must end up with
}

func (r *remote) url() string { return "ws://" + r.addr }

// startRemote starts the relay process with n events, and with others whose
// signature is not their author's.
func startRemote(tb testing.TB, n, forged int) *remote {
	tb.Helper()
	exe, err := os.Executable()
	require.NoError(tb, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), relayProcess+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(tb, err)
	out, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	tb.Cleanup(func() {
		in.Close()
		require.NoError(tb, cmd.Wait())
	})
	r := &remote{in: in, out: bufio.NewScanner(out), ids: make(map[string]bool)}
	r.addr = r.answer(tb)
	r.load(tb, newHub(tb, n, r.url()), forged)
	return r
}

// load gives the relay its events. Only their ids are kept here.
func (r *remote) load(tb testing.TB, events []*nostr.Event, forged int) {
	for _, ev := range events {
		r.ids[ev.ID] = true
	}
	r.total = len(events)
	for i := range forged {
		ev := *events[len(events)-1-i]
		ev.Content += "!"
		ev.ID = ev.GetID()
		events = append(events, &ev)
	}
	w := bufio.NewWriter(r.in)
	fmt.Fprintln(w, cmdLoad)
	for _, ev := range events {
		line, err := ev.MarshalJSON()
		require.NoError(tb, err)
		_, err = fmt.Fprintf(w, "%s\n", line)
		require.NoError(tb, err)
	}
	fmt.Fprintln(w)
	require.NoError(tb, w.Flush())
	require.Equal(tb, answerOK, r.answer(tb))
}

func (r *remote) answer(tb testing.TB) string {
	require.True(tb, r.out.Scan(), "the relay process has ended")
	return strings.TrimSpace(r.out.Text())
}

// be makes it one relay or the other and cuts all connections.
func (r *remote) be(tb testing.TB, relay string) {
	fmt.Fprintln(r.in, relay)
	require.Equal(tb, answerOK, r.answer(tb))
}

// usage returns what has come from and gone to the relay since be, in bytes, and the
// CPU time that it and the proxy took.
func (r *remote) usage(tb testing.TB) (in, out int64, cpu time.Duration) {
	fmt.Fprintln(r.in, cmdUsage)
	_, err := fmt.Sscan(r.answer(tb), &in, &out, (*int64)(&cpu))
	require.NoError(tb, err)
	return in, out, cpu
}
