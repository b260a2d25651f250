package gitfetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// store reads and writes objects and refs of repositories, with git only where necessary. It is
// safe for concurrent use. The parameter beside of its methods is the folder of a quarantine whose
// objects are included, relative to the repository, or "".
type store struct {
	git  *program
	disk *storage
}

// inside returns the environment in which git reads and writes the objects of a quarantine.
func inside(beside string) []string {
	if beside == "" {
		return nil
	}
	return gitrun.Beside(beside)
}

// stampOf returns a hash that changes when an object is added or removed.
func stampOf(on files, dir string) (string, error) {
	sum := sha256.New()
	add := func(path string, each bool) error {
		entries, err := on.ReadDir(path)
		if err != nil {
			return err
		}
		for _, e := range entries {
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if each || len(e.Name()) == 2 { // folder of loose objects
				fmt.Fprintf(sum, "%s %d %d\n", e.Name(), info.Size(), info.ModTime().UnixNano())
			}
		}
		return nil
	}
	objects := filepath.Join(dir, "objects")
	err := errors.Join(add(objects, false), add(filepath.Join(objects, "pack"), true))
	return hex.EncodeToString(sum.Sum(nil)), err
}

// missing returns the ids that are incomplete. unheld is the number of objects that the other ids
// need, and that neither a ref nor packs contain.
func (o *store) missing(ctx context.Context, dir string, beside string, ids []nip34.ObjectID, packs packIndexes) (missing []nip34.ObjectID, unheld int, err error) {
	s, err := o.survey(ctx, dir, beside, ids, packs)
	return s.missing, s.unheld, err
}

// survey is the result of walking histories.
type survey struct {
	missing []nip34.ObjectID // incomplete ids
	needed  int              // objects that the other ids need and no ref reaches
	unheld  int              // needed objects outside of the given packs
}

// survey finds incomplete ids. packs are the packs of the quarantine beside, if beside is not "".
func (o *store) survey(ctx context.Context, dir string, beside string, ids []nip34.ObjectID, packs packIndexes) (s survey, err error) {
	if len(ids) == 0 {
		return s, nil
	}
	var there []nip34.ObjectID
	elsewhere := ids
	if beside != "" {
		elsewhere = slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool { return packs.has([]byte(id.String())) })
		there = without(ids, elsewhere)
	}
	more, missing, err := o.present(ctx, dir, "", elsewhere)
	there = append(there, more...)
	if err == nil && beside != "" { // loose objects of the quarantine
		more, missing, err = o.present(ctx, dir, beside, missing)
		there = append(there, more...)
	}
	if err != nil {
		return s, err
	}
	if there, err = o.beyondRefs(ctx, dir, there); err != nil {
		return s, err
	}
	count := func(line []byte) {
		s.needed++
		if !packs.has(line) {
			s.unheld++
		}
	}
	incomplete, err := o.incomplete(ctx, dir, beside, there, count)
	if err != nil {
		return survey{}, err
	}
	if len(incomplete) > 0 { // failed walks were counted too
		s = survey{}
		if err := o.walk(ctx, dir, beside, without(there, incomplete), count); err != nil {
			return survey{}, fmt.Errorf("walking history: %w", err)
		}
	}
	s.missing = append(missing, incomplete...)
	return s, nil
}

// beyondRefs returns the ids that are not tips of refs. A walk stops at tips immediately, unless an
// object of a ref is missing.
func (o *store) beyondRefs(ctx context.Context, dir string, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	refs, known, err := o.refs(ctx, dir)
	if err != nil || !known {
		return ids, err
	}
	tips := slices.Compact(slices.SortedFunc(maps.Values(refs), func(a, b nip34.ObjectID) int { return strings.Compare(a.String(), b.String()) }))
	beyond := without(ids, tips)
	if len(beyond) == len(ids) {
		return ids, nil
	}
	there, err := o.kinds(ctx, dir, "", tips)
	if err != nil || len(there) < len(tips) {
		return ids, err
	}
	return beyond, nil
}

func without(ids, others []nip34.ObjectID) (out []nip34.ObjectID) {
	gone := make(map[nip34.ObjectID]bool, len(others))
	for _, id := range others {
		gone[id] = true
	}
	for _, id := range ids {
		if !gone[id] {
			out = append(out, id)
		}
	}
	return out
}

// present divides ids into existing and missing objects.
func (o *store) present(ctx context.Context, dir string, beside string, ids []nip34.ObjectID) (there, gone []nip34.ObjectID, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	kinds, err := o.kinds(ctx, dir, beside, ids)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		if kinds[id] != 0 {
			there = append(there, id)
		} else {
			gone = append(gone, id)
		}
	}
	return there, gone, nil
}

var kindNames = map[string]refplan.Kind{
	"commit": refplan.Commit, "tree": refplan.Tree, "blob": refplan.Blob, "tag": refplan.Tag,
}

