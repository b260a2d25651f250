package gitfetch_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// mercilessly runs an aggressive garbage collection.
func mercilessly(t testing.TB, dir string) {
	t.Helper()
	git(t, dir, "gc", "--quiet", "--prune=now")
	git(t, dir, "prune", "--expire=now")
}

// unheldKinds are the ways in which a repository gets objects without a ref.
var unheldKinds = map[string]func(t *testing.T, f *gitfetch.Fetcher, g *graph, tip nip34.ObjectID) (dir string){
	"loose": func(t *testing.T, _ *gitfetch.Fetcher, g *graph, _ nip34.ObjectID) string {
		return g.loose(t, nip34.ObjectID{})
	},
	"in a pack": func(t *testing.T, _ *gitfetch.Fetcher, g *graph, tip nip34.ObjectID) string {
		dir := g.loose(t, nip34.ObjectID{})
		git(t, dir, "update-ref", "refs/heads/gone", tip.String())
		git(t, dir, "repack", "-a", "-d", "-q")
		git(t, dir, "update-ref", "-d", "refs/heads/gone")
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "logs")))
		return dir
	},
	"promoted by a process that was killed": func(t *testing.T, f *gitfetch.Fetcher, g *graph, tip nip34.ObjectID) string {
		there, dir := g.loose(t, nip34.ObjectID{}), bare(t, nip34.SHA1)
		git(t, there, "update-ref", "refs/heads/main", tip.String())
		get(t, f, dir, serve(t, there, nil).clone(t), tip)
		require.NotEmpty(t, keeps(t, dir))
		mercilessly(t, dir)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "HEAD.lock"), nil, 0o600))
		require.NoError(t, f.Repair(t.Context(), dir))
		require.Empty(t, leftovers(t, dir))
		mercilessly(t, dir)
		return dir
	},
	"promoted, and let go of": func(t *testing.T, f *gitfetch.Fetcher, g *graph, tip nip34.ObjectID) string {
		there, dir := g.loose(t, nip34.ObjectID{}), bare(t, nip34.SHA1)
		git(t, there, "update-ref", "refs/heads/main", tip.String())
		get(t, f, dir, serve(t, there, nil).clone(t), tip)
		require.NoError(t, f.Cleanup(t.Context(), dir))
		return dir
	},
}

// Objects that Missing finds without a ref survive any garbage collection until refs reach them.
// Afterwards they are not protected.
func TestPromiseP33_WhatIsFoundIsKept(t *testing.T) {
	for name, make := range unheldKinds {
		t.Run(name, func(t *testing.T) {
			g, commits := chain(t)
			f := fetcher(t)
			half, tip := commits[2].id, commits[4].id
			lost := oid(t, "1234567890123456789012345678901234567890")
			here := make(t, f, g, tip)
			missing, err := f.Missing(t.Context(), here, []nip34.ObjectID{half, lost, tip})
			require.NoError(t, err)
			require.Equal(t, []nip34.ObjectID{lost}, missing)
			mercilessly(t, here)
			packs, err := filepath.Glob(here + "/objects/pack/*.pack")
			require.NoError(t, err)
			complete(t, f, here, []nip34.ObjectID{half, tip})
			again, err := filepath.Glob(here + "/objects/pack/*.pack")
			require.NoError(t, err)
			require.Equal(t, packs, again, "what is kept is not copied again")
			mercilessly(t, here)
			main := ref(t, "refs/heads/main")
			require.NoError(t, f.UpdateRefs(t.Context(), here, []refplan.RefChange{{Name: main, New: half}}, main))
			mercilessly(t, here)
			require.NoError(t, f.UpdateRefs(t.Context(), here, []refplan.RefChange{{Name: main, Old: half, New: tip}}, main))
			mercilessly(t, here)
			require.NoError(t, f.Cleanup(t.Context(), here))
			require.Empty(t, keeps(t, here))
			mercilessly(t, here)
			git(t, here, "fsck", "--strict")
			require.Len(t, keeps(t, here), 0)
			require.Equal(t, "5", git(t, here, "rev-list", "--count", "main"))
			complete(t, f, here, []nip34.ObjectID{half, tip})
			require.Empty(t, keeps(t, here), "refs hold it")
			require.Empty(t, leftovers(t, here))
		})
	}
}

// After Missing reports that nothing is missing, a quarantine contains copies of all needed objects
// without a ref.
func TestPromiseP33_QuarantineReliesOnNothingUnheld(t *testing.T) {
	g, commits := chain(t)
	here := g.loose(t, commits[4].id)
	f := fetcher(t)
	o := serve(t, here, nil)
	o.Config.Handler = sendPack(packOf(object(1, commits[4].body), object(3, []byte("of another one"))))
	want := []nip34.ObjectID{commits[4].id}
	q, err := f.Open(here)
	require.NoError(t, err)
	_, err = q.Fetch(t.Context(), o.clone(t), want)
	require.NoError(t, err)
	for range 2 {
		wholly(t, q, want)
		mercilessly(t, here)
		require.Len(t, list(t, q.Packs()), 4, "what came stays, and one was added")
	}
	require.NoError(t, q.Promote(t.Context()))
	mercilessly(t, here)
	complete(t, f, here, want)
	git(t, here, "fsck", "--strict")
}
