package gitserve

import (
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// moot answers a push of which nothing is left to be done, and one that git would not do,
// since a ref is neither where the client takes it to be nor where it wants it. Anybody
// can make such a push again and again: what comes with it must not become part of the
// repository, as it would though git moved nothing. It is called with the lock of the
// repository; the refs of the push are returned as they are.
func (h *Handler) moot(w http.ResponseWriter, ref graspsync.RepoRef, req request) (now map[nip34.RefName]nip34.ObjectID, answered bool, err error) {
	if now, err = h.refs(ref, req); err != nil {
		return nil, false, err
	}
	stale, moves := make(map[nip34.RefName]string), false
	for _, c := range req.commands {
		switch now[c.ref] {
		case c.new:
		case c.old:
			moves = true
		default:
			stale[c.ref] = refusedStale
		}
	}
	switch {
	case len(stale) > 0:
		report(w, req, func() error { return writeReport(w, req, stale) })
	case !moves:
		report(w, req, func() error { return writeResults(w, req, nil, "") })
	default:
		return now, false, nil
	}
	return now, true, nil
}

// refs reads where the refs are that a push names.
func (h *Handler) refs(ref graspsync.RepoRef, req request) (map[nip34.RefName]nip34.ObjectID, error) {
	now, err := barerepo.Refs(h.repos.root, filepath.FromSlash(place(ref)), req.names())
	if err != nil {
		return nil, fmt.Errorf("reading refs: %w", err)
	}
	return now, nil
}

// report answers a push without git, if the client wants to hear anything.
func report(w http.ResponseWriter, req request, write func() error) {
	w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
	w.Header().Set("Cache-Control", "no-cache")
	if req.report {
		_ = write() // the client is gone if this fails
	}
}
