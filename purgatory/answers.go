package purgatory

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

// mostAnswers is how many answers of servers are remembered for people who ask: the newest.
const mostAnswers = 10_000

// answers are what servers said last when they were asked for what repositories lack. Nothing
// goes by them.
type answers struct {
	mu   sync.Mutex
	last *limit.Table[answerOf, answer] // guarded by mu
}

type answerOf struct {
	repo graspsync.RepoRef
	from graspsync.CloneURL
}

// answer is what one server said last, and why it was not asked after that.
type answer struct {
	at      time.Time
	text    string
	wanted  int
	missing int
	bytes   int64

	passedAt time.Time // when it was not asked although it was its turn
	passed   string    // and why
}

func newAnswers() *answers { return &answers{last: limit.NewTable[answerOf, answer](mostAnswers, 0)} }

// came notes an answer.
func (s *answers) came(f Fetched) {
	var text string
	switch {
	case f.Local != nil:
		text = "it answered, and what it sent could not be taken in here: " + graspsync.Printable(f.Local.Error())
	case f.Err == nil && f.Missing == 0:
		text = "it had all of it"
	case f.Err == nil && f.Missing < f.Wanted, f.Err == nil && f.Bytes > 0 && f.Missing < f.Wanted:
		text = fmt.Sprintf("it had %d of %d objects", f.Wanted-f.Missing, f.Wanted)
	case f.Err == nil, errors.Is(f.Err, ErrNotServed):
		text = "not found: it has none of the objects"
	default:
		text = graspsync.Printable(f.Err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last.Put(answerOf{f.Repo, f.URL}, limit.Stranger{ID: f.Repo.Owner.String()}, 0, answer{at: time.Now(), text: text, wanted: f.Wanted, missing: f.Missing, bytes: f.Bytes})
}

// passed notes why a server was not asked.
func (s *answers) passed(ref graspsync.RepoRef, from graspsync.CloneURL, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, _ := s.last.Get(answerOf{ref, from})
	a.passedAt, a.passed = time.Now(), why
	s.last.Put(answerOf{ref, from}, limit.Stranger{ID: ref.Owner.String()}, 0, a)
}

func (s *answers) of(ref graspsync.RepoRef, from graspsync.CloneURL) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, _ := s.last.Get(answerOf{ref, from})
	return a
}

// from returns who of a repository's servers has said something, or was passed over, that is remembered.
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

// passes says why servers are not asked, by what is counted of it.
var passes = map[string]string{
	"repo_day": "so much came for this repository that nothing more is fetched for it within a day",
	"host_day": "this server sent so much that it is asked for nothing more within a day",
	"lacking":  "it had none of these objects the last time, and is asked for the same ones only once in a while",
}
