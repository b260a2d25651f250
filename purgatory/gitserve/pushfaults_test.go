package gitserve_test

import (
	"bytes"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/gittest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// pushed is a server that receives each kind of push.
type pushed struct {
	*authority
	t     *testing.T
	f     *faultyFolder
	repos *gitserve.Repositories
	git   *gitserve.Handler
	log   bytes.Buffer // one request at a time writes
}

// newPushed serves an empty repository in which the n-th operation fails, of all kinds or of one
// kind.
func newPushed(t *testing.T, only string, n int, known, state map[string]string) *pushed {
	t.Helper()
	p := &pushed{t: t, authority: &authority{refs: state, tips: maps.Clone(known)}, f: &faultyFolder{only: only, n: n}}
	log := slog.New(slog.NewTextHandler(&p.log, nil))
	p.repos = repositoriesWith(t, gitserve.RepositoriesConfig{MaxOwnerBytes: 1 << 30, Logger: log})
	require.NoError(t, p.repos.Create(t.Context(), owner.Ref("x"), nip34.SHA1))
	p.repos.SetFolder(func(root gitserve.Folder) gitserve.Folder {
		p.f.Folder = root
		return p.f
	})
	p.step = func(op string) error { return p.f.step(op, "") }
	p.repos.SetFlush(func(file *os.File) error { return p.f.step("sync", filepath.Base(file.Name())) })
	var err error
	p.git, err = gitserve.New(p.repos, p.authority, gitserve.Config{MinFreeDisk: 1, Logger: log})
	require.NoError(t, err)
	p.git.SetDisk(func(string) (uint64, error) { return 1 << 40, p.f.step("free", "") })
	p.git.SetStarted(p.f.child)
	return p
}

// push sends a request and returns the answer.
func (p *pushed) push(body string) (status int, said string) {
	w := httptest.NewRecorder()
	p.git.ServeHTTP(w, httptest.NewRequestWithContext(p.t.Context(), http.MethodPost, "/"+owner.Npub()+"/x.git/"+receivePack, strings.NewReader(body)))
	if w.Code == http.StatusOK {
		reported(p.t, w.Header())
	}
	return w.Code, w.Body.String()
}

// reported checks the headers of a report. Clients read only this content type, and proxies must
// not cache it.
func reported(t *testing.T, h http.Header) {
	t.Helper()
	require.Equal(t, "application/x-git-receive-pack-result", h.Get("Content-Type"))
	require.Contains(t, h.Get("Cache-Control"), "no-cache")
}

// has returns the refs, and the events with staged data.
func (p *pushed) has(names ...string) (out []string) {
	for _, name := range names {
		_, err := os.Stat(filepath.Join(p.repos.Dir(), filepath.FromSlash(hashed(owner.Ref("x"))), filepath.FromSlash(name)))
		if err == nil {
			out = append(out, name)
		}
		if id, of := strings.CutPrefix(name, "refs/nostr/"); of && len(p.repos.Staged(owner.Ref("x"), eventID(p.t, id))) > 0 {
			out = append(out, "staged "+name)
		}
	}
	slices.Sort(out)
	return out
}

// Each operation of a push fails once: in the Authority, the folder or the disk. The client gets an
// error that does not blame the push. Exactly the reported changes are applied, no resource stays
// in use, and a repeated push has the same result as without a failure.
func TestEachFaultOfAPushIsTold(t *testing.T) {
	racetest.Amounts(t)
	r := newRig(t, gitserve.Config{})
	pack := gittest.Pack(t, r.work, r.tip)
	const main = "refs/heads/main"
	waits, comes := "refs/nostr/"+event, "refs/nostr/"+stranger(1)
	add := func(names ...string) (body string) {
		var lines []string
		for i, name := range names {
			line := null + " " + r.tip + " " + name
			if i == 0 {
				line += "\x00report-status"
			}
			lines = append(lines, line)
		}
		return packet(lines...) + pack
	}
	for name, push := range map[string]struct {
		refs []string
		then []string // expected content without failures
		gone bool     // the branch existed and is deleted
		same bool     // all content existed before
	}{
		"a branch":            {refs: []string{main}, then: []string{main}},
		"a branch goes":       {refs: []string{main}, gone: true},
		"a branch that is":    {refs: []string{main}, then: []string{main}, same: true},
		"for an event":        {refs: []string{waits}, then: []string{waits}},
		"for none that came":  {refs: []string{comes}, then: []string{"staged " + comes}},
		"a branch and events": {refs: []string{main, waits, comes}, then: []string{main, waits, "staged " + comes}},
	} {
		for _, only := range []string{"", ofFull, ofKill, ofNone} {
			t.Run(name+" "+only, func(t *testing.T) {
				body := add(push.refs...)
				if push.gone {
					body = packet(r.tip + " " + null + " " + main + "\x00report-status")
				}
				for n := range racetest.Steps(5) {
					p := newPushed(t, only, n, map[string]string{event: r.tip}, map[string]string{main: r.tip})
					if push.gone || push.same {
						p.f.n = -1
						_, said := p.push(add(main))
						require.Contains(t, said, "ok "+main)
						p.f.done, p.f.n = 0, n
					}
					if push.gone {
						p.refs = map[string]string{}
					}
					before := p.has(push.refs...)
					status, said := p.push(body)
					what, after := p.f.failed(), p.has(push.refs...)
					unheard := only == ofFull && status == http.StatusOK && said == "" // the report could not be saved
					if what != "" && status != http.StatusOK {

						require.GreaterOrEqual(t, status, 500, "%d: %s: %s", n, what, said)
						require.Equal(t, before, after, "%d: %s: half of it was done", n, what)
					}
					blames := []string{refusedNoState, refusedState, refusedTip, refusedStale}
					if only != ofKill { // a killed git gives no reason
						blames = append(blames, "git did not take the pack", "missing necessary objects")
					}
					for _, why := range blames {
						require.NotContains(t, said, why, "%d: %s", n, what)
					}
					for _, ref := range push.refs {
						done := slices.ContainsFunc(push.then, func(there string) bool { return strings.HasSuffix(there, ref) && slices.Contains(after, there) })
						if push.gone {
							done = !slices.Contains(after, ref)
						}
						// It is in the repository, and must be pushed again.
						unsynced := done && (strings.HasPrefix(what, "sync ") || strings.HasPrefix(what, "open "))
						if !unheard && !unsynced && (!push.same || strings.Contains(said, "ok "+ref)) {
							require.Equal(t, done, strings.Contains(said, "ok "+ref), "%d: %s: %s: %s", n, what, ref, said)
						}
					}
					if status == http.StatusOK && what != "" {
						logged := strings.Contains(p.log.String(), syscall.EIO.Error()) || strings.Contains(p.log.String(), syscall.ENOSPC.Error()) // applied despite the error
						require.True(t, strings.Contains(said, "ng ") || logged || unheard || untold(what) ||
							strings.Contains(what, " update-ref "), "%d: not told: %s", n, what)
					}
					if missing := len(after) != len(push.then) || status != http.StatusOK; missing {
						status, said = p.push(body)
						require.Equal(t, http.StatusOK, status, "%d: %s: %s", n, what, said)
					}
					slices.Sort(push.then)
					require.Equal(t, push.then, p.has(push.refs...), "%d: %s", n, what)
					p.f.heal()
					p.git.Close()
					p.git.CheckIdle(t)
					if folder, ok := strings.CutPrefix(what, "removeall "); ok && path.Dir(folder) == incoming {
						require.NoError(t, p.f.Folder.RemoveAll(folder)) // the next Open removes it
					}
					p.repos.CheckIdle(t)
					if what == "" {
						break
					}
				}
			})
		}
	}
}

// A client may disconnect at any moment, or send less than announced. Then nothing is applied, no
// resource stays in use, and no error of the server is logged.
func TestPushThatBreaksOff(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	pack := gittest.Pack(t, r.work, r.tip)
	for _, names := range [][]string{{"refs/heads/main"}, {"refs/nostr/" + stranger(1)}, {"refs/heads/main", "refs/nostr/" + stranger(1)}} {
		var lines []string
		for _, name := range names {
			lines = append(lines, null+" "+r.tip+" "+name)
		}
		lines[0] += "\x00report-status"
		commands := packet(lines...)
		body := commands + pack
		p := newPushed(t, "", -1, nil, map[string]string{"refs/heads/main": r.tip})
		for _, at := range []int{0, 3, 4, 50, len(commands) - 1, len(commands), len(commands) + 1, len(body) - 1} {
			for _, broken := range []bool{false, true} {
				var from io.Reader = strings.NewReader(body[:at])
				if broken {
					from = io.MultiReader(from, iotest.ErrReader(io.ErrUnexpectedEOF))
				}
				w := httptest.NewRecorder()
				p.git.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+owner.Npub()+"/x.git/"+receivePack, from))
				if at < 50 {
					require.Equal(t, http.StatusBadRequest, w.Code, "%v: %d: %s", names, at, w.Body)
				}
				require.NotContains(t, w.Body.String(), "ok refs", "%v: %d", names, at)
				require.Empty(t, p.has(names...), "%v: %d", names, at)
			}
		}
		status, said := p.push(body)
		require.Equal(t, http.StatusOK, status)
		for _, name := range names {
			require.Contains(t, said, "ok "+name)
		}
		p.git.Close()
		p.git.CheckIdle(t)
		p.repos.CheckIdle(t)
	}
}
