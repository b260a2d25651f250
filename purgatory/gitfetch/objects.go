package gitfetch

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// The parameter env of the methods below is the environment of git, nil for the repository without a
// quarantine.

func (f *Fetcher) missing(ctx context.Context, dir string, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	kinds, err := f.kinds(ctx, dir, nil, ids)
	if err != nil {
		return nil, err
	}
	there, absent := divide(ids, kinds)
	incomplete, err := f.incomplete(ctx, dir, nil, there)
	return append(absent, incomplete...), err
}

func divide(ids []nip34.ObjectID, kinds map[nip34.ObjectID]refplan.Kind) (there, absent []nip34.ObjectID) {
	for _, id := range ids {
		if kinds[id] != 0 {
			there = append(there, id)
		} else {
			absent = append(absent, id)
		}
	}
	return there, absent
}

// without returns ids without others, each once.
func without(ids, others []nip34.ObjectID) (out []nip34.ObjectID) {
	gone := make(map[nip34.ObjectID]bool, len(others))
	for _, id := range others {
		gone[id] = true
	}
	for _, id := range ids {
		if !gone[id] {
			gone[id] = true
			out = append(out, id)
		}
	}
	return out
}

var kindNames = map[string]refplan.Kind{
	"commit": refplan.Commit, "tree": refplan.Tree, "blob": refplan.Blob, "tag": refplan.Tag,
}

// kinds returns the kinds of existing objects. Git may take an id of the wrong format for a ref name.
func (f *Fetcher) kinds(ctx context.Context, dir string, env []string, ids []nip34.ObjectID) (map[nip34.ObjectID]refplan.Kind, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	out, err := f.git.run(ctx, gitrun.Child{
		Dir: dir, Env: env, Stdin: lines("", ids),
		Args: []string{"cat-file", "--batch-check=%(objectname) %(objecttype)", "--buffer"},
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
		name, kind, ok := strings.Cut(a, " ")
		if !ok {
			return nil, fmt.Errorf("looking up objects: git says %s", gitrun.Last(a))
		}
		if k := kindNames[kind]; k != 0 && name == ids[i].String() {
			kinds[ids[i]] = k
		}
	}
	return kinds, nil
}

// incomplete returns ids whose walk fails. After a failure it walks each half.
func (f *Fetcher) incomplete(ctx context.Context, dir string, env []string, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	_, err := f.walk(ctx, dir, env, ids)
	switch {
	case err == nil, !isVerdict(err):
		return nil, err
	case len(ids) == 1:
		return ids, nil
	}
	half := len(ids) / 2
	first, err := f.incomplete(ctx, dir, env, ids[:half])
	if err != nil {
		return nil, err
	}
	second, err := f.incomplete(ctx, dir, env, ids[half:])
	return append(first, second...), err
}

// walk returns the number of objects that ids reach and refs do not.
func (f *Fetcher) walk(ctx context.Context, dir string, env []string, ids []nip34.ObjectID) (n int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	out, err := f.git.run(ctx, gitrun.Child{
		Dir: dir, Env: env, Stdin: lines("", ids),
		Args: []string{"rev-list", "--objects", "--count", "--stdin", "--not", "--exclude=" + barerepo.HiddenRefs + "*", "--all"},
	})
	if err == nil {
		n, err = strconv.Atoi(strings.TrimSpace(string(out)))
	}
	if err != nil {
		return 0, fmt.Errorf("walking history: %w", err)
	}
	return n, nil
}

func lines(prefix string, ids []nip34.ObjectID) io.Reader {
	var b bytes.Buffer
	for _, id := range ids {
		b.WriteString(prefix + id.String() + "\n") // never fails
	}
	return &b
}

// maxHaves is the maximum number of tips, and of other complete objects, sent to a server.
const (
	maxHaves = 256
	maxParts = 64
)

// haves returns complete objects that a server need not send: tips of refs, those of branches and
// tags before those of events, and objects that no ref reaches yet.
func (f *Fetcher) haves(ctx context.Context, dir string) ([]nip34.ObjectID, error) {
	refs, err := f.Refs(ctx, dir)
	if err != nil {
		return nil, err
	}
	rank := func(name nip34.RefName) int {
		switch {
		case name == refs.Head:
			return 0 // there may be more names than are sent
		case refplan.IsState(name):
			return 1
		}
		return 2 // anyone can push refs of events
	}
	var tips []nip34.ObjectID
	for _, name := range slices.SortedFunc(maps.Keys(refs.At), func(a, b nip34.RefName) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a.String(), b.String()))
	}) {
		tips = append(tips, refs.At[name])
	}
	haves := without(tips, nil)
	now, err := f.stamp(ctx, dir)
	complete := f.checks.known(dir, now).complete
	parts := without(complete[max(0, len(complete)-maxParts):], haves)
	return append(haves[:min(maxHaves, len(haves))], parts...), err
}

// DiskUsage implements [gitops.Operations]. Git counts deltas as stored, without indexes.
func (f *Fetcher) DiskUsage(ctx context.Context, dir string, ids, but []nip34.ObjectID) (int64, error) {
	in := io.MultiReader(lines("", ids), lines("^", but))
	out, err := f.git.run(ctx, gitrun.Child{Dir: dir, Stdin: in, Args: []string{"rev-list", "--objects", "--disk-usage", "--stdin"}})
	var n int64
	if err == nil {
		n, err = strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("weighing objects: %w", err)
	}
	return n, nil
}
