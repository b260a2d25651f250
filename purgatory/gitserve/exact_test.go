package gitserve

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
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
				require.ErrorIs(t, err, errEncoding)
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
