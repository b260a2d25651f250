package purgatory

import (
	"errors"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

// maxAnswers is the number of answers of git servers that are kept for [ServerState].
const maxAnswers = 10_000

// answers has the last answer of each git server for each repository. It may be used concurrently.
type answers struct {
	mu   sync.Mutex
	last *limit.Table[answerOf, ServerState] // guarded by mu
}

type answerOf struct {
	repo graspsync.RepoRef
	from graspsync.CloneURL
}

func newAnswers() *answers {
	return &answers{last: limit.NewTable[answerOf, ServerState](maxAnswers, 0)}
}

// came records an answer.
func (s *answers) came(f Fetched) {
	a := ServerState{Asked: time.Now(), Wanted: f.Wanted, Missing: f.Missing}
	switch {
	case f.Local != nil:
		a.Local, a.Error = true, graspsync.Printable(f.Local.Error())
	case f.Err != nil && !errors.Is(f.Err, ErrNotServed):
		a.Error = graspsync.Printable(f.Err.Error())
	}
	s.put(answerOf{f.Repo, f.URL}, a)
}

// skipped records why a server was not asked.
func (s *answers) skipped(ref graspsync.RepoRef, from graspsync.CloneURL, why string) {
	a := s.of(ref, from)
	a.Skipped = why
	s.put(answerOf{ref, from}, a)
}

func (s *answers) put(of answerOf, a ServerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last.Put(of, limit.Stranger{ID: of.repo.Owner.String()}, 0, a)
}

func (s *answers) of(ref graspsync.RepoRef, from graspsync.CloneURL) ServerState {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, _ := s.last.Get(answerOf{ref, from})
	return a
}

// from returns the servers of which an answer for a repository is kept.
func (s *answers) from(ref graspsync.RepoRef) (urls []graspsync.CloneURL) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of := range s.last.All() {
		if of.repo == ref {
			urls = append(urls, of.from)
		}
	}
	return urls
}
