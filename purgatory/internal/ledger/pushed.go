package ledger

import (
	"slices"

	"github.com/graspsync/graspsync"
)

// MaxPushed is how many repositories one placeholder can be for.
const MaxPushed = 16

// Join returns the entry of a placeholder, or of a pull request, as it is when data
// for its event was pushed to one more repository. False means that nothing changes,
// or that there is no room.
func (l *Ledger) Join(id graspsync.EventID, ref graspsync.RepoRef) (e Entry, changed, room bool) {
	old, ok := l.entries[id]
	if !ok {
		return Entry{}, false, false
	}
	e = *old
	if slices.Contains(e.Repos, ref) || slices.Contains(e.Strays, ref) {
		return e, false, true
	}
	if len(e.Repos)+len(e.Strays) >= 2*MaxPushed || (e.Class != Placeholder && e.Class != PullRequest) {
		return e, false, false
	}
	if e.Class == Placeholder {
		if !l.room(Entry{Class: Placeholder, Repos: []graspsync.RepoRef{ref}}) {
			return e, false, false
		}
		e.Repos = append(slices.Clone(e.Repos), ref)
	} else {
		e.Strays = append(slices.Clone(e.Strays), ref)
	}
	return e, true, true
}
