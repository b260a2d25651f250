package gitserve_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/gittest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// served is a rig for tests with one repository.
type served struct {
	*rig
	t     *testing.T
	url   string // URL of the repository
	log   *racetest.Buffer
	pages viewed
}

func serve(t *testing.T, folder gitserve.RepositoriesConfig, cfg gitserve.Config) *served {
	t.Helper()
	s := &served{t: t, log: &racetest.Buffer{}}
	cfg.Logger = slog.New(slog.NewTextHandler(s.log, nil))
	cfg.Pages = &s.pages
	s.rig = rigWith(t, folder, cfg)
	s.url = s.repo()
	return s
}

func (s *served) try(args ...string) (string, error) { return try(s.t, s.work, args...) }

func (s *served) git(args ...string) string {
	s.t.Helper()
	return git(s.t, s.work, args...)
}

// commit commits a file of size random bytes.
func (s *served) commit(name string, size int) string {
	s.t.Helper()
	commit, _ := s.file(s.t, name, random(s.t, size))
	return commit
}

func (s *served) remote() string { return s.has(s.t) }

// bytes returns the size of the folder of repositories.
func (s *served) bytes() (n int64) {
	require.NoError(s.t, filepath.WalkDir(s.repos.Dir(), func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			info, err := d.Info()
			require.NoError(s.t, err)
			n += info.Size()
		}
		return err
	}))
	return n
}

func (s *served) pack(revisions ...string) string { return gittest.Pack(s.t, s.work, revisions...) }

func line(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

const null = "0000000000000000000000000000000000000000"

// post sends a push and returns the answer.
func (s *served) post(body io.Reader, header ...string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/git-receive-pack", body)
	require.NoError(s.t, err)
	req.Header.Set("Content-Type", "application/x-git-receive-pack-request")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	if resp.StatusCode == http.StatusOK {
		require.Equal(s.t, "application/x-git-receive-pack-result", resp.Header.Get("Content-Type"))
	}
	return resp.StatusCode, string(text)
}

// ask sends a fetch request and returns the answer.
func (s *served) ask(body io.Reader, protocol string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/git-upload-pack", body)
	require.NoError(s.t, err)
	req.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	req.Header.Set("Git-Protocol", protocol)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, string(text)
}

// git push --mirror with some refused refs printed "Everything up-to-date", and no ref was pushed.
func TestCaseC22_WhatIsAllowedOfAMirrorIsTaken(t *testing.T) {
	for name, settings := range map[string][]string{
		"in one piece": nil, "chunked": {"-c", "http.postBuffer=1000"}, "version 0": {"-c", "protocol.version=0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, gitserve.RepositoriesConfig{}, gitserve.Config{})
			first := s.commit("a", 3000)
			second := s.commit("b", 5000)
			s.git("update-ref", "refs/pull/1/head", second)
			s.git("update-ref", "refs/notes/commits", second)
			s.git("branch", "other")
			s.git("reset", "-q", "--hard", first)
			s.git("tag", "v1")
			s.says(map[string]string{"refs/heads/main": first, "refs/tags/v1": first})
			out, err := s.try(append(settings, "push", "--mirror", s.url)...)
			require.Error(t, err)
			for _, ref := range []string{"refs/pull/1/head", "refs/notes/commits"} {
				require.Regexp(t, `! \[remote rejected\] `+ref+` -> `+ref+` \(only branches, tags and refs/nostr/`, out)
			}
			require.Regexp(t, `! \[remote rejected\] other -> other \(the newest state event says otherwise: `, out)
			require.Regexp(t, `\* \[new branch\] +main -> main`, out)
			require.Regexp(t, `\* \[new tag\] +v1 -> v1`, out)
			require.Equal(t, first+"\tHEAD\n"+first+"\trefs/heads/main\n"+first+"\trefs/tags/v1", s.remote())
		})
	}
}

