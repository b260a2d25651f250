package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// findings are what looks have found about repositories, and which repositories are to be
// looked at.
type findings struct {
	mu sync.Mutex
	// guarded by mu
	needs   map[string]map[graspsync.RepoRef]refplan.Need // by identifier, as of the last look
	touched map[string]map[graspsync.RepoRef]uint64       // to be looked at though nothing waits for it, by identifier
	touches uint64                                        // numbers them
	// who waits for a look, and for which touch
	awaiting map[graspsync.RepoRef]map[chan struct{}]uint64
	// branches and tags that pushes moved while a state waited, by identifier
	pushed map[string]map[graspsync.RepoRef]map[nip34.RefName]struct{}
	looks  map[graspsync.RepoRef]struct{} // that are looked at now
	vain   map[graspsync.RepoRef]struct{} // that lack data which no server gave
}

func newFindings() *findings {
	return &findings{
		needs:    make(map[string]map[graspsync.RepoRef]refplan.Need),
		touched:  make(map[string]map[graspsync.RepoRef]uint64),
		awaiting: make(map[graspsync.RepoRef]map[chan struct{}]uint64),
		pushed:   make(map[string]map[graspsync.RepoRef]map[nip34.RefName]struct{}),
		looks:    make(map[graspsync.RepoRef]struct{}),
		vain:     make(map[graspsync.RepoRef]struct{}),
	}
}

// found is what a look has found.
type found struct {
	need   refplan.Need
	whole  bool // it lacks nothing any more
	gained bool // it has something that it lacked
	again  bool // it may have something that it lacks when others have done what they do
	walked bool // there was time enough for the histories that states name
}

// touch has a repository looked at, by the next look at its identifier.
func (f *findings) touch(ref graspsync.RepoRef) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.touchNow(ref)
}

// touchNow is touch with mu held.
func (f *findings) touchNow(ref graspsync.RepoRef) {
	if f.touched[ref.Identifier] == nil {
		f.touched[ref.Identifier] = make(map[graspsync.RepoRef]uint64)
	}
	f.touches++
	f.touched[ref.Identifier][ref] = f.touches
}

// untouch forgets that a repository was touched, unless it was again. mu is held.
func (f *findings) untouch(ref graspsync.RepoRef, number uint64) {
	f.lookedAt(ref, number)
	if of := f.touched[ref.Identifier]; of[ref] == number {
		delete(of, ref)
		if len(of) == 0 {
			delete(f.touched, ref.Identifier)
		}
	}
}

// looking notes that a repository is looked at, and returns when it was touched last.
func (f *findings) looking(ref graspsync.RepoRef) (number uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks[ref] = struct{}{}
	return f.touched[ref.Identifier][ref]
}

// looked notes that the look is over. One that had too little time is gone on with at once.
func (f *findings) looked(ref graspsync.RepoRef, number uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.looks, ref)
	if err != nil && !errors.Is(err, errLong) {
		f.lookedAt(ref, number)
	}
}

// lookedAt tells those who wait for what a repository was touched for, up to a number. It is
// called with mu held.
func (f *findings) lookedAt(ref graspsync.RepoRef, number uint64) {
	for done, since := range f.awaiting[ref] {
		if since <= number {
			close(done)
			f.notAwaiting(ref, done)
		}
	}
}

// await is [Purgatory.Settled].
func (f *findings) await(ctx context.Context, ref graspsync.RepoRef) error {
	f.mu.Lock()
	number, told := f.touched[ref.Identifier][ref]
	if !told {
		f.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	if f.awaiting[ref] == nil {
		f.awaiting[ref] = make(map[chan struct{}]uint64)
	}
	f.awaiting[ref][done] = number
	f.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		f.notAwaiting(ref, done)
		return fmt.Errorf("waiting for a look at a repository: %w", context.Cause(ctx))
	}
}

// movedBy remembers the branches and tags of refs as those that a push has moved.
func (f *findings) movedBy(ref graspsync.RepoRef, refs []nip34.RefName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pushed[ref.Identifier] == nil {
		f.pushed[ref.Identifier] = make(map[graspsync.RepoRef]map[nip34.RefName]struct{})
	}
	names := f.pushed[ref.Identifier][ref]
	if names == nil {
		names = make(map[nip34.RefName]struct{})
		f.pushed[ref.Identifier][ref] = names
	}
	for _, name := range refs {
		if refplan.IsState(name) {
			names[name] = struct{}{}
		}
	}
}

// pushedTo returns the branches and tags that pushes have moved while a state waited.
func (f *findings) pushedTo(ref graspsync.RepoRef) map[nip34.RefName]struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.pushed[ref.Identifier][ref])
}

