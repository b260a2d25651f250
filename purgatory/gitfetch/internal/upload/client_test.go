package upload

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// answers is a server with a list of answers for successive requests.
func answers(t *testing.T, list ...string) (*Client, graspsync.CloneURL, *[]string) {
	t.Helper()
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Git-Protocol")+" "+string(body))
		w.Header().Set("Content-Type", uploadResult)
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", advertisement)
		}
		_, _ = io.WriteString(w, list[0])
		list = list[1:]
	}))
	t.Cleanup(srv.Close)
	u, err := graspsync.ParseCloneURL(srv.URL + "/r.git")
	require.NoError(t, err)
	c := &Client{HTTP: srv.Client(), UserAgent: "x", Limits: Limits{AdvertBytes: 1 << 12, AdvertRefs: 5, PackBytes: 1 << 10, PackObjects: 5}}
	return c, u, &seen
}

func TestConversation(t *testing.T) {
	pack := "PACK\x00\x00\x00\x02\x00\x00\x00\x01rest"
	tips := idA + " refs/heads/a symref-target:x\n"
	c, u, seen := answers(t,
		line("version 2\n")+line("fetch\n")+line("object-format=sha1\n")+"0000",
		line("ERR upload-pack: not our ref "+idB+"\n"),
		line(tips)+line(idB+" refs/tags/t peeled:"+strings.Repeat("3", 40)+" peeled:x\n")+"0000",
		line("acknowledgments\n")+line("NAK\n")+"0001"+line("packfile\n")+line("\x02x")+line("\x01"+pack[:5])+line("\x01")+line("\x01"+pack[5:])+"0000",
	)
	m := meter()
	s, err := c.Discover(t.Context(), u, m)
	require.NoError(t, err)
	require.Equal(t, 1, s.Requests)
	var missing *MissingError
	var out bytes.Buffer
	require.ErrorAs(t, c.Fetch(t.Context(), s, []nip34.ObjectID{oid(t, idB)}, nil, &out, m), &missing)
	require.Contains(t, missing.Error(), idB)
	require.NoError(t, c.ListTips(t.Context(), s, m))
	require.Len(t, s.Tips, 3)
	require.NoError(t, c.Fetch(t.Context(), s, []nip34.ObjectID{oid(t, idA)}, nil, &out, m))
	require.Equal(t, pack, out.String())
	require.False(t, m.Sending.Load())
	require.Positive(t, m.Bytes.Load())
	require.Equal(t, m.Bytes.Load(), m.Total.Load())
	require.Len(t, *seen, 4)
	require.Contains(t, (*seen)[2], "command=ls-refs")
	for i, request := range *seen {
		require.Contains(t, request, []string{"GET /r.git/info/refs?service=git-upload-pack version=2", "POST /r.git/git-upload-pack version=2"}[min(i, 1)])
	}
}

func TestListOfTips(t *testing.T) {
	s := &Server{Version: 2}
	for text, want := range map[string]error{
		"": ErrProtocol, "0001": ErrProtocol, line("\n"): ErrProtocol, line("xyz a\n"): ErrProtocol,
		line("ERR no\n"): ErrRemote, line(idA + " a\n"): ErrProtocol, "zzzz": ErrProtocol,
	} {
		require.ErrorIs(t, s.readTips(newReader(strings.NewReader(text)), 3), want, "%q", text)
	}
	require.Nil(t, s.Tips)
}

func TestAdvertisementsThatAreNone(t *testing.T) {
	first := line(idA + " HEAD\x00a b=c\n")
	for text, want := range map[string]error{
		"": ErrProtocol, "0000": ErrProtocol, line("# service=git-upload-pack\n") + line("x\n"): ErrProtocol,
		line("# service=git-upload-pack\n"): ErrProtocol, line("# service=git-upload-pack\n") + "0000": ErrProtocol,
		line("# service=git-upload-pack\n") + "00000000": ErrEmpty,
		line("version 2\n"): ErrProtocol, line("version 2\n") + "0001": ErrProtocol, line("version 2\n") + line("ERR x\n"): ErrRemote,
		line("version 2\n") + line("agent=x\n") + "0000": ErrProtocol, line("version 2\n") + line("fetch\n") + line("object-format=x\n") + "0000": ErrProtocol,
		line("version 1\n"): ErrProtocol, line("version 1\n") + "0000": ErrEmpty, first: ErrProtocol, first + "0001": ErrProtocol,
		first + line("x\n"): ErrProtocol, first + line("ERR x\n"): ErrRemote, line("x y\n"): ErrProtocol, "zz": ErrProtocol,
		line("version 2\n") + "zzzz": ErrProtocol, "000g": ErrProtocol,
	} {
		_, err := parseAdvertisement(strings.NewReader(text), 10)
		require.ErrorIs(t, err, want, "%q", text)
	}
	many := line("version 2\n") + line("fetch\n")
	for i := range 2 * maxCapabilities {
		many += line(strings.Repeat("c", i+1) + "\n")
	}
	s, err := parseAdvertisement(strings.NewReader(many+"0000"), 10)
	require.NoError(t, err)
	require.Len(t, s.caps, maxCapabilities)
	hidden, err := parseAdvertisement(strings.NewReader(line(idA+" HEAD\x00allow-tip-sha1-in-want object-format=sha1\n")+"0000"), 10)
	require.NoError(t, err)
	require.True(t, hidden.Serves(oid(t, idB)), "it may be the tip of a hidden ref")
	require.Contains(t, string(hidden.request([]nip34.ObjectID{oid(t, idA)}, []nip34.ObjectID{oid(t, idB)})), "object-format=sha1")
}

