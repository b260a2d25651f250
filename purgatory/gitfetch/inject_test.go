package gitfetch_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// shim returns a git that records its arguments and environment and then runs git.
func shim(t testing.TB) (path, log string) {
	t.Helper()
	dir := t.TempDir()
	path, log = filepath.Join(dir, "git"), filepath.Join(dir, "log")
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	script := fmt.Sprintf("#!/bin/sh\n{ printf '%%s\\n' \"$@\"; tr '\\0' '\\n' < /proc/$$/environ; } >> %s\nexec %s \"$@\"\n", log, real)
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
	return path, log
}

// nasty are parts of generated untrusted texts.
var nasty = []string{
	"a", "main", "b/c", "/", "//", ".", "..", "../../", ".lock", "@", "{", "@{", "}", "-", "--", "--upload-pack=touch x", "~", "^",
	":", "?", "*", "[", "\\", " ", "\t", "\n", "\r\n", "\x00", "\x01", "\x1b[2J", "\x7f", "ä", "\xff", "'", "\"", "`id`", "$(touch x)",
	"${IFS}", ";", "|", "&", "HEAD", "^{}", "refs/heads/", "refs/tags/", "refs/", "+refs/heads/x:refs/heads/main", "%2e%2e%2f", "%00",
	"\u202e", "file://", "ext::sh -c", "-c", "core.hooksPath=", "\u00a0", "=", "#", "!", ",", "0000", "deadbeef", "ref: ", "create ", "delete ",
}

func made(rng *rand.Rand, most int) string {
	var b strings.Builder
	for range rng.IntN(most) {
		b.WriteString(nasty[rng.IntN(len(nasty))])
	}
	return b.String()
}

// Untrusted text never reaches the arguments or environment of git, and nothing is written outside
// the repository. This covers ids, ref names, URLs, and the identifier in the folder name.
func TestPromiseP7_NothingOfStrangersReachesGit(t *testing.T) {
	const marker = "zQ7" // in all untrusted text
	root := t.TempDir()
	inside := filepath.Join(root, "zQ7 -c x:y\";'$(touch pwned)ä\n--git-dir=.git")
	there := bare(t, nip34.SHA1)
	ids := history(t, there, "main", 3)
	from := sample(t)
	git(t, from, "repack", "-adq") // CopyObjects copies packs only
	require.NoError(t, os.CopyFS(inside, os.DirFS(from)))
	outside := func() string {
		var names []string
		entries, err := os.ReadDir(root)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return strings.Join(names, "|")
	}
	before := outside()
	o := serve(t, there, nil)
	path, log := shim(t)
	f := fetcher(t, gitfetch.Config{Git: path})
	rng := rand.New(rand.NewPCG(3, 4))

	// 50,000 texts. Those that can be parsed are used, many of them together.
	values, refs, urls := 0, map[string]nip34.RefName{}, []graspsync.CloneURL{}
	var odd []nip34.ObjectID
	for values < 50_000 {
		text := made(rng, 5)
		for _, prefix := range []string{"refs/heads/", "refs/tags/", ""} {
			if r, err := nip34.ParseRefName(prefix + marker + text); err == nil && len(refs) < 800 && len(text) < 60 {
				refs[strings.ToLower(r.String())] = r
			}
			values++
		}
		if id, err := nip34.ParseObjectID(text + strings.Repeat("e", max(0, 40-len(text)))); err == nil {
			odd = append(odd, id)
		}
		for _, base := range []string{o.URL + "/" + marker, "http://127.0.0.1:1/" + marker, marker, "http://" + marker} {
			if u, err := graspsync.ParseCloneURL(base + text); err == nil && strings.HasPrefix(u.String(), o.URL) && len(urls) < 12 {
				urls = append(urls, u)
			}
			values++
		}
		values++
	}
	var changes []refplan.RefChange
	for _, r := range withoutConflicts(refs) {
		changes = append(changes, refplan.RefChange{Name: r, New: ids[2]})
	}
	if testing.Short() {
		changes = changes[:100]
	}
	used := len(changes) + len(odd) + len(urls)
	q, err := f.Open(inside)
	require.NoError(t, err)
	for _, u := range urls {
		_, _ = q.Fetch(t.Context(), u, append([]nip34.ObjectID{ids[0]}, odd[:min(len(odd), 5)]...))
	}
	_, err = q.Fetch(t.Context(), o.clone(t), ids[2:])
	require.NoError(t, err)
	_, err = q.Missing(t.Context(), append(odd, ids...))
	require.NoError(t, err)
	require.NoError(t, q.Promote(t.Context()))
	require.NoError(t, f.UpdateRefs(t.Context(), inside, changes, changes[0].Name))
	got, err := f.Refs(t.Context(), inside)
	require.NoError(t, err)
	require.Len(t, got.At, len(changes)+1)
	require.Equal(t, changes[0].Name, got.Head)
	for i := range changes {
		changes[i].Old, changes[i].New = changes[i].New, nip34.ObjectID{}
	}
	require.NoError(t, f.UpdateRefs(t.Context(), inside, changes, nip34.RefName{}))
	require.NoError(t, f.Cleanup(t.Context(), inside))
	require.Equal(t, before, outside())
	// From and to repositories with such names, and over existing refs.
	beside := filepath.Join(root, "zQ7 other")
	require.NoError(t, os.CopyFS(beside, os.DirFS(bare(t, nip34.SHA1))))
	before = outside()
	require.NoError(t, f.CopyObjects(t.Context(), inside, beside, ids[2:]))
	require.NoError(t, f.CopyObjects(t.Context(), beside, inside, ids[:1]))
	complete(t, f, beside, ids)
	require.NoError(t, f.Cleanup(t.Context(), beside))
	complete(t, f, beside, ids) // no ref protects them

	seen, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(seen), "index-pack")
	require.Contains(t, string(seen), "pack-objects")
	require.Contains(t, string(seen), "update-ref")
	for _, bytes := range append([]string{marker, ids[0].String(), ids[2].String(), "upload-pack=", "IFS", "pwned", o.Listener.Addr().String(), "http:"}, words(odd)...) {
		require.NotContains(t, string(seen), bytes)
	}
	require.Equal(t, before, outside())
	for line := range strings.Lines(string(seen)) {
		require.NotRegexp(t, `^(GIT_DIR|GIT_CONFIG_PARAMETERS|GIT_CONFIG_COUNT|LD_|XDG_|PWD=.*zQ7)`, line)
	}
	git(t, inside, "fsck", "--strict")
	t.Logf("%d texts, %d refs, ids and URLs of them used, %d runs of git: bytes of strangers in arguments or environment 0, files outside 0",
		values, used, strings.Count(string(seen), "--git-dir=.\n"))
}

