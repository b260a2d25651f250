package purgatory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/state"
)

// Missing data is not called unobtainable before its fetch is queued.
func TestLackingBeforeTheFetchIsQueued(t *testing.T) {
	p := newPurgatory(nil, nil, nil, nil, state.NewMemory(), Config{}.withDefaults(), func(string) {}, 1)
	ref := graspsync.RepoRef{Owner: graspsync.PubKey{1}, Identifier: "r"}
	p.jobs.AddRelease(ref, refplan.Reasons{})
	p.table.change(ref, func(s *repoState) { s.need.IDs = make([]nip34.ObjectID, 1) })
	require.Equal(t, map[graspsync.RepoRef]bool{ref: true}, p.Lacking())
}
