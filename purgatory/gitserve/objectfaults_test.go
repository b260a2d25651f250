package gitserve_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/gittest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// packed are objects written unchanged, even if git would refuse them.
type packed struct {
	n    int
	body bytes.Buffer
}

// add adds an object and returns its id.
func (p *packed) add(kind, body string) string {
	p.n++
	size := len(body)
	head := byte(map[string]int{"commit": 1, "tree": 2, "blob": 3, "tag": 4}[kind]<<4 | size&15)
	for size >>= 4; size > 0; size >>= 7 {
		p.body.WriteByte(head | 0x80)
		head = byte(size & 0x7f)
	}
	p.body.WriteByte(head)
	z := zlib.NewWriter(&p.body)
	_, _ = z.Write([]byte(body)) // into memory
	_ = z.Close()
	sum := sha1.Sum(fmt.Appendf(nil, "%s %d\x00%s", kind, len(body), body))
	return hex.EncodeToString(sum[:])
}

// pack returns a pack of the objects.
func (p *packed) pack() string {
	out := append([]byte("PACK\x00\x00\x00\x02"), binary.BigEndian.AppendUint32(nil, uint32(p.n))...)
	out = append(out, p.body.Bytes()...)
	sum := sha1.Sum(out)
	return string(append(out, sum[:]...))
}

// entry returns a tree entry.
func entry(modeAndName, id string) string {
	raw, _ := hex.DecodeString(id)
	return modeAndName + "\x00" + string(raw)
}

const somebody = "a <a@example.com> 1200000000 +0000"

// file adds a blob and returns a tree entry for it.
func (p *packed) file(modeAndName, text string) string {
	return entry(modeAndName, p.add("blob", text))
}

// tree adds a commit whose tree has the given entries.
func (p *packed) tree(entries ...string) string {
	return p.add("commit", fmt.Sprintf("tree %s\nauthor %s\ncommitter %s\n\nx\n", p.add("tree", strings.Join(entries, "")), somebody, somebody))
}

// commit adds a commit with lines after its tree line.
func (p *packed) commit(lines string) string {
	return p.add("commit", "tree "+p.add("tree", p.file("100644 f", "x\n"))+"\n"+lines)
}

// author adds a commit with an author line. committer adds one with a committer line.
func author(line string) func(*packed) string {
	return func(p *packed) string {
		return p.commit("author " + line + "\ncommitter " + somebody + "\n\nx\n")
	}
}

// tag adds a tag with text after its object line.
func tag(text string) func(*packed) string {
	return func(p *packed) string {
		return p.add("tag", "object "+author(somebody)(p)+"\n"+text)
	}
}

// tree adds a commit whose tree has an additional entry.
func tree(modeAndName, text string) func(*packed) string {
	return func(p *packed) string { return p.tree(p.file(modeAndName, text), p.file("100644 zz", "x\n")) }
}

func folder(name string) func(*packed) string {
	return func(p *packed) string {
		return p.tree(entry("40000 "+name, p.add("tree", p.file("100644 f", "x\n"))), p.file("100644 zz", "x\n"))
	}
}

const absent = "0123456789012345678901234567890123456789"

// Expected results for a history with a fault.
const (
	taken   = "as plain git: taken"
	broken  = "as plain git: refused, because git cannot read the object or it lacks objects"
	guarded = "plain git takes it; here an operator must allow it, because it attacks or breaks a checkout"
	none    = "no pack can have it"
)