// notePushed forgets the refs that no state which waits would have as they are. It is
// called with mu held, and the repository locked.
func (f *findings) notePushed(g *refplan.Group, r *repository) {
	names := f.pushed[g.Identifier][r.Ref]
	for name := range r.Pushed {
		if !g.Ahead(r.Repository, name) {
			delete(names, name)
		}
	}
	if len(names) == 0 {
		delete(f.pushed[g.Identifier], r.Ref)
	}
	if len(f.pushed[g.Identifier]) == 0 {
		delete(f.pushed, g.Identifier)
	}
}

// note remembers what a repository lacks. If it could not be dealt with it is as before.
func (f *findings) note(g *refplan.Group, r *repository, n refplan.Need, number uint64) found {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.failed != nil {
		f.touchNow(r.Ref)
		return found{}
	}
	f.notePushed(g, r)
	f.untouch(r.Ref, number)
	gained := r.gained || slices.ContainsFunc(f.needs[g.Identifier][r.Ref].IDs, r.Has)
	if len(n.IDs) == 0 {
		return found{whole: f.needsNothing(r.Ref), gained: gained}
	}
	if f.needs[g.Identifier] == nil {
		f.needs[g.Identifier] = make(map[graspsync.RepoRef]refplan.Need)
	}
	f.needs[g.Identifier][r.Ref] = n
	return found{need: n, gained: gained}
}

// noteGone notes that nobody announces a repository, and reports whether it lacked anything.
func (f *findings) noteGone(ref graspsync.RepoRef, number uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.untouch(ref, number)
	return f.needsNothing(ref)
}

// forget notes that a repository needs nothing, since it is not here any more.
func (f *findings) forget(ref graspsync.RepoRef) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.needsNothing(ref)
}

// addLacking adds the repositories that lack something, or are to be looked at, with whether a
// server may still have it.
func (f *findings) addLacking(to map[graspsync.RepoRef]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range f.touched {
		for ref := range of {
			to[ref] = true
		}
	}
	for _, of := range f.needs {
		for ref := range of {
			_, vain := f.vain[ref]
			to[ref] = !vain
		}
	}
}

// hunted notes whether a repository was asked for in vain.
func (f *findings) hunted(ref graspsync.RepoRef, vain bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.vain, ref)
	if _, lacks := f.needs[ref.Identifier][ref]; vain && lacks {
		f.vain[ref] = struct{}{}
	}
}

// lacked returns what a repository lacked when it was looked at last.
func (f *findings) lacked(ref graspsync.RepoRef) refplan.Need {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.needs[ref.Identifier][ref]
}

// lacking returns the repositories with an identifier that lack something, for which is
// returns true.
func (f *findings) lacking(identifier string, is func(ref graspsync.RepoRef, n refplan.Need) bool) (refs []graspsync.RepoRef) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ref, n := range f.needs[identifier] {
		if is(ref, n) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// under returns what is known of the repositories with an identifier: which were touched,
// by their numbers, which lack something, and all repositories that are looked at now.
func (f *findings) under(identifier string) (touched map[graspsync.RepoRef]uint64, looks map[graspsync.RepoRef]struct{}, lacked map[graspsync.RepoRef]refplan.Need) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.touched[identifier]), maps.Clone(f.looks), maps.Clone(f.needs[identifier])
}

// surveyed notes what a survey has found under an identifier: which repositories need no
// look for what they were touched for, and which lack nothing. Without a state that waits
// it does not matter what pushes have moved.
func (f *findings) surveyed(identifier string, left map[graspsync.RepoRef]uint64, whole []graspsync.RepoRef, statesWait bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ref, number := range left {
		f.untouch(ref, number)
	}
	for _, ref := range whole {
		f.needsNothing(ref)
	}
	if !statesWait {
		delete(f.pushed, identifier)
	}
}

// needsNothing notes that a repository lacks nothing, and reports whether it did. It is
// called with mu held.
func (f *findings) needsNothing(ref graspsync.RepoRef) bool {
	of := f.needs[ref.Identifier]
	_, did := of[ref]
	delete(of, ref)
	delete(f.vain, ref)
	if len(of) == 0 {
		delete(f.needs, ref.Identifier)
	}
	return did
}

// notSurveyed tells those who wait for a look at a repository with an identifier: it is not known
// when there is one.
func (f *findings) notSurveyed(identifier string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ref := range f.awaiting {
		if ref.Identifier == identifier {
			f.lookedAt(ref, f.touched[identifier][ref])
		}
	}
}

// notAwaiting forgets somebody who waits. It is called with mu held.
func (f *findings) notAwaiting(ref graspsync.RepoRef, done chan struct{}) {
	delete(f.awaiting[ref], done)
	if len(f.awaiting[ref]) == 0 {
		delete(f.awaiting, ref)
	}
}