// Every refusal is a report if the client reads reports.
func TestCaseC22_EveryRefusalIsAReport(t *testing.T) {
	s := serve(t, gitserve.RepositoriesConfig{MaxOwnerBytes: 1 << 20}, gitserve.Config{})
	tip := s.commit("a", 100)
	s.says(map[string]string{"refs/heads/main": tip})
	first := func(capabilities string) string {
		return line(null + " " + tip + " refs/heads/main\x00" + capabilities)
	}
	for name, c := range map[string]struct{ body, says string }{
		"no pack":           {first("report-status") + "0000", "unpack push not understood: there is no pack\n"},
		"a broken pack":     {first("report-status") + "0000" + "PACK\x00\x00\x00\x02\x00\x00\x00\x01garbage garbage garbage", "unpack git index-pack: "},
		"cut off":           {first("report-status") + "0000" + s.pack(tip)[:50], "unpack git index-pack: "},
		"half of it":        {first("report-status") + "0000" + "PACK\x00\x00\x00\x02\x00\x00\x00\x00", "ng refs/heads/main missing necessary objects\n"},
		"a later line":      {first("report-status") + "zzzz", "unpack push not understood: not a packet line: length \"zzzz\"\n"},
		"an end":            {first("report-status"), "unpack the request could not be read\n"},
		"push options":      {first("report-status push-options") + "0000", "unpack push not understood: push options"},
		"a ref twice":       {first("report-status") + line(null+" "+tip+" refs/heads/main") + "0000" + s.pack(tip), "ng refs/heads/main multiple updates"},
		"what is not an id": {first("report-status") + line("x y refs/heads/y") + "0000", "unpack push not understood: "},
		"a certificate": {
			line("push-cert\x00report-status push-cert=nonce") + line("certificate version 0.1\n") + line("push-cert-end\n") + "0000",
			"unpack push not understood: certificates are not taken\n",
		},
		"a first line that is no command": {line("x\x00report-status") + "0000", "unpack push not understood: not a command\n"},
		"version 2":                       {first("report-status-v2") + line(null+" "+tip+" HEAD") + "0000" + "PACK", "ng HEAD only branches"},
		"a locked name":                   {first("report-status") + line(null+" "+tip+" refs/heads/a.lock") + "0000" + "PACK", "ng refs/heads/a.lock a part of the ref name ends with .lock\n"},
		"a long name":                     {first("report-status") + line(null+" "+tip+" refs/heads/"+strings.Repeat("n", 256)) + "0000" + "PACK", " a part of the ref name has 256 bytes, more than 250\n"},
	} {
		status, text := s.post(strings.NewReader(c.body))
		require.Equal(t, http.StatusOK, status, "%s: %s", name, text)
		require.Contains(t, text, c.says, name)
		require.NotContains(t, text, "ok refs", name)
		require.True(t, strings.HasSuffix(text, "0000"), name)

		status, text = s.post(strings.NewReader(strings.Replace(c.body, first("report-status"), first("report-status side-band-64k"), 1)))
		require.Equal(t, http.StatusOK, status, "%s: %s", name, text)
		require.Contains(t, text, c.says, name)
	}
	require.Empty(t, s.remote())
	require.NotContains(t, s.log.String(), "WARN", "an operator can do nothing about faults of clients")

	// Neither the owner's quota nor the disk has room.
	tip = s.commit("large", 2<<20)
	s.says(map[string]string{"refs/heads/main": tip})
	out, err := s.try("push", s.url, "main")
	require.Error(t, err)
	require.Regexp(t, `! \[remote rejected\] main -> main \(the repositories of this owner take up all`, out)
	full := serve(t, gitserve.RepositoriesConfig{}, gitserve.Config{MinFreeDisk: 1 << 60})
	full.says(map[string]string{"refs/heads/main": full.commit("a", 10)})
	out, err = full.try("push", full.url, "main")
	require.Error(t, err)
	require.Regexp(t, `! \[remote rejected\] main -> main \(not enough free disk on the server`, out)
}

// A ref is deleted and another is created below or above its name.
func TestCaseC22_DeletionsAndTheirPlaces(t *testing.T) {
	s := serve(t, gitserve.RepositoriesConfig{}, gitserve.Config{})
	tip := s.commit("a", 100)
	s.says(map[string]string{"refs/heads/a": tip, "refs/heads/b": tip})
	s.git("push", "-q", s.url, "main:a", "main:b")
	s.says(map[string]string{"refs/heads/a/b": tip, "refs/heads/b": tip})
	out, err := s.try("push", s.url, ":a", ":b", "main:a/b")
	require.Error(t, err)
	require.Regexp(t, `! \[remote rejected\] b \(the newest state event says otherwise`, out)
	require.Regexp(t, `- \[deleted\] +a`, out)
	require.Equal(t, tip+"\trefs/heads/a/b\n"+tip+"\trefs/heads/b", s.remote())
}

