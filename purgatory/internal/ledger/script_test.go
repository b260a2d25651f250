package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/goldentest"
)

// TestScripts plays the scenarios of testdata. A line is a comment (#), output of the
// line before (>), or something that happens at a time after the start:
//
//	config <field>=<number>...                   before anything else
//	<time> submit <class> <id> <author> <repo>... [v=<version>] [size=<bytes>]
//	<time> begin ...                             submit, up to the writing down
//	<time> written <id>                          the rest of it
//	<time> push <repo> [<id>]                    data for a repository, or for an event
//	<time> state <repo>                          a new state event is a sign of life
//	<time> expire                                everything that is due
//	<time> postpone <id> <time>
//	<time> end <id>                              it was released, or deleted
//	<time> announcement <repo>                   that waits for a repository
//	<time> of <repo>                             who waits for data of a repository
//	<time> by <author>                           whose events wait
//	<time> list                                  everything that waits
//	<time> restart                               a new ledger, from the disk
//
// A repository is <owner>/<identifier>, a class announcement, state or pull. Times in
// the output are relative to the start as well.
func TestScripts(t *testing.T) {
	goldentest.Play(t, func(*testing.T) goldentest.Player {
		s := &script{cfg: config(), begun: make(map[string]Entry), disk: make(map[graspsync.EventID]time.Time)}
		return s.command
	})
}

type script struct {
	cfg   Config
	l     *Ledger
	now   time.Time
	begun map[string]Entry
	disk  map[graspsync.EventID]time.Time // what is remembered
}

var errCommand = errors.New("not a command")

func (s *script) command(words []string) ([]string, error) {
	if words[0] == "config" {
		return nil, s.configure(words[1:])
	}
	if s.l == nil {
		s.l = New(s.cfg)
	}
	after, err := time.ParseDuration(words[0])
	if err != nil {
		return nil, err
	}
	s.now = start.Add(after)
	do, known := map[string]func(args []string) ([]string, error){
		"submit": s.submit, "begin": s.begin, "written": s.written, "push": s.push, "state": s.state,
		"expire": s.expire, "postpone": s.postpone, "end": s.end,
		"announcement": s.announcement, "of": s.of, "by": s.by, "list": s.list, "restart": s.restart,
	}[words[1]]
	if !known {
		return nil, errCommand
	}
	return do(words[2:])
}

func (s *script) configure(words []string) error {
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		switch name {
		case "entries":
			s.cfg.Entries = n
		case "bytes":
			s.cfg.Bytes = int64(n)
		case "pushed":
			s.cfg.Pushed = n
		case "perrepo":
			s.cfg.PerRepo = n
		case "author":
			s.cfg.PerAuthor = n
		case "remembered":
			s.cfg.Remembered = n
		default:
			return errCommand
		}
	}
	return nil
}

func named(name string) (out graspsync.EventID) {
	copy(out[:], name)
	return out
}

func nameOf(id graspsync.EventID) string { return string(bytes.TrimRight(id[:], "\x00")) }

func repoNamed(s string) (out graspsync.RepoRef) {
	owner, identifier, _ := strings.Cut(s, "/")
	copy(out.Owner[:], owner)
	out.Identifier = identifier
	return out
}

func repoName(r graspsync.RepoRef) string {
	return string(bytes.TrimRight(r.Owner[:], "\x00")) + "/" + r.Identifier
}

func (s *script) entry(args []string) (Entry, error) {
	if len(args) < 4 {
		return Entry{}, errCommand
	}
	class := map[string]Class{"announcement": Announcement, "state": State, "pull": PullRequest}[args[0]]
	if class == 0 {
		return Entry{}, errCommand
	}
	e := Entry{ID: named(args[1]), Class: class, Size: 100}
	copy(e.Author[:], args[2])
	for _, a := range args[3:] {
		name, value, is := strings.Cut(a, "=")
		if !is {
			e.Repos = append(e.Repos, repoNamed(a))
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return e, err
		}
		switch name {
		case "v":
			e.Version.CreatedAt = nostr.Timestamp(n)
		case "size":
			e.Size = int64(n)
		default:
			return e, errCommand
		}
	}
	e.Version = graspsync.Stamp{CreatedAt: e.Version.CreatedAt, ID: e.ID}
	return e, nil
}

func (s *script) submit(args []string) ([]string, error) {
	out, err := s.begin(args)
	if _, begun := s.begun[args[1]]; err != nil || !begun {
		return out, err
	}
	more, err := s.written(args[1:2])
	return append(out, more...), err
}

func (s *script) begin(args []string) ([]string, error) {
	e, err := s.entry(args)
	if err != nil {
		return nil, err
	}
	return s.take(e), nil
}

