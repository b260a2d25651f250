package gitfetch_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"hash/adler32"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitfetch/internal/upload"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// entryHead returns the header of a pack entry.
func entryHead(typ byte, n int) []byte {
	b := []byte{typ<<4 | byte(n&15)}
	for n >>= 4; n > 0; n >>= 7 {
		b[len(b)-1] |= 0x80
		b = append(b, byte(n&0x7f))
	}
	return b
}

// stored returns an uncompressed pack entry, which is fast to make.
func stored(typ byte, content []byte) []byte {
	b := append(entryHead(typ, len(content)), 0x78, 0x01)
	sum := adler32.Checksum(content)
	for {
		n := min(len(content), 0xffff)
		last := byte(0)
		if n == len(content) {
			last = 1
		}
		b = append(b, last)
		b = binary.LittleEndian.AppendUint16(b, uint16(n))
		b = binary.LittleEndian.AppendUint16(b, ^uint16(n))
		b = append(b, content[:n]...)
		if content = content[n:]; last == 1 {
			break
		}
	}
	return binary.BigEndian.AppendUint32(b, sum)
}

// zeros returns a pack entry of mib MiB of zeros, compressed to a thousandth by repetition of one
// compressed block.
func zeros(typ byte, mib int) []byte {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	mark, block := 0, make([]byte, 1<<20)
	for range 2 {
		mark = z.Len()
		_, _ = w.Write(block)
		_ = w.Flush()
	}
	again := bytes.Clone(z.Bytes()[mark:])
	for range mib - 2 {
		z.Write(again)
	}
	z.Write([]byte{0x03, 0x00})
	b := append(entryHead(typ, mib<<20), z.Bytes()...)
	return binary.BigEndian.AppendUint32(b, uint32((mib<<20)%65521)<<16|1)
}

// manyBlobs returns a pack of n small blobs.
func manyBlobs(n int) []byte {
	objects := make([][]byte, n)
	for i := range objects {
		objects[i] = stored(3, binary.BigEndian.AppendUint32(nil, uint32(i)))
	}
	return packOf(objects...)
}

// thinDelta returns a delta against an object that no server has.
func thinDelta() []byte {
	head := entryHead(7, 4)
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write([]byte{5, 1, 1, 'x'})
	_ = w.Close()
	return packOf(slices.Concat(head, bytes.Repeat([]byte{0xab}, 20), z.Bytes()))
}

// commitOf returns a commit whose tree does not exist.
func commitOf(tree string) []byte {
	return []byte("tree " + tree + "\nauthor a <a@x> 1 +0000\ncommitter a <a@x> 1 +0000\n\nx\n")
}

// squeezed compresses an answer, requested or not.
func squeezed(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		h(writerOf{w, z}, r)
		_ = z.Close()
	}
}

type writerOf struct {
	http.ResponseWriter
	w io.Writer
}

func (w writerOf) Write(p []byte) (int, error) { return w.w.Write(p) }

// drip sends single bytes to look alive.
func drip(w http.ResponseWriter, r *http.Request, b byte) {
	for r.Context().Err() == nil {
		if _, err := w.Write([]byte{b}); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(20 * time.Millisecond):
		case <-r.Context().Done():
		}
	}
}

// stalling sends the answer of h and never ends.
func stalling(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h(w, r)
		if r.Method == http.MethodPost {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}
}

func redirectTo(to string) hostile {
	return hostile{func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }, is(egress.ErrAddress)}
}