func TestAnswersThatAreNone(t *testing.T) {
	side := map[string]string{"side-band-64k": ""}
	for _, c := range []struct {
		s    *Server
		text string
		want error
	}{
		{&Server{Version: 2}, "0000", ErrProtocol},
		{&Server{Version: 2}, "zzzz", ErrProtocol},
		{&Server{Version: 2}, line("packfile\n"), ErrProtocol},
		{&Server{Version: 2}, line("packfile\n") + "0001", ErrProtocol},
		{&Server{Version: 2}, line("packfile\n") + "0004", ErrProtocol},
		{&Server{Version: 2}, line("packfile\n") + "zzzz", ErrProtocol},
		{&Server{Version: 2}, line("packfile\n") + line("\x03no"), ErrRemote},
		{&Server{Version: 2}, line("packfile\n") + line("\x04x") + line("\x01PACK\x00\x00\x00\x02\x00\x00\x00\x01") + "0000", ErrProtocol}, // it may belong to the pack
		{&Server{Version: 2}, line("packfile\n") + line("\x01PACK\x00\x00\x00\x09\x00\x00\x00\x01"), ErrProtocol},
		{&Server{caps: side}, "", ErrProtocol},
		{&Server{caps: side}, line("ERR no\n"), ErrRemote},
		{&Server{caps: side}, line("NAK\n") + line("ERR access denied"), ErrRemote},
		{&Server{caps: map[string]string{}}, line("NAK\n") + "PACKx", io.EOF},
	} {
		p := &packReader{w: io.Discard, meter: meter(), limits: Limits{PackBytes: 100, PackObjects: 1}}
		err := c.s.readAnswer(newReader(strings.NewReader(c.text)), p)
		if errors.Is(c.want, io.EOF) {
			require.NoError(t, err)
			require.ErrorIs(t, p.end(), ErrProtocol)
			continue
		}
		require.ErrorIs(t, err, c.want, "%q", c.text)
	}
	var limit *LimitError
	for _, s := range []*Server{{Version: 2}, {caps: side}} {
		p := &packReader{meter: meter()}
		require.ErrorAs(t, s.readAnswer(newReader(strings.NewReader(strings.Repeat("0000", 1<<19))), p), &limit)
		require.Equal(t, "bytes beside the pack", limit.Limit)
	}
	broken := errors.New("no more")
	p := &packReader{w: failing{broken}, meter: meter(), limits: Limits{PackBytes: 100, PackObjects: 1}}
	_, err := p.Write([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01"))
	require.ErrorIs(t, err, broken)
	_, err = p.Write([]byte("x"))
	require.ErrorIs(t, err, broken)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// A list of tips never causes a panic, and is limited.
func FuzzTips(f *testing.F) {
	f.Add([]byte(line(idA+" refs/heads/a peeled:"+idB+"\n") + "0000"))
	f.Add([]byte(line("ERR x\n")))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &Server{Version: 2}
		if err := s.readTips(newReader(bytes.NewReader(data)), 10); err == nil && len(s.Tips) > 1<<10 {
			t.Fatal("too much is remembered")
		}
	})
}

// Error messages of servers are escaped.
func FuzzRemoteError(f *testing.F) {
	f.Add("upload-pack: not our ref " + idA)
	f.Add("\x1b[2J")
	f.Fuzz(func(t *testing.T, text string) {
		got := remoteError(text).Error()
		if strings.ContainsAny(got, "\x1b\x07\n\r") || len(got) > 4*graspsync.MaxText {
			t.Fatalf("%q", got)
		}
	})
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// A server is not slow while we write its pack.
func TestServerDoesNotSendWhileWeWrite(t *testing.T) {
	m := meter()
	m.Sending.Store(true)
	var got int
	p := &packReader{meter: m, limits: Limits{PackBytes: 100, PackObjects: 1}, w: writer(func(p []byte) (int, error) {
		require.False(t, m.Sending.Load())
		got += len(p)
		return len(p), nil
	})}
	for range 2 {
		_, err := p.Write([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01"))
		require.NoError(t, err)
		require.True(t, m.Sending.Load())
	}
	require.Equal(t, 24, got)
}