func (o *store) reader(ctx context.Context, dir string) (*barerepo.Reader, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return barerepo.Read(o.disk.files, dir)
}

// kinds returns the kinds of existing objects. It runs git only if necessary.
func (o *store) kinds(ctx context.Context, dir string, beside string, ids []nip34.ObjectID) (map[nip34.ObjectID]refplan.Kind, error) {
	if beside != "" {
		return o.gitKinds(ctx, dir, beside, ids)
	}
	r, err := o.reader(ctx, dir)
	var read map[nip34.ObjectID]barerepo.Kind
	if err == nil {
		read, err = r.Kinds(ids)
	}
	switch {
	case errors.Is(err, barerepo.ErrAskGit):
		return o.gitKinds(ctx, dir, beside, ids)
	case err != nil:
		return nil, fmt.Errorf("looking up objects: %w", err)
	}
	kinds := make(map[nip34.ObjectID]refplan.Kind, len(read))
	for id, kind := range read {
		kinds[id] = refplan.Kind(kind) // same numbers as in git
	}
	return kinds, nil
}

// gitKinds is kinds with git. Git may take an id of the wrong format for a ref name, so the id of
// the found object is compared.
func (o *store) gitKinds(ctx context.Context, dir string, beside string, ids []nip34.ObjectID) (map[nip34.ObjectID]refplan.Kind, error) {
	out, err := o.git.run(ctx, child{
		dir: dir, extra: inside(beside), stdin: lines(ids),
		args: []string{"cat-file", "--batch-check=%(objectname) %(objecttype)", "--buffer"},
	})
	if err != nil {
		return nil, fmt.Errorf("looking up objects: %w", err)
	}
	answers := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(answers) != len(ids) {
		return nil, fmt.Errorf("looking up objects: %d answers on %d ids", len(answers), len(ids))
	}
	kinds := make(map[nip34.ObjectID]refplan.Kind, len(ids))
	for i, a := range answers {
		name, kind, _ := strings.Cut(a, " ")
		if kind == "" {
			return nil, fmt.Errorf("looking up objects: git says %s", lastOf(a))
		}
		if k := kindNames[kind]; k != 0 && name == ids[i].String() {
			kinds[ids[i]] = k
		}
	}
	return kinds, nil
}

// incomplete walks all objects that ids reach and refs do not, and returns ids whose walk fails. It
// walks all ids together, and divides them into halves after a failure.
func (o *store) incomplete(ctx context.Context, dir string, beside string, ids []nip34.ObjectID, each func(line []byte)) ([]nip34.ObjectID, error) {
	err := o.walk(ctx, dir, beside, ids, each)
	var failed *childError
	switch {
	case err == nil:
		return nil, nil
	case !errors.As(err, &failed) || !failed.verdict():
		return nil, fmt.Errorf("walking history: %w", err)
	case len(ids) == 1:
		return ids, nil
	}
	half := len(ids) / 2
	first, err := o.incomplete(ctx, dir, beside, ids[:half], each)
	if err != nil {
		return nil, err
	}
	second, err := o.incomplete(ctx, dir, beside, ids[half:], each)
	return append(first, second...), err
}

// walk calls each for all objects that ids reach and refs do not.
func (o *store) walk(ctx context.Context, dir string, beside string, ids []nip34.ObjectID, each func(line []byte)) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := o.git.run(ctx, child{
		dir: dir, extra: inside(beside), stdin: lines(ids), each: each, long: true,
		args: []string{"rev-list", "--objects", "--no-object-names", "--stdin", "--not", "--exclude=" + barerepo.HiddenRefs + "*", "--all"},
	})
	return err
}

func lines(ids []nip34.ObjectID) *bytes.Reader {
	var b []byte
	for _, id := range ids {
		b = append(append(b, id.String()...), '\n')
	}
	return bytes.NewReader(b)
}

// maxHaves is the maximum number of tips sent to a server.
const maxHaves = 256

// tips returns the tips of refs, which the server need not send, and the object format.
func (o *store) tips(ctx context.Context, dir string) ([]nip34.ObjectID, nip34.ObjectFormat, error) {
	format, err := o.format(ctx, dir)
	if err != nil {
		return nil, 0, err
	}
	if all, known, err := o.fewTips(ctx, dir); err != nil || known {
		return all, format, err
	}
	seen := make(map[nip34.ObjectID]bool)
	var tips []nip34.ObjectID
	// Branches and tags come first, so that pushed event refs with forged dates do not displace
	// them.
	for _, where := range [][]string{{"refs/heads", "refs/tags"}, {"refs/nostr"}} {
		if len(tips) == maxHaves {
			break
		}
		args := []string{"for-each-ref", "--sort=-creatordate", fmt.Sprintf("--count=%d", 4*maxHaves), "--format=%(objectname)"}
		out, err := o.git.run(ctx, child{dir: dir, args: append(args, where...)})
		if err != nil {
			return nil, 0, fmt.Errorf("reading refs: %w", err)
		}
		for line := range strings.Lines(string(out)) {
			id, err := nip34.ParseObjectID(strings.TrimSuffix(line, "\n"))
			if err == nil && !seen[id] && len(tips) < maxHaves {
				seen[id] = true
				tips = append(tips, id)
			}
		}
	}
	return tips, format, nil
}