// Objects of a pack that no ref needs were stored, served by id, and counted for the owner.
func TestCaseH4_OnlyWhatRefsNeedIsKept(t *testing.T) {
	for name, c := range map[string]func(s *served, tip string) (command string, bystander string){
		"a branch": func(s *served, tip string) (string, string) {
			s.says(map[string]string{"refs/heads/main": tip})
			return "refs/heads/main", ""
		},
		"a pull request": func(s *served, tip string) (string, string) {
			s.tips[strings.Repeat("a", 64)] = tip
			return "refs/nostr/" + strings.Repeat("a", 64), ""
		},
		"beside what is refused": func(s *served, tip string) (string, string) {
			s.says(map[string]string{"refs/heads/main": tip})
			return "refs/heads/main", "refs/heads/other"
		},
		"beside what is for an event that is not stored": func(s *served, tip string) (string, string) {
			s.says(map[string]string{"refs/heads/main": tip})
			return "refs/heads/main", "refs/nostr/" + strings.Repeat("b", 64)
		},
	} {
		t.Run(name, func(t *testing.T) {
			const junk = 2 << 20
			s := serve(t, gitserve.RepositoriesConfig{MaxOwnerBytes: 1 << 20}, gitserve.Config{})
			tip := s.commit("small", 1000)
			s.git("checkout", "-q", "--orphan", "junk")
			extra := s.commit("junk", junk)
			blob := s.git("rev-parse", "junk:junk")
			ref, other := c(s, tip)
			body := line(null + " " + tip + " " + ref + "\x00report-status")
			if other != "" {
				body += line(null + " " + extra + " " + other)
			}
			status, text := s.post(strings.NewReader(body + "0000" + s.pack(tip, extra)))
			require.Equal(t, http.StatusOK, status)
			require.Contains(t, text, "ok "+ref+"\n")
			require.Contains(t, s.remote(), tip)
			for _, id := range []string{extra, blob} {
				fresh := serve(t, gitserve.RepositoriesConfig{}, gitserve.Config{})
				_, err := fresh.try("fetch", "-q", s.url, id)
				require.Error(t, err, "%s is served", id)
			}
			if !strings.HasPrefix(other, "refs/nostr/") {
				require.Less(t, s.bytes(), int64(junk/4))
			}
			// The owner's quota is unchanged.
			s.git("checkout", "-q", tip)
			next := s.commit("next", 1000)
			s.says(map[string]string{"refs/heads/main": next})
			s.git("push", "-q", s.url, "HEAD:refs/heads/main")
			fresh := serve(t, gitserve.RepositoriesConfig{}, gitserve.Config{})
			fresh.git("fetch", "-q", s.url, "+refs/*:refs/x/*")
			fresh.git("fsck", "--strict")
		})
	}
}

// JGit compresses packs from memory. They were accepted only up to 8 MiB.
func TestCaseC23_GzippedPushIsTakenUpToTheLimit(t *testing.T) {
	s := serve(t, gitserve.RepositoriesConfig{}, gitserve.Config{MaxPush: 20 << 20})
	tip := s.commit("large", 10<<20)
	s.says(map[string]string{"refs/heads/main": tip})
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := io.WriteString(z, line(null+" "+tip+" refs/heads/main\x00report-status")+"0000"+s.pack(tip))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	status, text := s.post(&packed, "Content-Encoding", "gzip")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "ok refs/heads/main\n")
	require.Contains(t, s.remote(), tip)

	packed.Reset()
	z.Reset(&packed)
	tip = strings.Repeat("1", 40)
	s.says(map[string]string{"refs/heads/main": tip})
	_, err = io.WriteString(z, line(null+" "+tip+" refs/heads/main\x00report-status")+"0000"+strings.Repeat("x", 21<<20))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	status, text = s.post(&packed, "Content-Encoding", "gzip")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "unpack more than 20971520 bytes")
}