// hostileData are servers with hostile packs or hostile ways to send packs.
var hostileData = map[string]hostile{
	"commit of 1 GiB": {sendPack(packOf(zeros(1, 1024))), limited("memory of git")},
	"tree of 1 GiB":   {sendPack(packOf(zeros(2, 1024))), limited("memory of git")},
	"tag of 1 GiB":    {sendPack(packOf(zeros(4, 1024))), limited("memory of git")},
	"blob of 256 MiB": {sendPack(packOf(zeros(3, 256))), missingObject},
	"thin delta":      {sendPack(thinDelta()), is(gitfetch.ErrIncomplete)},
	"commit without its tree": {
		sendPack(packOf(object(1, commitOf("4b825dc642cb6eb9a060e54bf8d69288fbee4905")))), is(gitfetch.ErrIncomplete),
	},
	".git in a tree": {sendPack(packOf(
		object(3, []byte("hello")), object(2, append([]byte("100644 .git\x00"), unhex("b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0")...)),
	)), nil},
	"junk behind the pack": {sendPack(append(packOf(object(3, []byte("hello"))), make([]byte, 1<<20)...)), nil},
	"escape codes in the pack's error": {v2(func(w io.Writer) {
		fmt.Fprint(w, pkt("packfile\n"), pkt("\x02\x1b]0;x\x07"), pkt("\x03\x1b[2J\x1b]0;x\x07not our ref \x1b[31m"))
	}), noEscapes},
	"escape codes in the content type": {func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/\x1b[2Jhtml")
	}, noEscapes},
	"drip of the advertisement": {func(w http.ResponseWriter, r *http.Request) {
		advert(func(w io.Writer) { fmt.Fprint(w, pkt("version 2\n"), "fff0") })(w, r)
		drip(w, r, 'x')
	}, is(gitfetch.ErrSlow)},
	"drip of the pack": {func(w http.ResponseWriter, r *http.Request) {
		v2(func(w io.Writer) {
			fmt.Fprint(w, pkt("packfile\n"))
			_ = band(w, packHeader(1))
			fmt.Fprint(w, "fff0\x01")
		})(w, r)
		if r.Method == http.MethodPost {
			drip(w, r, 0x35)
		}
	}, is(gitfetch.ErrSlow)},
	"never ends":           {stalling(v2(func(w io.Writer) { fmt.Fprint(w, pkt("packfile\n")); _ = band(w, packOf()) })), is(gitfetch.ErrSlow)},
	"never answers":        {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, limited("seconds")},
	"compressed pack bomb": {squeezed(v2(func(w io.Writer) { fmt.Fprint(w, pkt("packfile\n")); _ = band(w, zeroPack()) })), limited("pack bytes")},
	"unknown compression":  {func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Encoding", "br"); v2(nil)(w, r) }, is(upload.ErrProtocol)},
	"compressed twice":     {func(w http.ResponseWriter, r *http.Request) { squeezed(squeezed(v2(nil)))(w, r) }, is(upload.ErrProtocol)},
	"compressed advert bomb": {squeezed(advert(func(w io.Writer) {
		fmt.Fprint(w, pkt("version 2\n"))
		for line := pkt("a=" + strings.Repeat("x", 60000)); ; {
			if _, err := fmt.Fprint(w, line); err != nil {
				return
			}
		}
	})), limited("advertisement bytes")},
	"huge headers": {func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 1<<20))
		v2(nil)(w, r)
	}, nil},
	"packfile-uris, bundle-uri": {v2(func(w io.Writer) {
		fmt.Fprint(w, pkt("packfile-uris\n"), pkt(strings.Repeat("a", 40)+" http://127.0.0.2:1/p.pack\n"), "0001", pkt("packfile\n"))
		_ = band(w, packOf(object(3, []byte("hello"))))
		fmt.Fprint(w, "0000")
	}), missingObject},
	"shallow": {v2(func(w io.Writer) {
		fmt.Fprint(w, pkt("shallow-info\n"), pkt("shallow "+strings.Repeat("a", 40)+"\n"), "0001", pkt("packfile\n"))
		_ = band(w, packOf(object(3, []byte("hello"))))
		fmt.Fprint(w, "0000")
	}), missingObject},
	"lacks whatever is asked for": {func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, id, _ := strings.Cut(string(body), "want ")
		v2(func(w io.Writer) { fmt.Fprint(w, pkt("ERR upload-pack: not our ref "+id[:min(len(id), 40)]+"\n")) })(w, r)
	}, is(purgatory.ErrNotServed)},
	"407":                    {text(407, ""), is(gitfetch.ErrAuth)},
	"403 that never ends":    {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(403); drip(w, r, 'x') }, is(upload.ErrStatus)},
	"204":                    {text(204, ""), is(upload.ErrStatus)},
	"redirect to 10.0.0.1":   redirectTo("http://10.0.0.1/info/refs"),
	"redirect to loopback 6": redirectTo("http://[::1]/info/refs"),
	"redirect to mapped":     redirectTo("http://[::ffff:127.0.0.2]/info/refs"),
	"redirect to shared":     redirectTo("http://100.64.1.1/info/refs"),
	"redirect to file": {func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "file:///etc/passwd")
		w.WriteHeader(302)
	}, is(egress.ErrRedirect)},
	"redirect with a password": {func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://user:secret@127.0.0.1/info/refs", http.StatusFound)
	}, func(err error) bool { return !strings.Contains(err.Error(), "secret") }},
	"redirect to a page": {func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/info/refs") {
			http.Redirect(w, r, "/login", http.StatusFound)
			return
		}
		v2(nil)(w, r)
	}, is(upload.ErrProtocol)},
}

