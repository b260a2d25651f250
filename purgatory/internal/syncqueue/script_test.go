package syncqueue

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/goldentest"
)

// TestScripts runs the scenarios of testdata. A line is a comment (#), an effect of the input
// before (>), or an input at a time after the start:
//
//	config <field>=<number>...      before anything else
//	<time> wanted <repo> sync|user <host>/<path>...
//	<time> settled <repo>
//	<time> fetched f<n> complete|partial|nothing|broken [<pause>|more]
//	<time> tick
//	<time> wake                     shows when a tick is due
//
// Times in effects are also relative to the start.
func TestScripts(t *testing.T) {
	goldentest.Play(t, func(*testing.T) goldentest.Player {
		s := script{cfg: config()}
		return s.command
	})
}

type script struct {
	cfg Config
	q   *SyncQueue
}

var errCommand = errors.New("not a command")

func (s *script) command(words []string) ([]string, error) {
	if words[0] == "config" {
		return nil, s.configure(words[1:])
	}
	if s.q == nil {
		s.q = New(s.cfg)
	}
	if len(words) < 2 {
		return nil, errCommand
	}
	after, err := time.ParseDuration(words[0])
	if err != nil {
		return nil, err
	}
	now := start.Add(after)
	if words[1] == "wake" {
		at, ok := s.q.NextWake()
		if !ok {
			return []string{"never"}, nil
		}
		return []string{at.Sub(start).String()}, nil
	}
	in, err := s.input(words[1], words[2:])
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range s.q.Step(now, in) {
		out = append(out, show(e))
	}
	return out, nil
}

func (s *script) configure(words []string) error {
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		field := map[string]*int{
			"attempts": &s.cfg.MaxFetchJobs, "repos": &s.cfg.MaxRepos,
			"concurrent": &s.cfg.DefaultLimit.Concurrent, "minute": &s.cfg.DefaultLimit.PerMinute,
		}[name]
		if field == nil {
			return errCommand
		}
		*field = n
	}
	return nil
}

func (s *script) input(verb string, args []string) (Input, error) {
	switch {
	case verb == "tick":
		return Tick{}, nil
	case verb == "settled" && len(args) == 1:
		return NothingMissing{graspsync.RepoRef{Identifier: args[0]}}, nil
	case verb == "wanted" && len(args) >= 2:
		in := Incomplete{Repo: graspsync.RepoRef{Identifier: args[0]}, Fresh: true}
		if args[1] == "user" {
			in.Origin = ByUser
		}
		for _, a := range args[2:] {
			u, err := graspsync.ParseCloneURL("https://" + a)
			if err != nil {
				return nil, err
			}
			in.MemberURLs = append(in.MemberURLs, u)
		}
		return in, nil
	case verb == "fetched" && len(args) >= 2:
		id, err := strconv.Atoi(strings.TrimPrefix(args[0], "f"))
		o, ok := map[string]Outcome{"complete": Complete, "partial": Partial, "nothing": Nothing, "broken": Broken}[args[1]]
		if !ok {
			return nil, errCommand
		}
		in := Fetched{ID: RequestID(id), Outcome: o}
		switch {
		case len(args) == 3 && args[2] == "more":
			in.More = true
		case len(args) == 3:
			pause, perr := time.ParseDuration(args[2])
			in.Pause, err = pause, errors.Join(err, perr)
		}
		return in, err
	}
	return nil, errCommand
}

func show(e Effect) string {
	switch e := e.(type) {
	case Fetch:
		return fmt.Sprintf("f%d %s %s", e.ID, e.Repo.Identifier, strings.TrimPrefix(e.URL.String(), "https://"))
	case Dropped:
		return "dropped " + e.Repo.Identifier
	}
	return "?"
}
