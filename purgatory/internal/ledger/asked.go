package ledger

import "github.com/graspsync/graspsync"

// Asked is what is known of deletions by one author: which of theirs that waits was asked for,
// and not deleted. It is told from others by where it is: there is another one as soon as they
// have deleted something.
type Asked struct {
	undeleted map[graspsync.EventID]struct{}
}

// Asked returns what is known of deletions by the author of an entry; nil if that does not wait.
func (x *index) Asked(id graspsync.EventID) *Asked {
	e, waits := x.entries[id]
	if !waits {
		return nil
	}
	if x.asked[e.Author] == nil {
		x.asked[e.Author] = &Asked{undeleted: make(map[graspsync.EventID]struct{})}
	}
	return x.asked[e.Author]
}

// ToAsk returns of which of some entries it is not known that they were not deleted.
func (x *index) ToAsk(some []Entry) map[graspsync.EventID]struct{} {
	out := make(map[graspsync.EventID]struct{})
	for i := range some {
		if a := x.asked[some[i].Author]; a != nil {
			if _, undeleted := a.undeleted[some[i].ID]; undeleted {
				continue
			}
		}
		out[some[i].ID] = struct{}{}
	}
	return out
}

// Undeleted notes that an entry was not deleted, by an answer to what was asked after a was what
// was known. It says nothing if its author has deleted something since.
func (x *index) Undeleted(id graspsync.EventID, a *Asked) {
	if e, waits := x.entries[id]; waits && a != nil && x.asked[e.Author] == a {
		a.undeleted[id] = struct{}{}
	}
}

// AskAgain notes that an author has deleted something: nothing is known of it.
func (x *index) AskAgain(author graspsync.PubKey) { delete(x.asked, author) }

// forgetAsked forgets what was asked about an entry.
func (x *index) forgetAsked(e *Entry) {
	a := x.asked[e.Author]
	if a == nil {
		return
	}
	if delete(a.undeleted, e.ID); len(a.undeleted) == 0 {
		delete(x.asked, e.Author)
	}
}