func unhex(s string) (b []byte) {
	_, _ = fmt.Sscanf(s, "%x", &b)
	return b
}

// zeroPack is a blob of zeros that is small on the wire and beyond the limit. It is made once,
// before a server waits for it.
var zeroPack = sync.OnceValue(func() []byte { return packOf(stored(3, make([]byte, 36<<20))) })

// peaks measures the memory of all children.
type peaks struct {
	mu            sync.Mutex
	resident, all int64 // KiB
	children      int
	stop          chan struct{}
	done          sync.WaitGroup
}

func watchChildren(f *gitfetch.Fetcher) *peaks {
	p := &peaks{stop: make(chan struct{})}
	*f.Started() = func(cmd *exec.Cmd) {
		p.mu.Lock()
		p.children++
		p.mu.Unlock()
	}
	p.done.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
				p.look()
			}
		}
	})
	return p
}

func (p *peaks) look() {
	list, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		more, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		list = append(append(list, ' '), more...)
	}
	for pid := range strings.FieldsSeq(string(list)) {
		status, _ := os.ReadFile("/proc/" + pid + "/status")
		if !bytes.Contains(status, []byte("Name:\tgit\n")) {
			continue // between fork and exec a child has our memory
		}
		p.mu.Lock()
		for line := range strings.Lines(string(status)) {
			var n int64
			if _, err := fmt.Sscanf(line, "VmHWM: %d", &n); err == nil {
				p.resident = max(p.resident, n)
			}
			if _, err := fmt.Sscanf(line, "VmData: %d", &n); err == nil {
				p.all = max(p.all, n)
			}
		}
		p.mu.Unlock()
	}
}

func (p *peaks) end() {
	close(p.stop)
	p.done.Wait()
}

// Any answer of a server is refused within limits. Nothing stays on disk, the repository is
// unchanged, and no child is left.
func TestPromiseP30_HostileServers(t *testing.T) {
	racetest.Amounts(t)
	canary := listenQuietly(t, "127.0.0.2:0")
	_ = zeroPack()
	all := maps.Clone(hostilePackets)
	maps.Copy(all, hostileData)
	all["redirect to a neighbour"] = redirectTo("http://" + canary.addr + "/info/refs")
	if !testing.Short() {
		all["a million blobs"] = hostile{sendPack(manyBlobs(1_000_000)), nil}
	}
	var table strings.Builder
	rows := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	fmt.Fprintln(rows, "server\tsaid\tms\trequests\tKiB came\tchildren\tRSS MiB\tspace MiB")
	for _, name := range racetest.Some(len(all)/2, slices.Sorted(maps.Keys(all))) {
		t.Run(name, func(t *testing.T) { refuse(t, all[name], name, rows) })
	}
	require.Zero(t, canary.seen.Load())
	_ = rows.Flush()
	t.Logf("%d hostile servers\n%s", len(all)/2, table.String())
}

func refuse(t *testing.T, h hostile, name string, rows io.Writer) {
	here := sample(t)
	before := digest(t, here)
	o := serve(t, here, func(w http.ResponseWriter, r *http.Request, _ http.Handler) { h.serve(w, r) })
	cfg := gitfetch.Config{
		MaxPackBytes: 32 << 20, Memory: gitrun.NewMemory(1 << 30),
	}.With(gitfetch.Fixed{MaxAdvertBytes: 8 << 20, MaxAdvertRefs: 10_000, RateWindow: 10 * time.Second, Timeout: time.Minute})
	if name == "stalls" || name == "never ends" || strings.HasPrefix(name, "drip") {
		cfg.Fixed().RateWindow = 300 * time.Millisecond // short, but other servers must not count as slow on a slow machine
	}
	if name == "never answers" {
		cfg.Fixed().Timeout = time.Second
	}
	f := fetcher(t, cfg)
	memory := watchChildren(f)
	want := oid(t, "00000000000000000000000000000000000000aa")
	began := time.Now()
	q, err := f.Open(here)
	require.NoError(t, err)
	empty := digest(t, q.Path())
	n, err := q.Fetch(t.Context(), o.clone(t), []nip34.ObjectID{want})
	if err == nil {
		missing, merr := q.Missing(t.Context(), []nip34.ObjectID{want})
		require.NoError(t, merr)
		require.NotEmpty(t, missing)
		err = errStillMissing
	} else {
		require.Equal(t, empty, digest(t, q.Path()), "bytes left in the quarantine")
	}
	took := time.Since(began)
	memory.end()
	require.NoError(t, q.Discard())
	if h.want != nil {
		require.True(t, h.want(err), "%v", err)
	}
	require.Less(t, took, 45*time.Second)
	require.Empty(t, leftovers(t, here))
	require.NoFileExists(t, here+"/shallow")
	require.Equal(t, before, digest(t, here))
	require.Empty(t, children(t), "orphans")
	require.LessOrEqual(t, len(o.seen()), 4)
	for _, r := range o.seen() {
		require.Regexp(t, "^(GET .*/info/refs|GET .*/login|POST .*/git-upload-pack)$", r)
	}
	require.Less(t, len(err.Error()), 1000)
	require.LessOrEqual(t, memory.all, cfg.Memory.Part>>10, "memory of a child")
	said := strings.ReplaceAll(err.Error(), "\n", " ")
	fmt.Fprintf(rows, "%s\t%.70s\t%d\t%d\t%d\t%d\t%d\t%d\n", name, said, took.Milliseconds(), len(o.seen()), n>>10,
		memory.children, memory.resident>>10, memory.all>>10)
}