// A fetch request with more wants than git http-backend can store got an empty answer with status
// 200.
func TestCaseC27_LargeFetchRequestsAreAnswered(t *testing.T) {
	s := serve(t, gitserve.RepositoriesConfig{}, gitserve.Config{})
	tip := s.commit("a", 100)
	s.says(map[string]string{"refs/heads/main": tip})
	s.git("push", "-q", s.url, "main")
	fetch := func(wants int, protocol string) (int, string) {
		var body bytes.Buffer
		if protocol == "version=2" {
			body.WriteString(line("command=fetch") + "0001")
		}
		for range wants {
			body.WriteString(line("want " + tip + "\n"))
		}
		if protocol != "version=2" {
			body.WriteString("0000")
		}
		body.WriteString(line("done\n"))
		if protocol == "version=2" {
			body.WriteString("0000")
		}
		return s.ask(&body, protocol)
	}
	for _, protocol := range []string{"version=2", ""} {
		status, text := fetch(12<<20/50, protocol)
		require.Equal(t, http.StatusOK, status, text[:min(len(text), 300)])
		require.Contains(t, text, "PACK", protocol)
		status, text = fetch(17<<20/50, protocol)
		require.Equal(t, http.StatusRequestEntityTooLarge, status)
		require.Contains(t, text, "16777216")
	}
}

// Requests that git does not understand or support got an internal error and caused a warning.
func TestCaseC28_RefusedFetchesSayWhy(t *testing.T) {
	s := serve(t, gitserve.RepositoriesConfig{}, gitserve.Config{})
	tip := s.commit("a", 100)
	s.says(map[string]string{"refs/heads/main": tip})
	s.git("push", "-q", s.url, "main")
	for _, protocol := range []string{"0", "2"} {
		out, err := s.try("-c", "protocol.version="+protocol, "clone", "-q", "--shallow-since=2099-01-01", s.url, t.TempDir())
		require.Error(t, err)
		require.Contains(t, out, "fatal: remote error: no commits selected for shallow requests")
	}
	for _, c := range []struct{ body, protocol, says string }{
		{"zzzz", "", "protocol error: bad line length character: zzzz"},
		{"zzzz", "version=2", "protocol error: bad line length character: zzzz"},
		{"", "", "the remote end hung up unexpectedly"},
		{line("want x\n") + "0000", "", "expected to get object ID, not 'want x'"},
		{line("want " + tip), "", "the remote end hung up unexpectedly"},
		{line("shallow x\n") + "0000", "", "invalid shallow line: shallow x"},
		{line("want "+tip) + line("deepen 0") + "0000", "", "Invalid deepen: deepen 0"},
		{line("want "+strings.Repeat("1", 40)) + "0000" + line("done"), "", "not our ref 1111"},
		{"0001", "version=2", "no command requested"},
		{line("command=x") + "0000", "version=2", "invalid command 'x'"},
		{line("command=fetch") + line("x") + "0000", "version=2", "unknown capability 'x'"},
		{line("command=fetch") + line("command=fetch") + "0000", "version=2", "already requesting command 'fetch'"},
		{line("command=fetch") + line("object-format=sha256") + "0001" + line("want "+tip) + "0000", "version=2", "mismatched object format"},
		{line("command=fetch") + "0001" + line("x") + "0000", "version=2", "unexpected line: 'x'"},
		{line("command=fetch") + "0001" + line("want "+tip) + line("have x") + "0000", "version=2", "expected SHA1 object, got 'x'"},
		{line("command=fetch") + "0001" + line("want "+tip) + line("filter tree:3") + "0000", "version=2", "tree filter allows max depth 0"},
	} {
		status, text := s.ask(strings.NewReader(c.body), c.protocol)
		require.Equal(t, http.StatusOK, status, c.body)
		require.Regexp(t, "^[0-9a-f]{4}ERR ", text, c.body)
		require.Contains(t, text, c.says, c.body)
		require.NotContains(t, text, "could not send all", c.body)
	}
	require.Empty(t, s.log.String())
}

