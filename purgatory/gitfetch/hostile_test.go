package gitfetch_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitfetch/internal/upload"
)

func pkt(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

// v2 is a version 2 server whose POST is answered by answer.
func v2(answer func(w io.Writer)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			fmt.Fprint(w, pkt("version 2\n"), pkt("agent=x\n"), pkt("fetch=shallow\n"), pkt("object-format=sha1\n"), "0000")
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		answer(w)
	}
}

// band writes pack data in sideband packets.
func band(w io.Writer, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), 65515)
		if _, err := fmt.Fprintf(w, "%04x\x01%s", n+5, b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func packHeader(objects uint32) []byte {
	b := append([]byte("PACK"), 0, 0, 0, 2)
	return binary.BigEndian.AppendUint32(b, objects)
}

// object returns a pack entry.
func object(typ byte, content []byte) []byte {
	n := len(content)
	b := []byte{typ<<4 | byte(n&15)}
	for n >>= 4; n > 0; n >>= 7 {
		b[len(b)-1] |= 0x80
		b = append(b, byte(n&0x7f))
	}
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write(content)
	_ = w.Close()
	return append(b, z.Bytes()...)
}

// packOf returns a pack with a valid trailer.
func packOf(objects ...[]byte) []byte {
	b := packHeader(uint32(len(objects)))
	for _, o := range objects {
		b = append(b, o...)
	}
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

// bomb returns a delta that makes a huge object by repeated copies of its base.
func bomb(size int) []byte {
	base := bytes.Repeat([]byte{'x'}, 0xffff)
	var delta []byte
	delta = binary.AppendUvarint(delta, uint64(len(base)))
	delta = binary.AppendUvarint(delta, uint64(size))
	for range size / len(base) {
		delta = append(delta, 0x80|0x10|0x20, 0xff, 0xff)
	}
	baseObject := object(3, base)
	entry := object(6, delta) // OBJ_OFS_DELTA: the offset is between header and data
	i := 0
	for entry[i]&0x80 != 0 {
		i++
	}
	n := len(baseObject)
	offset := []byte{byte(n & 0x7f)}
	for n >>= 7; n > 0; n >>= 7 {
		n--
		offset = append([]byte{byte(n&0x7f) | 0x80}, offset...)
	}
	out := append(append(append([]byte{}, entry[:i+1]...), offset...), entry[i+1:]...)
	return packOf(baseObject, out)
}

func sendPack(pack []byte) http.HandlerFunc {
	return v2(func(w io.Writer) {
		fmt.Fprint(w, pkt("packfile\n"))
		_ = band(w, pack)
		fmt.Fprint(w, "0000")
	})
}

func text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// advert answers the GET with body.
func advert(body func(w io.Writer)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		body(w)
	}
}

// hostile is a server with the expected error; nil: any error.
type hostile struct {
	serve http.HandlerFunc
	want  func(error) bool
}

// hostilePackets are servers that violate the protocol or exceed limits.
var hostilePackets = map[string]hostile{
	"endless pack": {v2(func(w io.Writer) {
		fmt.Fprint(w, pkt("packfile\n"))
		_ = band(w, packHeader(100))
		junk := object(3, bytes.Repeat([]byte{1}, 1<<20))
		for band(w, junk) == nil {
		}
	}), nil},
	"more bytes than allowed": {v2(func(w io.Writer) {
		fmt.Fprint(w, pkt("packfile\n"))
		_ = band(w, packHeader(1))
		random := make([]byte, 1<<20)
		for band(w, random) == nil {
		}
	}), nil},
	"more bytes than allowed, well made": {v2(func(w io.Writer) {
		fmt.Fprint(w, pkt("packfile\n"))
		_ = band(w, packHeader(1))
		_ = band(w, stored(3, make([]byte, 40<<20)))
	}), limited("pack bytes")},
	"10 M objects":        {sendPack(packHeader(10_000_000)), limited("pack objects")},
	"delta of 16 GB":      {sendPack(bomb(16 << 30)), limited("memory of git")},
	"delta of 1 GB":       {sendPack(bomb(1 << 30)), limited("memory of git")},
	"no pack":             {sendPack([]byte("this is not a pack, is it?")), is(upload.ErrProtocol)},
	"empty pack":          {sendPack(nil), is(upload.ErrProtocol)},
	"half a header":       {sendPack([]byte("PACK\x00\x00")), is(upload.ErrProtocol)},
	"truncated":           {sendPack(packOf(object(3, []byte("hello")))[:20]), nil},
	"bad trailer":         {sendPack(append(packOf(object(3, []byte("hello")))[:25], make([]byte, 20)...)), nil},
	"bad compression":     {sendPack(append(packHeader(1), 0x35, 1, 2, 3, 4, 5)), nil},
	"another object":      {sendPack(packOf(object(3, []byte("hello")))), missingObject},
	"malformed commit":    {sendPack(packOf(object(1, []byte("tree x\n")))), nil},
	"cut off":             {v2(func(w io.Writer) { fmt.Fprint(w, pkt("packfile\n"), "0100\x01PACK") }), is(upload.ErrProtocol)},
	"unknown band":        {v2(func(w io.Writer) { fmt.Fprint(w, pkt("packfile\n"), pkt("\x07x")) }), is(upload.ErrProtocol)},
	"no answer":           {v2(func(w io.Writer) {}), is(upload.ErrProtocol)},
	"error band":          {v2(func(w io.Writer) { fmt.Fprint(w, pkt("packfile\n"), pkt("\x03no\x1b[2J\x07")) }), is(upload.ErrRemote)},
	"escape codes":        {v2(func(w io.Writer) { fmt.Fprint(w, pkt("ERR \x1b]0;x\x07 \x1b[2J\n")) }), noEscapes},
	"names an odd object": {v2(func(w io.Writer) { fmt.Fprint(w, pkt("ERR upload-pack: not our ref "+strings.Repeat("a", 40)+"\n")) }), nil},
	"endless progress": {v2(func(w io.Writer) {
		fmt.Fprint(w, pkt("packfile\n"))
		for {
			if _, err := fmt.Fprint(w, pkt("\x02"+strings.Repeat("z", 60000))); err != nil {
				return
			}
		}
	}), limited("bytes beside the pack")},
	"endless packets of nothing": {v2(func(w io.Writer) {
		fmt.Fprint(w, pkt("packfile\n"))
		for {
			if _, err := fmt.Fprint(w, strings.Repeat(pkt("\x01"), 1000)); err != nil {
				return
			}
		}
	}), limited("bytes beside the pack")},
	"endless sections": {v2(func(w io.Writer) {
		for {
			if _, err := fmt.Fprint(w, pkt("acknowledgments\n")); err != nil {
				return
			}
		}
	}), limited("bytes beside the pack")},
	"endless flushes": {v2(func(w io.Writer) {
		for {
			if _, err := fmt.Fprint(w, strings.Repeat("0000", 1000)); err != nil {
				return
			}
		}
	}), limited("bytes beside the pack")},
	"a million refs": {advert(func(w io.Writer) {
		fmt.Fprint(w, pkt("# service=git-upload-pack\n"), "0000")
		for i := range 1_000_000 {
			if _, err := fmt.Fprint(w, pkt(fmt.Sprintf("%040x refs/heads/b%d\n", i, i))); err != nil {
				return
			}
		}
	}), limited("refs")},
	"endless advertisement": {advert(func(w io.Writer) {
		fmt.Fprint(w, pkt("version 2\n"))
		for i := 0; ; i++ {
			if _, err := fmt.Fprint(w, pkt(fmt.Sprintf("cap%d=%s\n", i, strings.Repeat("x", 60000)))); err != nil {
				return
			}
		}
	}), limited("advertisement bytes")},
	"web page": {text(200, "<html>welcome</html>"), is(upload.ErrProtocol)},
	"dumb server": {func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(w, "%040d\trefs/heads/main\n", 1)
	}, is(upload.ErrProtocol)},
	"401": {func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(401)
	}, is(gitfetch.ErrAuth)},
	"404":               {text(404, ""), is(gitfetch.ErrNotFound)},
	"500":               {text(500, ""), is(upload.ErrStatus)},
	"bad packet length": {advert(func(w io.Writer) { fmt.Fprint(w, "zzzz") }), is(upload.ErrProtocol)},
	"tiny packet":       {advert(func(w io.Writer) { fmt.Fprint(w, "0003") }), is(upload.ErrProtocol)},
	"other hash": {advert(func(w io.Writer) {
		fmt.Fprint(w, pkt("version 2\n"), pkt("fetch\n"), pkt("object-format=sha256\n"), "0000")
	}), is(gitfetch.ErrFormat)},
	"unknown hash": {advert(func(w io.Writer) {
		fmt.Fprint(w, pkt("version 2\n"), pkt("fetch\n"), pkt("object-format=md5\n"), "0000")
	}), is(upload.ErrProtocol)},
	"can't fetch":   {advert(func(w io.Writer) { fmt.Fprint(w, pkt("version 2\n"), pkt("ls-refs\n"), "0000") }), is(upload.ErrProtocol)},
	"redirect loop": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"?x", http.StatusFound) }, is(egress.ErrRedirect)},
	"redirect of the POST": {func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		v2(nil)(w, r)
	}, nil},
	"redirect to metadata": {func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/info/refs", http.StatusFound)
	}, is(egress.ErrAddress)},
	"stalls": {func(w http.ResponseWriter, r *http.Request) {
		v2(func(w io.Writer) {
			fmt.Fprint(w, pkt("packfile\n"))
			_ = band(w, packHeader(1))
			fmt.Fprint(w, "fff0\x01")
		})(w, r)
		if r.Method == http.MethodPost {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}, is(gitfetch.ErrSlow)},
}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

