package upload

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Each number at its exact limit.
func TestNumbersOfTheProtocol(t *testing.T) {
	for n, fits := range map[int]bool{65520: true, 65521: false} {
		k, payload, err := newReader(strings.NewReader(fmt.Sprintf("%04x", n) + strings.Repeat("x", n))).next()
		require.Equal(t, fits, err == nil, n)
		if fits {
			require.Equal(t, data, k)
			require.Len(t, payload, 65516)
		}
	}
	for n, fits := range map[int]bool{1 << 18: true, 1<<18 + 1: false} { // of four bytes each, 1 MiB
		for _, s := range []*Server{{Version: 2}, {caps: map[string]string{"side-band-64k": ""}}} {
			var limit *LimitError
			err := s.readAnswer(newReader(strings.NewReader(strings.Repeat("0000", n))), &packReader{meter: &count{}})
			if fits {
				require.ErrorIs(t, err, ErrProtocol, "and that is all")
				continue
			}
			require.ErrorAs(t, err, &limit)
			require.Equal(t, LimitError{Limit: "bytes before the pack", Most: 1 << 20}, *limit)
		}
	}
	for n, left := range map[int]int{299: 299, 300: 300, 301: 300} {
		require.Len(t, graspsync.Printable(strings.Repeat("x", n)), left)
		err := sideband(newReader(strings.NewReader(line("\x03"+strings.Repeat("x", n)))), &packReader{meter: &count{}})
		require.ErrorIs(t, err, ErrRemote)
		require.Len(t, err.Error(), len(ErrRemote.Error()+": ")+min(n, 299), "with the byte for the band")
	}
	for refs, fits := range map[int]bool{5: true, 6: false} {
		_, err := parseAdvertisement(strings.NewReader(strings.Repeat(line(idA+" a\n"), refs)+"0000"), 5)
		require.Equal(t, fits, err == nil, refs)
		s := &Server{Version: 2}
		err = s.readTips(newReader(strings.NewReader(strings.Repeat(line(idA+" a\n"), refs)+"0000")), 5)
		require.Equal(t, fits, err == nil, refs)
		require.Equal(t, fits, s.Tips != nil)
	}
}

// Received bytes are counted, and waiting for the server is measured, without the time to pass data
// on.
func TestWhatTheMeterIsTold(t *testing.T) {
	const pack = "PACK\x00\x00\x00\x02\x00\x00\x00\x01rest"
	answer := line("packfile\n") + line("\x01"+pack[:5]) + line("\x01"+pack[5:13]) + line("\x01"+pack[13:]) + "0000"
	c, u := headed(t, http.StatusOK, http.Header{"Content-Type": {uploadResult}}, answer)
	m := &count{}
	waits := 0
	w := writerFunc(func(p []byte) (int, error) {
		require.Equal(t, m.begun, m.ended, "nothing is waited for")
		waits++
		return len(p), nil
	})
	require.NoError(t, c.Fetch(t.Context(), &Server{Version: 2, base: u.String()}, []nip34.ObjectID{oid(t, idA)}, nil, w, m))
	require.Equal(t, count{n: len(pack), begun: waits + 1, ended: waits + 1}, *m)
	require.Equal(t, 3, waits, "the head at once, and what is behind it")

	body := line("version 2\n") + line("fetch\n") + "0000"
	c, u = headed(t, http.StatusOK, http.Header{"Content-Type": {advertisement}}, body)
	m = &count{}
	_, err := c.Discover(t.Context(), u, m)
	require.NoError(t, err)
	require.Equal(t, count{n: len(body), begun: 1, ended: 1}, *m)
	tips := line(idA+" a\n") + "0000"
	c, u = headed(t, http.StatusOK, http.Header{"Content-Type": {uploadResult}}, tips)
	m = &count{}
	require.NoError(t, c.ListTips(t.Context(), &Server{Version: 2, base: u.String()}, m))
	require.Equal(t, count{n: len(tips), begun: 1, ended: 1}, *m)
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Reading beyond a limit is an error, reading up to the limit is not.
func TestBounded(t *testing.T) {
	for most, fits := range map[int64]bool{9: false, 10: false, 11: true} {
		b := &bounded{r: strings.NewReader("0123456789"), left: most, most: most, limit: "x", meter: &count{}}
		got, err := io.ReadAll(b)
		require.Len(t, got, int(min(most, 10)))
		if fits {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, &LimitError{Limit: "x", Most: most}, err)
	}
}
