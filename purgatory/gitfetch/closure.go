package gitfetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/graspsync/graspsync/nip34"
)

// Missing implements [purgatory.GitFetcher]. To have a commit is not to have its
// history: what can be reached is walked.
func (f *Fetcher) Missing(ctx context.Context, dir string, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	return f.missing(ctx, dir, nil, ids)
}

func (f *Fetcher) missing(ctx context.Context, dir string, env []string, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	there, gone, err := f.present(ctx, dir, env, ids)
	if err != nil {
		return nil, err
	}
	incomplete, err := f.incomplete(ctx, dir, env, there)
	return append(gone, incomplete...), err
}

// present tells ids that exist from those that do not. What is not an id in the
// format of the repository may name something else there, such as a branch: the
// object that was found must have the id that was asked for.
func (f *Fetcher) present(ctx context.Context, dir string, env []string, ids []nip34.ObjectID) (there, gone []nip34.ObjectID, err error) {
	out, err := f.run(ctx, child{
		dir: dir, extra: env, stdin: lines(ids),
		args: []string{"cat-file", "--batch-check=%(objectname) %(objecttype)", "--buffer"},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("looking for objects: %w", err)
	}
	answers := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(answers) != len(ids) {
		return nil, nil, fmt.Errorf("looking for objects: %d answers on %d ids", len(answers), len(ids))
	}
	for i, a := range answers {
		name, kind, _ := strings.Cut(a, " ")
		switch {
		case kind == "":
			return nil, nil, fmt.Errorf("looking for objects: git says %s", printable(a))
		case name == ids[i].String() && slices.Contains([]string{"commit", "tag", "tree", "blob"}, kind):
			there = append(there, ids[i])
		default:
			gone = append(gone, ids[i])
		}
	}
	return there, gone, nil
}

// incomplete walks what can be reached from ids and from no ref, and returns the
// ids whose walk fails. All are walked at once; only if that fails are they halved.
func (f *Fetcher) incomplete(ctx context.Context, dir string, env []string, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	_, err := f.run(ctx, child{
		dir: dir, extra: env, stdin: lines(ids),
		args: []string{"rev-list", "--objects", "--quiet", "--stdin", "--not", "--all"},
	})
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
	first, err := f.incomplete(ctx, dir, env, ids[:half])
	if err != nil {
		return nil, err
	}
	second, err := f.incomplete(ctx, dir, env, ids[half:])
	return append(first, second...), err
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
func (f *Fetcher) tips(ctx context.Context, dir string) ([]nip34.ObjectID, nip34.ObjectFormat, error) {
	format, err := f.Format(ctx, dir)
	if err != nil {
		return nil, 0, err
	}
	seen := make(map[nip34.ObjectID]bool)
	var tips []nip34.ObjectID
	// What strangers pushed, with whatever dates, must not crowd out our own.
	for _, where := range [][]string{{"refs/heads", "refs/tags"}, {"refs/nostr"}} {
		if len(tips) == maxHaves {
			break
		}
		args := []string{"for-each-ref", "--sort=-creatordate", fmt.Sprintf("--count=%d", 4*maxHaves), "--format=%(objectname)"}
		out, err := f.run(ctx, child{dir: dir, args: append(args, where...)})
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

// Format returns how a repository hashes its objects.
func (f *Fetcher) Format(ctx context.Context, dir string) (nip34.ObjectFormat, error) {
	out, err := f.run(ctx, child{dir: dir, args: []string{"rev-parse", "--show-object-format"}})
	if err != nil {
		return 0, fmt.Errorf("asking for the object format: %w", err)
	}
	if strings.TrimSpace(string(out)) == nip34.SHA256.String() {
		return nip34.SHA256, nil
	}
	return nip34.SHA1, nil
}
