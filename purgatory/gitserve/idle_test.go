package gitserve

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every test ends with nobody here: whoever still counts as one that uses a repository or has
// a place keeps others out for good, and no single answer shows that.

// idle checks that nobody uses a repository any more, that nothing is left of what was half
// done, and that as much is staged as the disk has.
func (r *Repositories) idle(t testing.TB) {
	t.Helper()
	require.Zero(t, r.inUse.Len(), "somebody still uses a repository")
	require.Zero(t, r.queues.Len(), "a push still waits for one")
	left, err := fs.ReadDir(r.root.FS(), incoming)
	require.NoError(t, err)
	require.Empty(t, left, "something is half done, or marked as if it were")
	folders, err := fs.ReadDir(r.root.FS(), area)
	require.NoError(t, err)
	q := r.quota
	q.mu.Lock()
	require.Zero(t, q.pending, "room is reserved for nobody")
	q.mu.Unlock()
	s := r.staging
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, folders, s.uploads.Len()+len(s.stuck), "uploads are on the disk that nobody knows, or known and gone")
	if s.uploads.Len() == 0 {
		require.Zero(t, s.uploads.Bytes(), "room is taken for nothing")
	}
}

// idle checks that nobody has a place, waits for one or is charged for anything. The handler
// is closed.
func (h *Handler) idle(t testing.TB) {
	t.Helper()
	for _, s := range []*slots{h.staging, h.settling, h.kept} {
		s.idle(t)
	}
	for _, r := range []*requests{h.pushes, h.fetches, h.asks} {
		r.processes.idle(t)
		r.open.idle(t)
		r.mu.Lock()
		require.Nil(t, r.yielding)
		r.mu.Unlock()
	}
}

func (s *slots) idle(t testing.TB) {
	t.Helper()
	used, waiting := s.Stats()
	require.Zero(t, used)
	require.Zero(t, waiting)
}