// fewTips returns the tips of refs if there are at most maxHaves. Otherwise git must find the
// latest tips.
func (o *store) fewTips(ctx context.Context, dir string) (tips []nip34.ObjectID, known bool, err error) {
	refs, known, err := o.refs(ctx, dir)
	if err != nil || !known || len(refs) > maxHaves {
		return nil, false, err
	}
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		ours := slices.ContainsFunc([]string{"refs/heads/", "refs/tags/", "refs/nostr/"}, func(folder string) bool { return strings.HasPrefix(name, folder) })
		if ours && !slices.Contains(tips, refs[name]) {
			tips = append(tips, refs[name])
		}
	}
	return tips, true, nil
}

// refs returns all refs. known is false if only git can read them.
func (o *store) refs(ctx context.Context, dir string) (refs map[string]nip34.ObjectID, known bool, err error) {
	r, err := o.reader(ctx, dir)
	if err == nil {
		refs, err = r.Refs()
	}
	if errors.Is(err, barerepo.ErrAskGit) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading refs: %w", err)
	}
	return refs, true, nil
}

// ends returns a hash of all refs and HEAD, at which walks end. Results of walks stay valid while
// it is unchanged. It is "" if only git can read refs.
func (o *store) ends(ctx context.Context, dir string) (string, error) {
	refs, known, err := o.refs(ctx, dir)
	if err != nil || !known {
		return "", err
	}
	head, err := o.disk.files.ReadFile(filepath.Join(dir, "HEAD"))
	if err != nil {
		return "", fmt.Errorf("reading HEAD: %w", err)
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q\n", head)
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		fmt.Fprintf(sum, "%s %s\n", refs[name], name)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// stamp returns a hash that changes with objects and refs. It is "" if only git can read refs.
func (o *store) stamp(ctx context.Context, dir string) (string, error) {
	ends, err := o.ends(ctx, dir)
	if err != nil || ends == "" {
		return "", err
	}
	objects, err := stampOf(o.disk.files, dir)
	return ends + objects, err
}

func (o *store) format(ctx context.Context, dir string) (nip34.ObjectFormat, error) {
	r, err := o.reader(ctx, dir)
	if err == nil {
		return r.Format(), nil
	}
	if !errors.Is(err, barerepo.ErrAskGit) {
		return 0, fmt.Errorf("reading the object format: %w", err)
	}
	out, err := o.git.run(ctx, child{dir: dir, args: []string{"rev-parse", "--show-object-format"}})
	if err != nil {
		return 0, fmt.Errorf("reading the object format: %w", err)
	}
	if strings.TrimSpace(string(out)) == nip34.SHA256.String() {
		return nip34.SHA256, nil
	}
	return nip34.SHA1, nil
}

func (o *store) readIndexes(folder string, names map[string]bool, idLen int) (packs packIndexes, err error) {
	for name := range names {
		if !strings.HasSuffix(name, ".idx") {
			continue
		}
		data, err := o.disk.files.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		index, err := readIndex(data, idLen)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		packs = append(packs, index)
	}
	return packs, nil
}

// kept reads the indexes of packs with our keep files.
func (o *store) kept(dir string, idLen int) (packIndexes, error) {
	bases, err := marks(o.disk.files, dir)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool, len(bases))
	for _, base := range bases {
		if _, err := o.disk.files.Stat(base + ".idx"); err == nil { // a crash may leave a keep file alone
			names[filepath.Base(base)+".idx"] = true
		}
	}
	return o.readIndexes(filepath.Join(dir, "objects", "pack"), names, idLen)
}

// DiskUsage implements [gitops.Operations]. Git counts deltas as stored, without indexes.
func (f *Fetcher) DiskUsage(ctx context.Context, dir string, ids, but []nip34.ObjectID) (int64, error) {
	var in bytes.Buffer
	for _, id := range ids {
		fmt.Fprintf(&in, "%s\n", id)
	}
	for _, id := range but {
		fmt.Fprintf(&in, "^%s\n", id)
	}
	out, err := f.git.run(ctx, child{dir: dir, stdin: &in, long: true, args: []string{"rev-list", "--objects", "--disk-usage", "--stdin"}})
	if err != nil {
		return 0, fmt.Errorf("weighing objects: %w", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("weighing objects: %w", err)
	}
	return n, nil
}
