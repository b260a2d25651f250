package fetchtest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

func object(n int) nip34.ObjectID {
	id, _ := nip34.ParseObjectID(fmt.Sprintf("%040x", n))
	return id
}

func TestFake(t *testing.T) {
	fetchtest.RunGitFetcher(t, func(t *testing.T) fetchtest.Setup {
		f := fetchtest.New()
		s := fetchtest.Setup{Git: f, Fetcher: f, First: object(1), Second: object(2), Absent: object(3)}
		f.Needs(s.Second, s.First)
		serve := func(name string, objects ...nip34.ObjectID) graspsync.CloneURL {
			u, err := graspsync.ParseCloneURL("https://" + name + ".example/r.git")
			require.NoError(t, err)
			f.Serve(u, fetchtest.Server{Objects: objects})
			return u
		}
		s.Full, s.Half, s.None = serve("full", s.First, s.Second), serve("half", s.First), serve("none")
		junk, err := graspsync.ParseCloneURL("https://junk.example/r.git")
		require.NoError(t, err)
		f.Serve(junk, fetchtest.Server{Err: purgatory.ErrNotServed, Bytes: 1000})
		s.Junk = junk
		for i, dir := range []*string{&s.Dir, &s.Other} {
			ref := graspsync.RepoRef{Identifier: fmt.Sprint(i)}
			require.NoError(t, f.Create(t.Context(), ref, nip34.SHA1))
			d, unlock, err := f.Lock(t.Context(), ref)
			require.NoError(t, err)
			*dir = d
			unlock()
		}
		return s
	})
}