func words(ids []nip34.ObjectID) (out []string) {
	for _, id := range ids {
		out = append(out, id.String())
	}
	return out
}

// withoutConflicts omits names that are folders of other names.
func withoutConflicts(refs map[string]nip34.RefName) (out []nip34.RefName) {
	folders := make(map[string]bool)
	for name := range refs {
		for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
			folders[folder] = true
		}
	}
	for name, r := range refs {
		if !folders[name] {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b nip34.RefName) int { return strings.Compare(a.String(), b.String()) })
	return out // branches first
}

// Configuration, hooks and alternates of a repository, or of the user who runs the server, must not
// run programs.
func TestTrapG11_NothingElseIsRun(t *testing.T) {
	there, here := bare(t, nip34.SHA1), sample(t)
	tip := history(t, there, "main", 6)[5]
	proof := filepath.Join(t.TempDir(), "proof")
	script := []byte("#!/bin/sh\necho $0 >> " + proof + "\nexit 1\n")
	for _, hook := range []string{"reference-transaction", "post-index-change", "pre-auto-gc", "update", "post-update", "proc-receive"} {
		require.NoError(t, os.WriteFile(filepath.Join(here, "hooks", hook), script, 0o700))
	}
	helper := filepath.Join(t.TempDir(), "helper")
	require.NoError(t, os.WriteFile(helper, script, 0o700))
	for _, key := range []string{"core.fsmonitor", "core.alternateRefsCommand", "credential.helper", "core.sshCommand", "core.askPass", "uploadpack.packObjectsHook", "core.pager", "core.editor"} {
		git(t, here, "config", key, helper)
	}
	global := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(global, []byte("[core]\n\thooksPath = "+filepath.Dir(helper)+"\n\tfsmonitor = "+helper+"\n"), 0o600))
	t.Setenv("GIT_CONFIG_GLOBAL", global)
	t.Setenv("GIT_TRACE", proof)
	t.Setenv("GIT_DIR", "/nonexistent")
	t.Setenv("GIT_SSH_COMMAND", helper)
	f := fetcher(t)
	require.NoError(t, os.Unsetenv("GIT_DIR"))
	o := serve(t, there, nil)
	get(t, f, here, o.clone(t), tip)
	main := ref(t, "refs/heads/new")
	require.NoError(t, f.UpdateRefs(t.Context(), here, []refplan.RefChange{{Name: main, New: tip}}, main))
	require.NoError(t, os.Unsetenv("GIT_TRACE"))
	if data, err := os.ReadFile(proof); err == nil {
		require.NotContains(t, string(data), helper)
		require.NotContains(t, string(data), "hooks/")
	}
}

// Our validation of ref names equals git's.
func TestRefNamesAsGitJudgesThem(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	n := 2000
	if testing.Short() {
		n = 200
	}
	names, verdicts := make([]string, n), make([]bool, n)
	for i := range names {
		names[i] = []string{"refs/heads/", "refs/tags/"}[rng.IntN(2)] + strings.ReplaceAll(made(rng, 6), "\x00", "")
	}
	var wg sync.WaitGroup
	for part := range 4 {
		wg.Go(func() {
			for i := part; i < n; i += 4 {
				verdicts[i] = exec.Command("git", "check-ref-format", names[i]).Run() == nil
			}
		})
	}
	wg.Wait()
	good := 0
	for i, name := range names {
		_, err := nip34.ParseRefName(name)
		require.Equal(t, verdicts[i], err == nil, "%q", name)
		if err == nil {
			good++
		}
	}
	t.Logf("%d names, %d of them good: verdicts equal", n, good)
}
