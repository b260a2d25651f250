package gitserve

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	one, two = strings.Repeat("1", 40), strings.Repeat("2", 40)
	null     = strings.Repeat("0", 40)
	event    = strings.Repeat("a", 64)
)

func packet(lines ...string) string {
	var b bytes.Buffer
	for _, l := range lines {
		writeLine(&b, l)
	}
	return b.String() + "0000"
}

func TestReadRequest(t *testing.T) {
	in := strings.NewReader(packet(
		null+" "+one+" refs/heads/main\x00 report-status-v2 side-band-64k object-format=sha1 agent=git/2",
		one+" "+null+" refs/tags/v\n",
		one+" "+two+" refs/nostr/"+event,
	) + "PACK")
	req, err := readRequest(in, 10, 1<<10)
	require.NoError(t, err)
	require.True(t, req.report)
	require.True(t, req.sideband)
	require.Len(t, req.commands, 3)
	require.True(t, req.commands[0].old.IsZero())
	require.Equal(t, one, req.commands[0].new.String())
	require.True(t, req.commands[1].new.IsZero())
	require.Equal(t, "refs/tags/v", req.commands[1].ref.String())
	rest, err := io.ReadAll(in)
	require.NoError(t, err)
	require.Equal(t, "PACK", string(rest), "no byte more was read")

	text := packet("shallow "+two, null+" "+one+" refs/heads/main\x00report-status")
	req, err = readRequest(strings.NewReader(text), 10, 1<<10)
	require.NoError(t, err)
	require.True(t, req.report)
	require.Len(t, req.commands, 1)

	for name, text := range map[string]string{
		"shallow null":   packet("shallow " + null),
		"shallow word":   packet("shallow x"),
		"shallow later":  packet(null+" "+one+" refs/heads/x", "shallow "+one),
		"shallow NUL":    packet("shallow " + one + "\x00report-status"),
		"certificate":    packet("push-cert\x00report-status"),
		"options":        packet(null + " " + one + " refs/heads/x\x00push-options"),
		"id":             packet(null + " --upload-pack=x refs/heads/x"),
		"old id":         packet("--upload-pack=x " + one + " refs/heads/x"),
		"old id later":   packet(null+" "+one+" refs/heads/x", one[:39]+" "+one+" refs/heads/y"),
		"NUL later":      packet(null+" "+one+" refs/heads/x", null+" "+one+" refs/heads/y\x00report-status"),
		"words":          packet(one),
		"not hex":        "zzzz",
		"too short":      "0003",
		"delimiter":      "0001",
		"eleven":         packet(strings.Split(strings.Repeat(null+" "+one+" refs/heads/x\n", 11), "\n")[:11]...),
		"more than 1024": packet(null + " " + one + " refs/heads/" + strings.Repeat("x", 1100)),
	} {
		_, err := readRequest(strings.NewReader(text), 10, 1<<10)
		require.ErrorIs(t, err, errRequest, name)
	}
	for _, cut := range []string{"", "00", "0032" + null, packet(null + " " + one + " refs/heads/x")[:20]} {
		_, err := readRequest(strings.NewReader(cut), 10, 1<<10)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%q", cut)
	}
}

// A packet line says in four hexadecimal digits how long it is, and nothing else is taken for
// that.
func TestReadLine(t *testing.T) {
	const after = "1234567890"
	digits := "0123456789abcdefABCDEFgGzZ+-_ xX\x00"
	try := func(head string) {
		n, err := strconv.ParseInt(head, 16, 64)
		known := err == nil && strings.Trim(head, "0123456789abcdefABCDEF") == ""
		text := strings.Repeat("x", maxLine)
		in := strings.NewReader(head + text)
		line, flush, err := readLine(in)
		switch {
		case known && n == 0:
			require.NoError(t, err)
			require.True(t, flush)
			require.Equal(t, len(text), in.Len())
		case !known || n <= 4 || n > 65520:
			require.ErrorIs(t, err, errRequest, "%q", head)
			require.Equal(t, len(text), in.Len())
		default:
			require.NoError(t, err, "%q", head)
			require.False(t, flush)
			require.Len(t, line, int(n)-4)
			require.Equal(t, len(text)-len(line), in.Len())
		}
	}
	for _, head := range []string{"0000", "0001", "0003", "0004", "0005", "fff0", "FFF0", "fff1", "ffff", "g000", "000g", "0x10", "+010", "1_00", "-001"} {
		try(head)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var head [4]byte
		for i := range head {
			head[i] = digits[rng.IntN(len(digits))]
		}
		try(string(head[:]))
	}
	for cut := range len("000e" + after) {
		_, _, err := readLine(strings.NewReader(("000e" + after)[:cut]))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d", cut)
	}
	line, _, err := readLine(strings.NewReader("000e" + after + "more"))
	require.NoError(t, err)
	require.Equal(t, after, string(line))
}

func TestWriteReport(t *testing.T) {
	req := &request{report: true, commands: []*command{{name: "refs/heads/main"}, {name: "refs/tags/v1", reason: "no"}, {name: "refs/tags/v2", reason: "no"}}}
	var plain, banded bytes.Buffer
	require.NoError(t, writeReport(&plain, req, ""))
	require.Equal(t, packet("unpack ok\n", "ok refs/heads/main\n", "ng refs/tags/v1 no\n", "ng refs/tags/v2 no\n"), plain.String())
	req.sideband = true
	require.NoError(t, writeReport(&banded, req, "", "a note"))
	require.Equal(t, packet("\x02a note\n", "\x02refs/tags/v1 and 1 more: no\n", "\x01"+plain.String()), banded.String())

	for i := range 3000 {
		req.commands = append(req.commands, &command{name: fmt.Sprint("refs/heads/", i)})
	}
	banded.Reset()
	require.NoError(t, writeReport(&banded, req, "broken"))
	_, _, err := readLine(&banded)
	require.NoError(t, err)
	for n := 0; ; n++ {
		line, flush, err := readLine(&banded)
		require.NoError(t, err)
		if flush {
			require.Greater(t, n, 1)
			break
		}
		require.Equal(t, byte(1), line[0])
	}
}

// Whatever a stranger pushes: no panic, a bounded read, and what is taken can be
// written again and read as the same.
func FuzzReadRequest(f *testing.F) {
	f.Add([]byte(packet(null+" "+one+" refs/heads/main\x00report-status", one+" "+two+" refs/nostr/"+event) + "PACK"))
	f.Add([]byte(packet("shallow " + one)))
	f.Add([]byte("0000"))
	f.Add([]byte("fff0"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytes.NewReader(data)
		req, err := readRequest(in, 5, 500)
		if read := len(data) - in.Len(); read > 500 {
			t.Fatalf("%d bytes read", read)
		}
		if err != nil {
			if !errors.Is(err, errRequest) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatal(err)
			}
			return
		}
		var again bytes.Buffer
		for _, c := range req.commands {
			writeLine(&again, gitID(c.old, c.new)+" "+gitID(c.new, c.old)+" "+c.name)
		}
		again.WriteString("0000")
		second, err := readRequest(&again, 5, 1000)
		if err != nil || len(second.commands) != len(req.commands) {
			t.Fatal(err)
		}
		for i, c := range second.commands {
			if first := req.commands[i]; *c != *first {
				t.Fatal(c, first)
			}
		}
	})
}