// objectFaults lists all messages of git fsck 2.39 with the expected result for a history with the
// fault.
var objectFaults = []struct {
	id   string
	want string
	make func(*packed) string // returns the tip
}{
	{"badDate", taken, author("a <a@b> <a@b> 1200000000 +0000")},
	{"badDateOverflow", taken, author("a <a@b> 99999999999999999999 +0000")},
	{"badEmail", taken, author("a <a@b 1200000000 +0000")},
	{"badFilemode", taken, tree("100600 f", "x\n")},
	{"badName", taken, author("a> <a@b> 1200000000 +0000")},
	{"badObjectSha1", broken, func(p *packed) string {
		return p.add("tag", "object xyz\ntype commit\ntag v1\ntagger "+somebody+"\n\nx\n")
	}},
	{"badParentSha1", broken, func(p *packed) string {
		return p.commit("parent xyz\nauthor " + somebody + "\ncommitter " + somebody + "\n\nx\n")
	}},
	{"badTagName", taken, tag("type commit\ntag a..b\ntagger " + somebody + "\n\nx\n")},
	{"badTimezone", taken, author("a <a@b> 1200000000 +00000")},
	{"badTree", broken, func(p *packed) string {
		return p.add("commit", fmt.Sprintf("tree %s\nauthor %s\ncommitter %s\n\nx\n", p.add("tree", "no tree"), somebody, somebody))
	}},
	{"badTreeSha1", broken, func(p *packed) string { return p.add("commit", "tree xyz\nauthor "+somebody+"\n\nx\n") }},
	{"badType", broken, tag("type thing\ntag v1\ntagger " + somebody + "\n\nx\n")},
	{"duplicateEntries", guarded, func(p *packed) string { return p.tree(p.file("100644 f", "x\n"), p.file("100644 f", "y\n")) }},
	{"emptyName", broken, tree("100644 ", "x\n")},
	{"extraHeaderEntry", taken, tag("type commit\ntag v1\ntagger " + somebody + "\nextra x\n\nx\n")},
	{"fullPathname", guarded, tree("100644 a/b", "x\n")},
	{"gitattributesBlob", taken, folder(".gitattributes")},
	{"gitattributesLarge", taken, tree("100644 .gitattributes", strings.Repeat(strings.Repeat("#", 1023)+"\n", 16<<10+1))},
	{"gitattributesLineLength", taken, tree("100644 .gitattributes", strings.Repeat("a", 5000)+" text\n")},
	{"gitattributesMissing", broken, func(p *packed) string { return p.tree(entry("100644 .gitattributes", absent)) }},
	{"gitattributesSymlink", taken, tree("120000 .gitattributes", "x")},
	{"gitignoreSymlink", taken, tree("120000 .gitignore", "x")},
	{"gitmodulesBlob", guarded, folder(".gitmodules")},
	{"gitmodulesLarge", guarded, tree("100644 .gitmodules", strings.Repeat(strings.Repeat("#", 1023)+"\n", 16<<10+1))},
	{"gitmodulesMissing", broken, func(p *packed) string { return p.tree(entry("100644 .gitmodules", absent)) }},
	{"gitmodulesName", guarded, tree("100644 .gitmodules", "[submodule \"../x\"]\n\tpath = x\n\turl = https://example.com/x\n")},
	{"gitmodulesParse", taken, tree("100644 .gitmodules", "[[no config\n")},
	{"gitmodulesPath", guarded, tree("100644 .gitmodules", "[submodule \"x\"]\n\tpath = -x\n\turl = https://example.com/x\n")},
	{"gitmodulesSymlink", guarded, tree("120000 .gitmodules", "x")},
	{"gitmodulesUpdate", guarded, tree("100644 .gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = https://example.com/x\n\tupdate = !sh\n")},
	{"gitmodulesUrl", guarded, tree("100644 .gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = -ux\n")},
	{"hasDot", guarded, folder(".")},
	{"hasDotdot", guarded, folder("..")},
	{"hasDotgit", guarded, folder(".git")},
	{"mailmapSymlink", taken, tree("120000 .mailmap", "x")},
	{"missingAuthor", taken, func(p *packed) string { return p.commit("committer " + somebody + "\n\nx\n") }},
	{"missingCommitter", taken, func(p *packed) string { return p.commit("author " + somebody + "\n\nx\n") }},
	{"missingEmail", taken, author("a 1200000000 +0000")},
	{"missingNameBeforeEmail", taken, author("<a@b> 1200000000 +0000")},
	{"missingObject", broken, func(p *packed) string { return p.add("tag", "type commit\ntag v1\n\nx\n") }},
	{"missingSpaceBeforeDate", taken, author("a <a@b>1200000000 +0000")},
	{"missingSpaceBeforeEmail", taken, author("Old Author<old@example.com> 1200000000 +0000")},
	{"missingTag", broken, tag("type commit")},
	{"missingTagEntry", broken, tag("type commit\nname v1\n\nx\n")},
	{"missingTaggerEntry", taken, tag("type commit\ntag v1\n\nx\n")},
	{"missingTree", broken, func(p *packed) string { return p.add("commit", "author "+somebody+"\n\nx\n") }},
	{"missingType", broken, tag("type \ntag v1\n\nx\n")},
	{"missingTypeEntry", broken, tag("tag v1\n\nx\n")},
	{"multipleAuthors", taken, author(somebody + "\nauthor " + somebody)},
	{"nulInCommit", taken, func(p *packed) string {
		return p.commit("author " + somebody + "\ncommitter " + somebody + "\n\nx\x00y\n")
	}},
	{"nulInHeader", taken, author("a\x00 <a@b> 1200000000 +0000")},
	{"nullSha1", guarded, func(p *packed) string { return p.tree(entry("160000 m", null)) }},
	{"treeNotSorted", guarded, func(p *packed) string { return p.tree(p.file("100644 g", "x\n"), p.file("100644 f", "x\n")) }},
	{"unknownType", none, nil},
	{"unterminatedHeader", taken, func(p *packed) string { return p.commit("author " + somebody + "\ncommitter " + somebody) }},
	{"zeroPaddedDate", taken, author("a <a@b> 01200000000 +0000")},
	{"zeroPaddedFilemode", taken, tree("0100644 f", "x\n")},

	// Not messages of git fsck.
	{"object twice in the pack", taken, func(p *packed) string { p.file("", "x\n"); return author(somebody)(p) }},
	{"object twice in the pack, NUL in a header", taken, func(p *packed) string { p.file("", "x\n"); return author("\x00")(p) }},
	{"encoding", taken, func(p *packed) string {
		return p.commit("author \xe4 <a@b> 1 +0000\ncommitter " + somebody + "\nencoding no-such\n\n\xff\xfe\n")
	}},
	{"commit of 4 MiB", taken, large(3 << 20)},
	{"NUL in a header, hasDotgit", guarded, func(p *packed) string {
		return p.add("commit", "tree "+p.add("tree", p.file("100644 .git", "x\n"))+"\nauthor a\x00\ncommitter x\n\nx\n")
	}},
}

