package purgatory

import (
	"errors"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

// maxEnded is the maximum number of recorded ended events, maxReplies of recorded replies of git
// servers, for [EventState] and [ServerState].
const maxEnded, maxReplies = 10_000, 10_000

type replyKey struct {
	repo graspsync.RepoRef
	from graspsync.CloneURL
}

func (s *report) addEnding(e EventState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Is == EventCode(Expired.String()) {
		e.gaveUp = e.At
	} else if before, ok := s.endings.Get(e.ID); ok {
		e.gaveUp = before.gaveUp
	}
	who := limit.Stranger{}
	if len(e.Repos) > 0 {
		who.ID = e.Repos[0].Owner.String()
	}
	s.endings.Put(e.ID, who, 0, e)
}

func (s *report) ending(id graspsync.EventID) (EventState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endings.Get(id)
}

// endingsOf returns the matching endings, the newest first.
func (s *report) endingsOf(matches func(EventState) bool) (out []EventState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.endings.All() {
		if matches(e) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b EventState) int { return b.At.Compare(a.At) })
	return out
}

func (s *report) addReply(f FetchEnded) {
	r := ServerState{Asked: time.Now(), Wanted: f.Wanted, Missing: f.Missing}
	switch {
	case f.Local != nil:
		r.Local, r.Error = true, graspsync.Printable(f.Local.Error())
	case f.Err != nil && !errors.Is(f.Err, ErrNotServed):
		r.Error = graspsync.Printable(f.Err.Error())
	}
	s.putReply(replyKey{f.Repo, f.URL}, r)
}

func (s *report) addSkipped(ref graspsync.RepoRef, from graspsync.CloneURL, why string) {
	r := s.reply(ref, from)
	r.Skipped = why
	s.putReply(replyKey{ref, from}, r)
}

func (s *report) putReply(k replyKey, r ServerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies.Put(k, limit.Stranger{ID: k.repo.Owner.String()}, 0, r)
}

func (s *report) reply(ref graspsync.RepoRef, from graspsync.CloneURL) ServerState {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _ := s.replies.Get(replyKey{ref, from})
	return r
}

// repliers returns the git servers with a recorded reply about a repository.
func (s *report) repliers(ref graspsync.RepoRef) (urls []graspsync.CloneURL) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.replies.All() {
		if k.repo == ref {
			urls = append(urls, k.from)
		}
	}
	return urls
}
