package purgatory

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
)

// journal is what refs a repository is about to get: after a crash it is looked at
// before anybody reads from it.
type journal struct {
	Repo    string          `json:"repo"`
	At      time.Time       `json:"at"`
	Was     string          `json:"was,omitempty"`  // where HEAD pointed to
	Head    string          `json:"head,omitempty"` // where it is to
	Changes []journalChange `json:"changes"`
}

type journalChange struct {
	Ref string `json:"ref"`
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
}

func newJournal(ref graspsync.RepoRef, now resolve.Refs, changes []resolve.RefChange, head nip34.RefName) journal {
	j := journal{Repo: ref.String(), At: time.Now().UTC(), Was: now.Head.String(), Head: head.String()}
	for _, c := range changes {
		j.Changes = append(j.Changes, journalChange{c.Name.String(), c.Old.String(), c.New.String()})
	}
	return j
}

// undo returns what takes back a part of a transaction, and where HEAD was if it was
// moved; nothing if all of it was done, or none.
func (j journal) undo(now resolve.Refs) (back []resolve.RefChange, head nip34.RefName) {
	undone := 0
	for _, c := range j.Changes {
		name, ok := parseRef(c.Ref)
		before, after := parseObject(c.Old), parseObject(c.New)
		if !ok || before == after {
			continue
		}
		switch now.At[name] {
		case after:
			back = append(back, resolve.RefChange{Name: name, Old: after, New: before})
		case before:
			undone++
		}
	}
	if undone == 0 || len(back) == 0 {
		return nil, nip34.RefName{}
	}
	if to, ok := parseRef(j.Head); ok && now.Head == to {
		head, _ = parseRef(j.Was)
	}
	return back, head
}

func parseRef(s string) (nip34.RefName, bool) {
	name, err := nip34.ParseRefName(s)
	if err == nil {
		return name, true
	}
	if id, ok := resolve.EventIn(s); ok {
		return nip34.EventRef(id), true
	}
	return name, false
}

// parseObject reads an id; what is none is zero.
func parseObject(s string) nip34.ObjectID {
	id, err := nip34.ParseObjectID(s)
	if err != nil {
		return nip34.ObjectID{}
	}
	return id
}