// large adds a commit with a message of size bytes.
func large(size int) func(*packed) string {
	return func(p *packed) string {
		return p.commit("author " + somebody + "\ncommitter " + somebody + "\n\n" + strings.Repeat("a", size) + "\n")
	}
}

// faulty is a server and a fetcher that allow some faults.
type faulty struct {
	*rig
	fetcher *gitfetch.Fetcher
}

func faultyServer(t *testing.T, allow ...string) *faulty {
	t.Helper()
	f := &faulty{rig: rigWith(t, gitserve.RepositoriesConfig{AllowFaults: allow}, gitserve.Config{})}
	dialer, err := egress.NewDialer(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPlaintext: true})
	require.NoError(t, err)
	f.fetcher, err = gitfetch.New(t.Context(), gitfetch.Config{Dialer: dialer, AllowFaults: allow})
	require.NoError(t, err)
	t.Cleanup(f.fetcher.Close)
	return f
}

// repository creates an empty repository and returns its URL.
func (f *faulty) repository(t *testing.T, identifier string) (ref graspsync.RepoRef, url string) {
	t.Helper()
	ref = owner.Ref(identifier)
	require.NoError(t, f.repos.Create(t.Context(), ref, nip34.SHA1))
	return ref, f.url + "/" + owner.Npub() + "/" + identifier + ".git"
}

// post pushes one ref and returns the answer.
func post(t *testing.T, url, name, tip, pack string) string {
	t.Helper()
	return postFrom(t, url, name, null, tip, pack)
}