func limited(name string) func(error) bool {
	return func(err error) bool {
		var l *gitfetch.LimitError
		return errors.As(err, &l) && l.Limit == name
	}
}

func noEscapes(err error) bool { return !strings.ContainsAny(err.Error(), "\x1b\x07") }

var errStillMissing = errors.New("not what was asked for")

func missingObject(err error) bool { return errors.Is(err, gitfetch.ErrUnwanted) }

func attempt(ctx context.Context, f *gitfetch.Fetcher, dir string, from graspsync.CloneURL, want nip34.ObjectID) error {
	q, err := f.Open(dir)
	if err != nil {
		return err
	}
	_, err = q.Fetch(ctx, from, []nip34.ObjectID{want})
	if err == nil {
		var missing []nip34.ObjectID
		if missing, err = q.Missing(ctx, []nip34.ObjectID{want}); err == nil && len(missing) > 0 {
			err = errStillMissing
		}
	}
	return errors.Join(err, q.Discard())
}

// digest returns a hash of the names and contents of a folder.
func digest(t testing.TB, dir string) string {
	t.Helper()
	h := sha1.New()
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintln(h, path, info.Mode(), info.Size())
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			h.Write(data)
		}
		return nil
	}))
	return fmt.Sprintf("%x", h.Sum(nil))
}

// children returns our running git processes.
func children(t testing.TB) (out []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		rest := string(data[bytes.LastIndexByte(data, ')')+1:])
		var state string
		var parent int
		if _, err := fmt.Sscan(rest, &state, &parent); err == nil && parent == os.Getpid() {
			out = append(out, string(data))
		}
	}
	return out
}
