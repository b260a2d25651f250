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
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// store reads and writes the objects and refs of repositories, with git where it must be. It is safe for concurrent
// use. beside, where a method takes it, is the folder in that of the repository of a quarantine that has objects as
// well, or empty.
type store struct {
	git  *program
	disk *storage
}

// inside is the environment in which git sees the objects of a quarantine, and writes to it.
func inside(beside string) []string {
	if beside == "" {
		return nil
	}
	return gitrun.Beside(beside)
}

// stampOf is another one when an object was added or removed.
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
			if each || len(e.Name()) == 2 { // a folder of loose objects
				fmt.Fprintf(sum, "%s %d %d\n", e.Name(), info.Size(), info.ModTime().UnixNano())
			}
		}
		return nil
	}
	objects := filepath.Join(dir, "objects")
	err := errors.Join(add(objects, false), add(filepath.Join(objects, "pack"), true))
	return hex.EncodeToString(sum.Sum(nil)), err
}

// missing returns those of ids that are not there with all that they need, and how many
// objects the others need that no ref has and that are not in packs either.
func (o *store) missing(ctx context.Context, dir string, beside string, ids []nip34.ObjectID, packs packIndexes) (missing []nip34.ObjectID, unheld int, err error) {
	s, err := o.survey(ctx, dir, beside, ids, packs)
	return s.missing, s.unheld, err
}

// survey is what walks of histories have found.
type survey struct {
	missing []nip34.ObjectID // of those that were looked for: they are not there with all that they need
	needed  int              // objects that the others need and no ref has
	unheld  int              // of these, those that are not in packs that are named
}

// survey finds out which of ids are there with all that they need. Packs are those of a
// quarantine, if beside says which.
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
	if err == nil && beside != "" { // what has a file of its own in the quarantine is left
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
	if len(incomplete) > 0 { // what walks came across that failed was counted as well
		s = survey{}
		if err := o.walk(ctx, dir, beside, without(there, incomplete), count); err != nil {
			return survey{}, fmt.Errorf("walking history: %w", err)
		}
	}
	s.missing = append(missing, incomplete...)
	return s, nil
}

// beyondRefs returns those of ids that no ref has. A walk ends at what refs have: of these it
// would come to its end at once, unless an object of a ref has gone.
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

// without returns those of ids that are not among others.
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

// present tells ids that exist from those that do not.
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

var kindNames = map[string]purgatory.ObjectKind{
	"commit": purgatory.Commit, "tree": purgatory.Tree, "blob": purgatory.Blob, "tag": purgatory.Tag,
}

// reader returns what reads a repository without git.
func (o *store) reader(ctx context.Context, dir string) (*barerepo.Reader, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return barerepo.Read(o.disk.files, dir)
}

// kinds returns what those of ids are that exist, beside the repository too, if beside
// says where. Git is run for that only if it must be.
func (o *store) kinds(ctx context.Context, dir string, beside string, ids []nip34.ObjectID) (map[nip34.ObjectID]purgatory.ObjectKind, error) {
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
		return nil, fmt.Errorf("looking for objects: %w", err)
	}
	kinds := make(map[nip34.ObjectID]purgatory.ObjectKind, len(read))
	for id, kind := range read {
		kinds[id] = purgatory.ObjectKind(kind) // both have git's numbers
	}
	return kinds, nil
}

// gitKinds has git say that. What is not an id in the format of the repository may name
// something else there, such as a branch: the object that was found must have the id that was
// asked for.
func (o *store) gitKinds(ctx context.Context, dir string, beside string, ids []nip34.ObjectID) (map[nip34.ObjectID]purgatory.ObjectKind, error) {
	out, err := o.git.run(ctx, child{
		dir: dir, extra: inside(beside), stdin: lines(ids),
		args: []string{"cat-file", "--batch-check=%(objectname) %(objecttype)", "--buffer"},
	})
	if err != nil {
		return nil, fmt.Errorf("looking for objects: %w", err)
	}
	answers := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(answers) != len(ids) {
		return nil, fmt.Errorf("looking for objects: %d answers on %d ids", len(answers), len(ids))
	}
	kinds := make(map[nip34.ObjectID]purgatory.ObjectKind, len(ids))
	for i, a := range answers {
		name, kind, _ := strings.Cut(a, " ")
		if kind == "" {
			return nil, fmt.Errorf("looking for objects: git says %s", lastOf(a))
		}
		if k := kindNames[kind]; k != 0 && name == ids[i].String() {
			kinds[ids[i]] = k
		}
	}
	return kinds, nil
}

// incomplete walks what can be reached from ids and from no ref, and returns the
// ids whose walk fails. All are walked at once; only if that fails are they halved.
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

// walk calls each for every object that can be reached from ids and from no ref.
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

// maxHaves bounds the tips that a server is told of.
const maxHaves = 256

// tips returns what our refs point to, which a server need not send, and the format
// of the repository.
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
	// What strangers pushed, with whatever dates, must not crowd out our own.
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

// fewTips returns what our refs point to, if that is no more than a server is told of: else git
// must say which of them are the latest.
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

// refs returns all refs. known is false if only git can say what they are.
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

// ends is where walks of a repository end, all refs and HEAD: what walks have found holds as
// long as these are the same. Empty: only git can say.
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

// stamp is another one when an object, or a ref, was added or removed. Empty: only git can say.
func (o *store) stamp(ctx context.Context, dir string) (string, error) {
	ends, err := o.ends(ctx, dir)
	if err != nil || ends == "" {
		return "", err
	}
	objects, err := stampOf(o.disk.files, dir)
	return ends + objects, err
}

// format returns how a repository hashes its objects.
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
		return 0, fmt.Errorf("asking for the object format: %w", err)
	}
	if strings.TrimSpace(string(out)) == nip34.SHA256.String() {
		return nip34.SHA256, nil
	}
	return nip34.SHA1, nil
}

// readIndexes reads which objects are in the packs of a folder.
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

// kept reads which objects we keep from garbage collection.
func (o *store) kept(dir string, idLen int) (packIndexes, error) {
	bases, err := marks(o.disk.files, dir)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool, len(bases))
	for _, base := range bases {
		if _, err := o.disk.files.Stat(base + ".idx"); err == nil { // or the mark of a crash, alone
			names[filepath.Base(base)+".idx"] = true
		}
	}
	return o.readIndexes(filepath.Join(dir, "objects", "pack"), names, idLen)
}

// Weigh implements [purgatory.GitFetcher]. Git counts a delta as it lies on the disk, and no index.
func (f *Fetcher) Weigh(ctx context.Context, dir string, ids, but []nip34.ObjectID) (int64, error) {
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