// postFrom pushes a ref with an old value.
func postFrom(t *testing.T, url, name, from, tip, pack string) string {
	t.Helper()
	body := line(from+" "+tip+" "+name+"\x00report-status") + "0000" + pack
	resp, err := http.Post(url+"/git-receive-pack", "application/x-git-receive-pack-request", strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(said)
}

// plainServer serves the repositories of a folder with plain git.
func plainServer(t *testing.T) (dir, url string) {
	t.Helper()
	dir = t.TempDir()
	server := httptest.NewServer(gittest.Backend(t, dir))
	t.Cleanup(server.Close)
	return dir, server.URL
}

// hunt fetches a tip into a repository, like for a state, and moves the ref.
func (f *faulty) hunt(t *testing.T, ref graspsync.RepoRef, from, name, tip string) error {
	t.Helper()
	url, err := graspsync.ParseCloneURL(from)
	require.NoError(t, err)
	id, err := nip34.ParseObjectID(tip)
	require.NoError(t, err)
	ids := []nip34.ObjectID{id}
	dir, unlock, err := f.repos.Lock(t.Context(), ref)
	require.NoError(t, err)
	defer unlock()
	q, err := f.fetcher.Quarantine(t.Context(), dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, q.Discard()) }()
	request := purgatory.FetchRequest{From: url, Want: ids, Dir: dir, Quarantine: q.Folder(), Received: new(atomic.Int64)}
	if err := f.fetcher.Fetch(t.Context(), request); err != nil {
		return err
	}
	missing, err := q.Missing(t.Context(), ids)
	if err == nil && len(missing) > 0 {
		err = errors.New("incomplete")
	}
	if err == nil {
		err = q.Promote(t.Context())
	}
	if err != nil {
		return err
	}
	refName, err := nip34.ParseRefName(name)
	require.NoError(t, err)
	require.NoError(t, f.fetcher.UpdateRefs(t.Context(), dir, []refplan.RefChange{{Name: refName, New: id}}, nip34.RefName{}))
	return nil
}

// serves checks that histories of refs are complete, can be cloned by plain git, and survive
// maintenance.
func (f *faulty) serves(t *testing.T, ref graspsync.RepoRef, url string, refs map[string]string) {
	t.Helper()
	done, err := f.fetcher.Maintain(t.Context(), gitops.Maintenance{
		Lock:  func(ctx context.Context) (string, func(), error) { return f.repos.Lock(ctx, ref) },
		Keep:  func(context.Context) ([]nip34.ObjectID, error) { return nil, nil },
		Grace: 14 * 24 * time.Hour, Remember: 30 * 24 * time.Hour,
	})
	require.NoError(t, err)
	require.True(t, done.Pruned)
	dir, unlock, err := f.repos.Lock(t.Context(), ref)
	require.NoError(t, err)
	var ids []nip34.ObjectID
	var want []string
	for name, tip := range refs {
		id, err := nip34.ParseObjectID(tip)
		require.NoError(t, err)
		ids, want = append(ids, id), append(want, tip+" "+name)
	}
	missing, err := f.fetcher.Missing(t.Context(), dir, ids)
	unlock()
	require.NoError(t, err)
	require.Empty(t, missing)
	clone := t.TempDir()
	out, err := gittest.Input(t, clone, "", "clone", "-q", "--mirror", url, "x.git")
	require.NoError(t, err, out)
	out, err = gittest.Input(t, filepath.Join(clone, "x.git"), "", "for-each-ref", "--format=%(objectname) %(refname)")
	require.NoError(t, err, out)
	for _, line := range want {
		require.Contains(t, out, line)
	}
}

