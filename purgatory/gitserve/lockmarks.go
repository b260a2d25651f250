package gitserve

import (
	"slices"
	"sync"

	"github.com/graspsync/graspsync"
)

// lockMarks are files that say which repositories are locked. Should we be killed, Open finds
// them, and removes locks of refs that stand in the way of pushes. Where none can be written, as on
// a full disk, the next maintenance does that. Those of the last keptMarks that were locked stay:
// most are locked again at once, and to make and remove a file takes longer than most locks last.
// One that stays costs a look when all are opened. It is safe for concurrent use; set, leave,
// clear and drop are called with the lock of the repository.
type lockMarks struct {
	in *layout // set by newLockMarks

	mu sync.Mutex
	// guarded by mu
	there map[graspsync.RepoRef]struct{}
	left  []graspsync.RepoRef // those of there that are not locked, or were not a while ago, as they were left
}

// keptMarks bounds the marks of what is not locked: as many are looked at by who opens a folder
// after a crash, for some milliseconds each.
const keptMarks = 64

func newLockMarks(in *layout) *lockMarks {
	return &lockMarks{in: in, there: make(map[graspsync.RepoRef]struct{})}
}

// set marks a repository as locked.
func (m *lockMarks) set(ref graspsync.RepoRef) {
	m.mu.Lock()
	_, there := m.there[ref]
	m.there[ref] = struct{}{}
	m.unleft(ref)
	m.mu.Unlock()
	if there {
		return
	}
	file, err := m.in.root.Create(m.in.marked(lockMark, ref))
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.there, ref)
		return
	}
	_ = file.Close() // it is empty
}

// leave says that a repository is not locked any more. Another one may be cleared that was left
// before.
func (m *lockMarks) leave(ref graspsync.RepoRef) (over graspsync.RepoRef, many bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.there[ref]; !there {
		return over, false
	}
	m.unleft(ref)
	if m.left = append(m.left, ref); len(m.left) <= keptMarks {
		return over, false
	}
	over = m.left[0]
	m.left = slices.Delete(m.left, 0, 1)
	return over, true
}

// back has one be cleared later that somebody uses.
func (m *lockMarks) back(ref graspsync.RepoRef) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.there[ref]; there {
		m.unleft(ref)
		m.left = append(m.left, ref)
	}
}

// unleft is called with mu held.
func (m *lockMarks) unleft(ref graspsync.RepoRef) {
	m.left = slices.DeleteFunc(m.left, func(o graspsync.RepoRef) bool { return o == ref })
}

// clear removes the mark of a repository that was left.
func (m *lockMarks) clear(ref graspsync.RepoRef) {
	m.mu.Lock()
	_, there := m.there[ref]
	again := slices.Contains(m.left, ref) // it was locked and left since
	if !again {
		delete(m.there, ref)
	}
	m.mu.Unlock()
	if there && !again {
		_ = m.in.root.Remove(m.in.marked(lockMark, ref))
	}
}

// drop removes the mark of a repository that goes. It is called with its lock.
func (m *lockMarks) drop(ref graspsync.RepoRef) {
	m.mu.Lock()
	m.unleft(ref)
	m.mu.Unlock()
	m.clear(ref)
}

// close removes the marks of what is not locked.
func (m *lockMarks) close() {
	m.mu.Lock()
	left := slices.Clone(m.left)
	m.mu.Unlock()
	for _, ref := range left {
		m.drop(ref)
	}
}