// take is what comes before an entry is written down.
func (s *script) take(e Entry) (out []string) {
	names := map[Verdict]string{
		Known: "known", Superseded: "superseded", Expired: "expired before", AuthorFull: "author full",
		PushedFull: "pushed full", Full: "full",
	}
	if v := s.l.Check(s.now, e); v != Welcome {
		return []string{names[v]}
	}
	e = s.l.Admit(s.now, e)
	gone, ok := s.l.Reserve(e)
	for _, x := range gone {
		out = append(out, nameOf(x.ID)+" gives way")
	}
	if !ok {
		return append(out, names[Full])
	}
	s.begun[nameOf(e.ID)] = e
	return out
}

func (s *script) written(args []string) ([]string, error) {
	e, ok := s.begun[args[0]]
	if !ok {
		return nil, errCommand
	}
	delete(s.begun, args[0])
	var out []string
	for _, old := range s.l.Fill(e) {
		if old.ID == e.ID {
			return []string{"superseded"}, nil
		}
		out = append(out, "in place of "+nameOf(old.ID))
	}
	return append(out, s.show(e)), nil
}

func (s *script) show(e Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s until %v", e.Class, nameOf(e.ID), e.Deadline.Sub(start))
	if e.Soft {
		b.WriteString(", softly")
	}
	for _, r := range e.Strays {
		fmt.Fprintf(&b, ", stray in %s", repoName(r))
	}
	return b.String()
}

func (s *script) showAll(es []Entry) (out []string) {
	for _, e := range es {
		out = append(out, s.show(e))
	}
	return out
}

func (s *script) push(args []string) ([]string, error) {
	r := repoNamed(args[0])
	if len(args) == 1 {
		return s.signed(r, false), nil
	}
	id := named(args[1])
	e, changed, room := s.l.Join(id, r)
	_, waits := s.l.Get(id)
	switch {
	case !waits:
		e = Entry{ID: id, Class: Placeholder, Author: r.Owner, Repos: []graspsync.RepoRef{r}, Size: 100}
		if out := s.take(e); len(out) > 0 {
			return out, nil
		}
		return s.written(args[1:])
	case !room:
		return []string{"no room"}, nil
	case changed:
		s.l.Put(e)
	}
	return []string{s.show(e)}, nil
}

func (s *script) state(args []string) ([]string, error) {
	return s.signed(repoNamed(args[0]), true), nil
}

func (s *script) signed(r graspsync.RepoRef, newState bool) []string {
	e, revived, changed := s.l.Sign(s.now, r, newState)
	switch {
	case revived:
		return []string{"revived: " + s.show(e)}
	case changed:
		return []string{s.show(e)}
	}
	return []string{"no change"}
}

func (s *script) expire([]string) (out []string, _ error) {
	for _, e := range s.l.Due(s.now, 1000) {
		soft, isSoft, forgotten := s.l.Expire(s.now, e.ID)
		switch {
		case isSoft:
			out = append(out, s.show(soft))
		case s.l.HasExpired(e.ID, s.now):
			out = append(out, nameOf(e.ID)+" expired, and is remembered")
			s.disk[e.ID] = s.now.Add(s.cfg.Remember)
		default:
			out = append(out, nameOf(e.ID)+" expired")
		}
		for _, id := range forgotten {
			out = append(out, nameOf(id)+" is forgotten")
			delete(s.disk, id)
		}
	}
	if at, ok := s.l.NextDue(); ok {
		return append(out, "next at "+at.Sub(start).String()), nil
	}
	return append(out, "nothing waits"), nil
}

func (s *script) postpone(args []string) ([]string, error) {
	after, err := time.ParseDuration(args[1])
	s.l.Postpone(named(args[0]), start.Add(after))
	return nil, err
}

func (s *script) end(args []string) ([]string, error) {
	s.l.Remove(named(args[0]))
	return nil, nil
}

func (s *script) announcement(args []string) ([]string, error) {
	if e, ok := s.l.Announcement(repoNamed(args[0])); ok {
		return []string{s.show(e)}, nil
	}
	return []string{"none"}, nil
}

func (s *script) of(args []string) ([]string, error) {
	return s.showAll(s.l.Of(repoNamed(args[0]))), nil
}

func (s *script) by(args []string) ([]string, error) {
	return s.showAll(s.l.ByAuthor(repoNamed(args[0]).Owner)), nil
}

func (s *script) list([]string) ([]string, error) {
	return append(s.showAll(s.l.All()), fmt.Sprintf("%d, %d bytes", s.l.Len(), s.l.Bytes())), nil
}

func (s *script) restart([]string) (out []string, _ error) {
	old := s.l.All()
	s.l = New(s.cfg)
	for _, e := range old {
		s.l.Restore(s.now, e)
	}
	for id, until := range s.disk {
		for _, gone := range s.l.RememberExpired(s.now, id, until) {
			delete(s.disk, gone)
		}
	}
	return s.list(nil)
}
