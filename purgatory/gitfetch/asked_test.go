package gitfetch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// asking notes which commands of git are run.
func asking(f *Fetcher) (asked func() []string) {
	var commands []string
	f.git.started = func(cmd *exec.Cmd) {
		commands = append(commands, cmd.Args[slices.IndexFunc(cmd.Args[1:], func(arg string) bool {
			return !strings.HasPrefix(arg, "-") && !strings.Contains(arg, "=")
		})+1])
	}
	return func() []string {
		out := commands
		commands = nil
		return out
	}
}

// To look at a repository took five processes of git, also where nothing had changed; what it
// says of one that somebody has configured is what is read of others.
func TestGitIsRunForWalksOnly(t *testing.T) {
	for _, format := range []nip34.ObjectFormat{nip34.SHA1, nip34.SHA256} {
		dir := bare(t, format)
		ids := history(t, dir, "main", 5)
		git(t, dir, "tag", "-a", "-m", "x", "v1", "main~1")
		tag := oid(t, git(t, dir, "rev-parse", "v1"))
		gone := history(t, dir, "gone", 2)
		git(t, dir, "update-ref", "-d", "refs/heads/gone")
		digit := strings.Repeat("e", len(ids[0].String()))
		all := append(slices.Clone(ids), tag, gone[1], oid(t, digit), oid(t, strings.Repeat("e", 104-len(digit))))
		f := fetcher(t, Config{})
		asked := asking(f)
		look := func() (purgatory.Refs, map[nip34.ObjectID]purgatory.ObjectKind) {
			t.Helper()
			refs, err := f.Refs(t.Context(), dir)
			require.NoError(t, err)
			kinds, _, err := f.Probe(t.Context(), dir, all)
			require.NoError(t, err)
			return refs, kinds
		}
		refs, kinds := look()
		require.Empty(t, asked())
		require.Equal(t, map[nip34.RefName]nip34.ObjectID{ref(t, "refs/heads/main"): ids[4], ref(t, "refs/tags/v1"): tag}, refs.At)
		require.Equal(t, purgatory.Tag, kinds[tag])
		require.Len(t, kinds, 7)
		missing, err := f.Missing(t.Context(), dir, []nip34.ObjectID{ids[4], tag, all[7], all[8]})
		require.NoError(t, err)
		require.Equal(t, all[7:], missing)
		require.Empty(t, asked(), "what refs have is here with all that it needs")
		missing, err = f.Missing(t.Context(), dir, []nip34.ObjectID{ids[1], ids[4]})
		require.NoError(t, err)
		require.Empty(t, missing)
		require.Equal(t, []string{"rev-list"}, asked())

		git(t, dir, "update-ref", "refs/heads/old", ids[0].String())
		require.NoError(t, os.WriteFile(filepath.Join(dir, "refs", "heads", "old"), []byte(digit+"\n"), 0o600))
		missing, err = f.Missing(t.Context(), dir, []nip34.ObjectID{ids[4]})
		require.NoError(t, err)
		require.Equal(t, []nip34.ObjectID{ids[4]}, missing, "git can't walk anything when an object of a ref has gone")
		asked()
		git(t, dir, "update-ref", "-d", "refs/heads/old")

		configured(t, dir)
		again, same := look()
		require.Equal(t, refs, again)
		require.Equal(t, kinds, same)
		missing, err = f.Missing(t.Context(), dir, []nip34.ObjectID{ids[4], tag, all[7], all[8]})
		require.NoError(t, err)
		require.Equal(t, all[7:], missing)
		require.Contains(t, asked(), "rev-list")
	}
}
