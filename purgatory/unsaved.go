package purgatory

import (
	"errors"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// unsaved knows where the last look, or the last survey, found something complete that could not be stored. Both are
// tried again until they succeed, so that nothing stays here for longer than that takes.
type unsaved struct {
	repos       map[graspsync.RepoRef]struct{}
	identifiers map[string]struct{}
}

func newUnsaved() unsaved {
	return unsaved{make(map[graspsync.RepoRef]struct{}), make(map[string]struct{})}
}

func (u unsaved) looked(ref graspsync.RepoRef, err error) { noteUnsaved(u.repos, ref, err) }

func (u unsaved) surveyed(identifier string, err error) { noteUnsaved(u.identifiers, identifier, err) }

func noteUnsaved[K comparable](in map[K]struct{}, of K, err error) {
	if errors.Is(err, errUnsaved) {
		in[of] = struct{}{}
	} else {
		delete(in, of)
	}
}

// of reports whether an entry may be complete.
func (u unsaved) of(e ledger.Entry) bool {
	for _, ref := range e.Repos {
		if _, is := u.repos[ref]; is {
			return true
		}
		if _, is := u.identifiers[ref.Identifier]; is {
			return true
		}
	}
	return false
}