// Old repositories contain faults that git accepts everywhere. Pushes and fetches refused them, so
// the events of such a repository expired. Plain git is compared, by push and by fetch.
func TestCaseC21_FaultsOfObjectsAsPlainGit(t *testing.T) {
	ours := faultyServer(t)
	plain, server := plainServer(t)
	all := make(map[string]string) // accepted histories
	pushedAll, pushAll := ours.repository(t, "push")
	fetchedAll, fetchAll := ours.repository(t, "fetch")
	for i, c := range objectFaults {
		t.Run(c.id, func(t *testing.T) {
			if c.want == none {
				t.Skip(c.want)
			}
			var p packed
			tip := c.make(&p)
			name := fmt.Sprintf("refs/heads/%d", i)
			if strings.Contains(strings.ToLower(c.id), "tag") || strings.Contains(c.id, "ype") || slices.Contains([]string{"missingObject", "badObjectSha1", "extraHeaderEntry"}, c.id) {
				name = fmt.Sprintf("refs/tags/%d", i)
			}
			ours.refs = map[string]string{name: tip}
			repo := func(kind string) (string, string) {
				dir := fmt.Sprintf("%s%d.git", kind, i)
				out, err := gittest.Input(t, plain, "", "init", "-q", "--bare", "--template=", "-b", "main", dir)
				require.NoError(t, err, out)
				return filepath.Join(plain, dir), server + "/" + dir
			}

			pushed, pushURL := repo("push")
			out, err := gittest.Input(t, pushed, "", "config", "http.receivepack", "true")
			require.NoError(t, err, out)
			said := post(t, pushURL, name, tip, p.pack())
			require.Equal(t, c.want != broken, strings.Contains(said, "ok "+name), "plain git: %s", said)
			url := pushAll
			if c.want != taken {
				_, url = ours.repository(t, fmt.Sprintf("push%d", i))
			}
			said = post(t, url, name, tip, p.pack())
			if !assert.Equal(t, c.want == taken, strings.Contains(said, "ok "+name), "ours: %s", said) {
				return
			}

			// For an event that is not stored.
			if strings.HasPrefix(name, "refs/heads/") {
				event := "refs/nostr/" + strings.Repeat(fmt.Sprintf("%02x", i), 32)
				kept := post(t, url, event, tip, p.pack())
				require.Equal(t, c.want == taken, strings.Contains(kept, "ok "+event), "ours: %s", kept)
			}

			// Clients get the history unchanged.
			from, fromURL := repo("from")
			out, err = gittest.Input(t, from, p.pack(), "index-pack", "--stdin", "--fix-thin")
			require.NoError(t, err, out)
			require.NoError(t, os.WriteFile(filepath.Join(from, name), []byte(tip+"\n"), 0o600))
			fetched, _ := repo("fetch")
			out, err = gittest.Input(t, fetched, "", "fetch", "-q", fromURL, "+"+name+":"+name)
			require.Equal(t, c.want != broken, err == nil, "plain git: %s", out)
			ref := fetchedAll
			if c.want != taken {
				ref, _ = ours.repository(t, fmt.Sprintf("fetch%d", i))
			}
			err = ours.hunt(t, ref, fromURL, name, tip)
			require.Equal(t, c.want == taken, err == nil, "ours: %v", err)
			if c.want == taken {
				all[name] = tip
			}
			if c.want != guarded {
				return
			}

			_, id, two := strings.Cut(c.id, ", ")
			if !two {
				id = c.id
			}
			require.ErrorContains(t, err, id)
			require.Contains(t, said, id)
			require.Regexp(t, "object [0-9a-f]{40}: "+id, said)
			allowing := faultyServer(t, id)
			allowing.refs = ours.refs
			ref, url = allowing.repository(t, "push")
			said = post(t, url, name, tip, p.pack())
			require.Contains(t, said, "ok "+name)
			allowing.serves(t, ref, url, ours.refs)
			ref, url = allowing.repository(t, "fetch")
			require.NoError(t, allowing.hunt(t, ref, fromURL, name, tip))
			allowing.serves(t, ref, url, ours.refs)
		})
	}
	ours.serves(t, pushedAll, pushAll, all)
	ours.serves(t, fetchedAll, fetchAll, all)
}

