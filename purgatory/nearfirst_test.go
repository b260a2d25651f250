package purgatory_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

// The GitFetcher of the example passes the suite.
func TestNearFirst(t *testing.T) {
	fetchtest.RunGitFetcher(t, func(t *testing.T) fetchtest.Setup {
		fake := fetchtest.New()
		s := fetchtest.Setup{
			Git: fake, Fetcher: nearFirst{fake, "https://mirror.example"}, First: objectID(1), Second: objectID(2), Absent: objectID(3),
		}
		fake.Needs(s.Second, s.First)
		serve := func(name string, server fetchtest.Server) graspsync.CloneURL {
			u := cloneURL("https://" + name + "/r.git")
			fake.Serve(u, server)
			return u
		}
		s.Full = serve("full.example", fetchtest.Server{Objects: []nip34.ObjectID{s.First, s.Second}})
		s.Half = serve("half.example", fetchtest.Server{Objects: []nip34.ObjectID{s.First}})
		s.None = serve("none.example", fetchtest.Server{})
		s.Junk = serve("junk.example", fetchtest.Server{Err: purgatory.ErrNotServed, Bytes: 1000})
		serve("mirror.example/full.example", fetchtest.Server{Objects: []nip34.ObjectID{s.First}})
		serve("mirror.example/half.example", fetchtest.Server{Err: errors.New("down")})
		for identifier, dir := range map[string]*string{"one": &s.Dir, "two": &s.Other} {
			ref := graspsync.RepoRef{Identifier: identifier}
			require.NoError(t, fake.Create(t.Context(), ref, nip34.SHA1))
			d, unlock, err := fake.Lock(t.Context(), ref)
			require.NoError(t, err)
			unlock()
			*dir = d
		}
		return s
	})
}