// sample returns a copy of a repository with some history.
func sample(t testing.TB) string {
	t.Helper()
	samples.Do(func() {
		dir, err := os.MkdirTemp("", "gitfetch-sample-")
		require.NoError(t, err)
		sampleDir = dir
		git(t, dir, "init", "-q", "--bare", "-b", "main", dir)
		history(t, dir, "main", 3)
	})
	dir := t.TempDir() + "/repo.git"
	require.NoError(t, os.CopyFS(dir, os.DirFS(sampleDir)))
	return dir
}

var (
	samples   sync.Once
	sampleDir string
)

// quiet is a listener that must not get connections.
type quiet struct {
	addr string
	seen atomic.Int64
}

func listenQuietly(t testing.TB, addr string) *quiet {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	q := &quiet{addr: l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			q.seen.Add(1)
			_ = c.Close()
		}
	}()
	return q
}

// A truncated answer is refused at any length and leaves nothing.
func TestPromiseP31_CutOffAnywhere(t *testing.T) {
	there, here := bare(t, nip34.SHA1), sample(t)
	ids := history(t, there, "other", 5)
	before := digest(t, here)
	var answer bytes.Buffer
	record := serve(t, there, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodGet {
			next.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		answer.Write(rec.Body.Bytes())
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		_, _ = w.Write(rec.Body.Bytes())
	})
	f := fetcher(t)
	require.NoError(t, attempt(t.Context(), f, here, record.clone(t), ids[4]))
	var cut int
	short := serve(t, there, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		v2(func(w io.Writer) { _, _ = w.Write(answer.Bytes()[:cut]) })(w, r)
	})
	step := 10
	if testing.Short() {
		step = 100
	}
	n := 0
	for cut = 0; cut < answer.Len(); cut += step {
		require.Error(t, attempt(t.Context(), f, here, short.clone(t), ids[4]), "cut at %d of %d", cut, answer.Len())
		n++
	}
	cut = answer.Len() - 4
	require.Error(t, attempt(t.Context(), f, here, short.clone(t), ids[4]), "without the flush")
	require.Equal(t, before, digest(t, here))
	require.Empty(t, children(t))
	t.Logf("%d cuts of an answer of %d bytes", n, answer.Len())
}

// https never leads to http, and the password of a URL is never sent elsewhere.
func TestPromiseP3_NeverAwayFromTLS(t *testing.T) {
	plain := listenQuietly(t, "127.0.0.1:0")
	var seen atomic.Int64
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
			t.Error("credentials")
		}
		w.Header().Set("Set-Cookie", "a=b")
		http.Redirect(w, r, "http://"+plain.addr+r.URL.Path, http.StatusFound)
	}))
	t.Cleanup(srv.Close)
	f := fetcherTrusting(t, gitfetch.Config{}, srv)
	here := sample(t)
	u, err := graspsync.ParseCloneURL(srv.URL + "/repo.git")
	require.NoError(t, err)
	err = attempt(t.Context(), f, here, u, oid(t, strings.Repeat("a", 40)))
	require.ErrorIs(t, err, egress.ErrRedirect)
	require.Zero(t, plain.seen.Load())
	require.EqualValues(t, 1, seen.Load())
	for _, bad := range []string{"http://user:pass@127.0.0.1/repo.git", "file:///etc", "ssh://x/y", "ext::sh", "git://x/y", "/etc"} {
		_, err := graspsync.ParseCloneURL(bad)
		require.Error(t, err, bad)
	}
}