// Of a pack with a fault that git cannot ignore, only the pack is checked. A .gitmodules file of the
// repository is then refused, because it may be a malicious blob that was another file before.
func TestCaseC21_ModulesOfTheRepository(t *testing.T) {
	ours := faultyServer(t)
	root, server := plainServer(t)
	const (
		main   = "refs/heads/main"
		honest = "[submodule \"x\"]\n\tpath = x\n\turl = https://example.com/x\n"
		evil   = "[submodule \"x\"]\n\tpath = x\n\turl = -ux\n"
	)
	for name, c := range map[string]struct{ has, brings, fault string }{
		"unchanged":            {has: honest, fault: "gitmodulesMissing"},
		"in the pack":          {brings: honest},
		"honest beside honest": {has: honest, brings: honest + "# other\n", fault: "gitmodulesMissing"},
		"evil in the pack":     {brings: evil, fault: "gitmodulesUrl"},
		"evil in the store":    {has: evil, fault: "gitmodulesMissing"},
		"evil beside honest":   {has: honest, brings: evil, fault: "gitmodules"},
		"honest beside evil":   {has: evil, brings: honest, fault: "gitmodulesMissing"},
		"absent":               {has: "absent", fault: "git"},
	} {
		for fault, nul := range map[string]string{"nul": "\x00", "twice": ""} {
			t.Run(name+" "+fault, func(t *testing.T) {
				var before, after, both packed
				file := before.add("blob", c.has)
				first := before.tree(entry("100644 file", file))
				next := first
				commit := func(id string) {
					next = after.add("commit", fmt.Sprintf("tree %s\nparent %s\nauthor a%s <a@b> 1 +0000\ncommitter %s\n\nx\n",
						after.add("tree", entry("100644 .gitmodules", id)), next, nul, somebody))
				}
				switch c.has {
				case "":
				case "absent":
					commit(absent)
				default:
					commit(file)
				}
				if c.brings != "" {
					commit(after.add("blob", c.brings))
				}
				if nul == "" {
					after.add("blob", "twice")
					after.add("blob", "twice")
				}
				both.n = before.n + after.n
				_, _ = both.body.Write(before.body.Bytes())
				_, _ = both.body.Write(after.body.Bytes())

				identifier := strings.ReplaceAll(name+"-"+fault, " ", "-")
				_, url := ours.repository(t, "push-"+identifier)
				ours.refs = map[string]string{main: first}
				require.Contains(t, post(t, url, main, first, before.pack()), "ok "+main)
				ours.refs = map[string]string{main: next}
				said := postFrom(t, url, main, first, next, after.pack())
				require.Equal(t, c.fault == "", strings.Contains(said, "ok "+main), said)
				require.Contains(t, said, c.fault)

				// A fetch after the first commit was stored. A git server sends no object twice.
				if nul == "" {
					return
				}
				from := filepath.Join(root, identifier+".git")
				out, err := gittest.Input(t, root, "", "init", "-q", "--bare", "--template=", "-b", "main", from)
				require.NoError(t, err, out)
				out, err = gittest.Input(t, from, both.pack(), "index-pack", "--stdin")
				require.NoError(t, err, out)
				require.NoError(t, os.WriteFile(filepath.Join(from, main), []byte(next+"\n"), 0o600))
				ref, url := ours.repository(t, "fetch-"+identifier)
				ours.refs = map[string]string{main: first}
				require.Contains(t, post(t, url, main, first, before.pack()), "ok "+main)
				err = ours.hunt(t, ref, server+"/"+identifier+".git", "refs/heads/next", next)
				if c.fault == "" {
					require.NoError(t, err)
					ours.serves(t, ref, url, map[string]string{"refs/heads/next": next})
					return
				}
				require.Error(t, err)
				if c.has != "absent" {
					require.ErrorContains(t, err, c.fault)
				}
			})
		}
	}
}

// A clone unpacks each commit and tag in memory. A pack of a few MB may contain hundreds of MB of
// them.
func TestCaseH1_CommitsAndTagsHaveABound(t *testing.T) {
	ours := faultyServer(t)
	root, server := plainServer(t)
	for kind, make := range map[string]func(*packed) string{
		"commit": large(20 << 20),
		"tag":    tag("type commit\ntag v1\ntagger " + somebody + "\n\n" + strings.Repeat("a", 20<<20)),
		"older commit": func(p *packed) string {
			return p.commit("parent " + large(20<<20)(p) + "\nauthor " + somebody + "\ncommitter " + somebody + "\n\nx\n")
		},
	} {
		t.Run(kind, func(t *testing.T) {
			var p packed
			tip := make(&p)
			const name = "refs/tags/v1"
			ours.refs = map[string]string{name: tip}
			dir := strings.ReplaceAll(kind, " ", "-")
			_, url := ours.repository(t, "push-"+dir)
			said := post(t, url, name, tip, p.pack())
			require.NotContains(t, said, "ok "+name)
			require.Regexp(t, "object [0-9a-f]{40}: a (commit|tag) of 2097[0-9]+ bytes; at most 4194304", said)

			from := filepath.Join(root, dir+".git")
			out, err := gittest.Input(t, root, "", "init", "-q", "--bare", "--template=", from)
			require.NoError(t, err, out)
			out, err = gittest.Input(t, from, p.pack(), "index-pack", "--stdin")
			require.NoError(t, err, out)
			require.NoError(t, os.WriteFile(filepath.Join(from, name), []byte(tip+"\n"), 0o600))
			ref, _ := ours.repository(t, "fetch-"+dir)
			require.ErrorContains(t, ours.hunt(t, ref, server+"/"+dir+".git", name, tip), "at most 4194304")
		})
	}
}
