package refupdate

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// journal is the record of planned ref changes. After a crash it is checked before the repository
// is read.
type journal struct {
	Repo    string          `json:"repo"`
	At      time.Time       `json:"at"`
	Was     string          `json:"was,omitempty"`  // target of HEAD before
	Head    string          `json:"head,omitempty"` // target of HEAD afterwards
	Changes []journalChange `json:"changes"`
}

type journalChange struct {
	Ref string `json:"ref"`
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
}

func newJournal(ref graspsync.RepoRef, now refplan.Refs, changes []refplan.RefChange, head nip34.RefName) journal {
	j := journal{Repo: ref.String(), At: time.Now().UTC(), Was: now.Head.String(), Head: head.String()}
	for _, c := range changes {
		j.Changes = append(j.Changes, journalChange{c.Name.String(), c.Old.String(), c.New.String()})
	}
	return j
}

// undo returns the changes that revert a partial transaction, and the old target of HEAD if it was
// moved. It returns nothing if all or nothing was applied, or if another writer has moved HEAD or a
// ref since, which then has neither its old nor its new value.
func (j journal) undo(now refplan.Refs) (back []refplan.RefChange, head nip34.RefName) {
	if at := now.Head.String(); at != j.Was && (j.Head == "" || at != j.Head) {
		return nil, head
	}
	undone := 0
	for _, c := range j.Changes {
		name, err := refplan.ParseRef(c.Ref)
		before, after := parseObject(c.Old), parseObject(c.New)
		switch at := now.At[name]; {
		case err != nil || before == after && at == after:
		case at == after:
			back = append(back, refplan.RefChange{Name: name, Old: after, New: before})
		case at == before:
			undone++
		default:
			return nil, head
		}
	}
	if undone == 0 || len(back) == 0 {
		return nil, head
	}
	if to, err := refplan.ParseRef(j.Head); err == nil && now.Head == to {
		head, _ = refplan.ParseRef(j.Was)
	}
	return back, head
}

func parseObject(s string) nip34.ObjectID {
	id, err := nip34.ParseObjectID(s)
	if err != nil {
		return nip34.ObjectID{}
	}
	return id
}