// API clients, such as git LFS, received plain text.
func TestCaseC26_ClientsOfAnAPIHearJSON(t *testing.T) {
	s := serve(t, gitserve.RepositoriesConfig{}, gitserve.Config{})
	s.says(map[string]string{"refs/heads/main": s.commit("a", 10)})
	s.git("push", "-q", s.url, "main")
	base := strings.TrimSuffix(s.url, "/x.git")
	for _, c := range []struct {
		method, url, body, accept, contentType string
		status                                 int
		kind, says                             string
	}{
		{"POST", s.url + "/info/lfs/objects/batch", `{"operation":"download","objects":[]}`, "application/vnd.git-lfs+json", "application/vnd.git-lfs+json", 501, "application/vnd.git-lfs+json", "LFS"},
		{"POST", s.url + "/info/lfs/locks/verify", `{}`, "application/vnd.git-lfs+json", "application/vnd.git-lfs+json", 501, "application/vnd.git-lfs+json", "LFS"},
		{"GET", s.url + "/info/lfs/locks", "", "application/vnd.git-lfs+json", "", 501, "application/vnd.git-lfs+json", "LFS"},
		{"POST", base + "/none.git/info/lfs/objects/batch", `{}`, "", "application/vnd.git-lfs+json", 501, "application/vnd.git-lfs+json", "LFS"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, c.url, strings.NewReader(c.body))
		require.NoError(t, err)
		if c.accept != "" {
			req.Header.Set("Accept", c.accept)
		}
		if c.contentType != "" {
			req.Header.Set("Content-Type", c.contentType)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, c.status, resp.StatusCode, c.url)
		require.Equal(t, c.kind, resp.Header.Get("Content-Type"), c.url)
		var said struct{ Message string }
		require.NoError(t, json.Unmarshal(text, &said), "%s: %s", c.url, text)
		require.Contains(t, said.Message, c.says, c.url)
	}
}

// viewed is Pages that record the last View.
type viewed struct{ gitserve.View }

func (p *viewed) Repository(w http.ResponseWriter, _ *http.Request, v gitserve.View) {
	p.View = v
	_, _ = io.WriteString(w, "<p>a page</p>")
}

func (p *viewed) Missing(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, "<p>no page</p>")
}

// A page showed no README, no commit, or text that git reads slowly.
func TestViewOfARepository(t *testing.T) {
	s := serve(t, gitserve.RepositoriesConfig{}, gitserve.Config{}.With(gitserve.Fixed{View: time.Minute}))
	view := func() gitserve.View {
		resp, err := http.Get(s.url)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return s.pages.View
	}
	v := view()
	require.Equal(t, "x", v.Ref.Identifier)
	require.Empty(t, v.HEAD)
	require.True(t, v.Changed.IsZero())
	push := func() gitserve.View {
		s.git("add", "-A")
		s.git("commit", "-qm", "Say <b>hello</b>\n\nand why")
		s.says(map[string]string{"refs/heads/main": s.git("rev-parse", "HEAD")})
		s.git("push", "-q", s.url, "main")
		return view()
	}
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(s.work, name), []byte(text), 0o600))
	}
	write("README", "plain")
	v = push()
	require.Equal(t, "refs/heads/main", v.HEAD)
	require.Len(t, v.Refs, 1)
	require.Equal(t, "Say <b>hello</b>", v.Subject)
	require.WithinDuration(t, time.Now(), v.Changed, time.Hour)
	require.Equal(t, []string{"README", "plain"}, []string{v.ReadmeName, string(v.Readme)})
	write("README.md", "# Title\n")
	v = push()
	require.Equal(t, []string{"README.md", "# Title\n"}, []string{v.ReadmeName, string(v.Readme)})
	write("README.md", strings.Repeat("x", 256<<10+1))
	require.NoError(t, os.Remove(filepath.Join(s.work, "README")))
	v = push()
	require.Empty(t, v.Readme)
	require.Equal(t, "Say <b>hello</b>", v.Subject)
	require.NoError(t, os.Remove(filepath.Join(s.work, "README.md")))
	require.NoError(t, os.Mkdir(filepath.Join(s.work, "README.md"), 0o700))
	write("README.md/file", "of a folder")
	require.Empty(t, push().Readme)
	require.Empty(t, s.log.String())
}
