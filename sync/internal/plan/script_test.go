package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// TestScripts plays the scenarios of testdata. A line is a comment (#), an effect of
// the input before (>), or an input at a time after the start:
//
//	config <field>=<number>...             before anything else; every is in ms
//	<time> change [<repo>:<level>:<relay>,...+<relay of others>,...]... [<from>-<to>:<repo>,...]... [^<from>-<to>:<repo>,...]...
//	                                       ^ is for descendants
//	<time> snapshot ...                    the same
//	<time> bootstrap <relay>
//	<time> connected <relay> [subs=n] [filters=n]
//	<time> failed <relay> <retry after>
//	<time> lost <relay> <alive ago> <retry after> [b<n>=<cursor>,...]...
//	<time> done <relay> b<n> complete|gaps|failed|refused|reconciled|disproved [<cursor>,...]
//	<time> liveclosed <relay> l<n> [many|bad|restricted|overflow|bytes]
//	<time> limits <relay> [subs=n] [filters=n] [message=n] [retained=n]
//	<time> named <relay> <from>-<to>
//	<time> unserved <relay> <from>-<to>
//	<time> settled [<ago>]
//	<time> jumped <by>
//	<time> restart [<field>=<number>...]   with what is kept, and another configuration
//	<time> repos
//	<time> changed
//	<time> limited <relay> <for>
//	<time> authors <from>-<to>
//	<time> tick
//	<time> wake                            shows when a tick is due
//	<time> status
//
// Inputs carry the epoch of the last dial, or that of @<n> at their end. A level is
// full, state or none. Times in effects are relative to the start as well.
func TestScripts(t *testing.T) {
	goldentest.Play(t, func(t *testing.T) goldentest.Player {
		s := player{t: t, cfg: defaults(), epochs: make(map[graspsync.RelayURL]uint64)}
		return s.command
	})
}

type player struct {
	t      *testing.T
	cfg    Config
	plan   *Plan
	epochs map[graspsync.RelayURL]uint64
}

var errCommand = errors.New("not a command")

func (s *player) command(words []string) ([]string, error) {
	if words[0] == "config" {
		return nil, s.configure(words[1:])
	}
	if s.plan == nil {
		s.plan = newPlan(s.cfg)
	}
	if len(words) < 2 {
		return nil, errCommand
	}
	after, err := time.ParseDuration(words[0])
	if err != nil {
		return nil, err
	}
	now := start.Add(after)
	switch words[1] {
	case "wake":
		s.plan.wakeAt = time.Time{} // it may be too early
		for _, r := range s.plan.relays {
			s.plan.wake(r, r.wakeAt)
		}
		at, ok := s.plan.NextWake()
		return []string{fmt.Sprint(clock(at), " ", ok)}, nil
	case "status":
		return s.status(), nil
	case "repos":
		return s.repos(), nil
	case "changed":
		return s.changed(), nil
	case "restart":
		in := Restore{Relays: allKept(s.plan)}
		if err := s.configure(words[2:]); err != nil {
			return nil, err
		}
		s.plan = newPlan(s.cfg)
		s.plan.Step(now, in)
		return s.kept(in.Relays), nil
	}
	in, err := s.input(now, words[1], words[2:])
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range s.plan.Step(now, in) {
		if d, ok := e.(Dial); ok {
			s.epochs[d.Relay] = d.Epoch
		}
		out = append(out, show(e))
	}
	return out, nil
}

func (s *player) configure(words []string) error {
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		if name == "every" {
			s.cfg.DialEvery = time.Duration(n) * time.Millisecond
			continue
		}
		field := map[string]*int{
			"dials": &s.cfg.MaxDials, "connections": &s.cfg.MaxConnections, "relays": &s.cfg.MaxRelays,
			"batches": &s.cfg.MaxBatches, "roots": &s.cfg.MaxRoots,
			"authors": &s.cfg.MaxAuthors, "perpass": &s.cfg.AuthorsPerPass,
			"named": &s.cfg.MaxNamed,
		}[name]
		if field == nil {
			return errCommand
		}
		*field = n
	}
	return nil
}

func (s *player) input(now time.Time, verb string, args []string) (Input, error) {
	switch verb {
	case "tick":
		return Tick{}, nil
	case "settled", "jumped":
		by := time.Duration(0)
		if len(args) > 0 {
			var err error
			if by, err = time.ParseDuration(args[0]); err != nil {
				return nil, err
			}
		}
		if verb == "jumped" {
			return ClockJumped{By: by}, nil
		}
		return Settled{At: now.Add(-by)}, nil
	case "change":
		return s.changes(args)
	case "snapshot":
		c, err := s.changes(args)
		return Snapshot(c), err
	case "authors":
		from, to, err := span(args[0])
		var a Authors
		for n := from; n <= to; n++ {
			a = append(a, pubKey(n))
		}
		return a, err
	}
	if len(args) == 0 {
		return nil, errCommand
	}
	u := relayURL(s.t, args[0])
	args = args[1:]
	epoch := s.epochs[u]
	if n := len(args); n > 0 && strings.HasPrefix(args[n-1], "@") {
		e, err := strconv.ParseUint(args[n-1][1:], 10, 64)
		if err != nil {
			return nil, err
		}
		epoch, args = e, args[:n-1]
	}
	return s.relayInput(now, verb, u, epoch, args)
}

func (s *player) relayInput(now time.Time, verb string, u graspsync.RelayURL, epoch uint64, args []string) (Input, error) {
	duration := func(i int) time.Duration {
		d, err := time.ParseDuration(args[i])
		require.NoError(s.t, err)
		return d
	}
	switch verb {
	case "bootstrap":
		return Bootstrap{Relay: u}, nil
	case "connected":
		limits, err := limitsFrom(args)
		return Connected{Relay: u, Epoch: epoch, Limits: limits}, err
	case "limits":
		limits, err := limitsFrom(args)
		return LimitsChanged{Relay: u, Epoch: epoch, Limits: limits}, err
	case "named", "unserved":
		from, to, err := span(args[0])
		var ids []graspsync.EventID
		for n := from; n <= to; n++ {
			ids = append(ids, rootID(n))
		}
		if verb == "named" {
			return Named{Relay: u, IDs: ids}, err
		}
		return Unserved{Relay: u, IDs: ids}, err
	case "failed":
		return DialFailed{Relay: u, Epoch: epoch, RetryAt: now.Add(duration(0))}, nil
	case "lost":
		in := Lost{Relay: u, Epoch: epoch, AliveAt: now.Add(-duration(0)), RetryAt: now.Add(duration(1))}
		in.Cursors = make(map[BatchID][]Cursor)
		for _, a := range args[2:] {
			b, cs, _ := strings.Cut(a, "=")
			in.Cursors[BatchID(s.number(b))] = s.cursors(cs)
		}
		return in, nil
	case "done":
		in := Done{Relay: u, Epoch: epoch, Batch: BatchID(s.number(args[0]))}
		in.Result = map[string]Result{"gaps": Gaps, "failed": Failed, "refused": Refused}[args[1]]
		in.Reconciled, in.Disproved = args[1] == "reconciled", args[1] == "disproved"
		if len(args) > 2 {
			in.Cursors = s.cursors(args[2])
		}
		return in, nil
	case "liveclosed":
		in := LiveClosed{Relay: u, Epoch: epoch, Live: LiveID(s.number(args[0]))}
		if len(args) > 1 {
			in.Why = map[string]wire.Refusal{
				"many": wire.RefusalTooManySubs, "bad": wire.RefusalBadRequest, "restricted": wire.RefusalRestricted,
				"overflow": wire.RefusalOverflow, "bytes": wire.RefusalTooManyBytes,
			}[args[1]]
		}
		return in, nil
	case "limited":
		return RateLimited{Relay: u, Epoch: epoch, Until: now.Add(duration(0))}, nil
	}
	return nil, errCommand
}

// limitsFrom reads the limits that differ from the usual ones.
func limitsFrom(args []string) (relaylimits.Requests, error) {
	limits := usual
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			return limits, err
		}
		*map[string]*int{
			"subs": &limits.MaxSubscriptions, "filters": &limits.MaxFilters, "message": &limits.MaxMessage,
			"retained": &limits.MaxRetained,
		}[name] = n
	}
	return limits, nil
}

// number returns the number in a word such as "b12".
func (s *player) number(word string) uint64 {
	n, err := strconv.ParseUint(word[1:], 10, 64)
	require.NoError(s.t, err)
	return n
}

func (s *player) cursors(words string) (out []Cursor) {
	for _, w := range strings.Split(words, ",") {
		switch w {
		case "-":
			out = append(out, CursorStart)
		case "done":
			out = append(out, CursorDone)
		default:
			d, err := time.ParseDuration(w)
			require.NoError(s.t, err)
			out = append(out, Cursor(start.Add(d).Unix()))
		}
	}
	return out
}

func (s *player) changes(words []string) (c Changes, err error) {
	for _, w := range words {
		w, below := strings.CutPrefix(w, "^")
		parts := strings.Split(w, ":")
		if from, to, err := span(parts[0]); err == nil && below {
			for n := from; n <= to; n++ {
				dc := DescendantChange{Of: filters.Descendant{ID: rootID(10_000 + n)}}
				for _, name := range names(parts[1]) {
					dc.Repos = append(dc.Repos, repoRef(name))
				}
				c.Descendants = append(c.Descendants, dc)
			}
			continue
		}
		if from, to, err := span(parts[0]); err == nil {
			for n := from; n <= to; n++ {
				rc := RootChange{ID: rootID(n), CreatedAt: nostr.Timestamp(n)}
				for _, name := range names(parts[1]) {
					rc.Repos = append(rc.Repos, repoRef(name))
				}
				c.Roots = append(c.Roots, rc)
			}
			continue
		}
		rc := RepoChange{Ref: repoRef(parts[0])}
		rc.Level = map[string]Level{"full": LevelFull, "state": LevelStateOnly}[parts[1]]
		for _, name := range names(parts[2]) {
			rc.Relays = append(rc.Relays, relayURL(s.t, name))
		}
		c.Repos = append(c.Repos, rc)
	}
	return c, nil
}

func names(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func span(word string) (from, to int, err error) {
	a, b, ok := strings.Cut(word, "-")
	if !ok {
		b = a
	}
	from, err = strconv.Atoi(a)
	if err == nil {
		to, err = strconv.Atoi(b)
	}
	return from, to, err
}

func (s *player) status() (out []string) {
	for _, st := range s.plan.Status() {
		line := fmt.Sprintf("%s %s: %d wanted = %d todo + %d in flight + %d confirmed; live %d/%d",
			short(st.Relay), st.Phase, st.Wanted, st.Wanted-st.InFlight-st.Confirmed, st.InFlight, st.Confirmed,
			st.LiveSubs, st.LiveFilters)
		if st.Unfollowed > 0 {
			line += fmt.Sprintf(" unfollowed=%d", st.Unfollowed)
		}
		if st.LiveMethod != LiveAll {
			line += " " + st.LiveMethod.String()
		}
		if st.Descendants > 0 {
			polled := 0
			for _, g := range s.plan.relays[st.Relay].live.poll.groups {
				if g.tier == threadTier {
					polled += len(g.items)
				}
			}
			line += fmt.Sprintf(" descendants=%d/%d", max(0, st.Descendants-polled), st.Descendants)
		}
		if n := len(s.plan.relays[st.Relay].byID.known); n > 0 {
			line += fmt.Sprintf(" named=%d", n)
		}
		if st.Gaps > 0 {
			line += fmt.Sprintf(" gaps=%d", st.Gaps)
		}
		if st.Parked > 0 {
			line += fmt.Sprintf(" parked=%d", st.Parked)
		}
		out = append(out, line)
	}
	return out
}

func (s *player) repos() (out []string) {
	for _, ref := range s.plan.Refs() {
		st, _ := s.plan.RepoStatus(ref)
		line := fmt.Sprintf("%s: %d roots; %d wanted, %d in flight, %d confirmed",
			st.Ref.Identifier, st.Roots, st.Wanted, st.InFlight, st.Confirmed)
		for _, on := range st.Relays {
			line += fmt.Sprintf("; %s %d/%d/%d", short(on.Relay), on.Wanted, on.InFlight, on.Confirmed)
		}
		out = append(out, line)
	}
	return out
}

func (s *player) changed() (out []string) {
	for _, u := range sortedBy(s.plan.Changed(time.Hour), graspsync.RelayURL.Compare) {
		out = append(out, short(u)+" changed")
	}
	return append(out, s.kept(allKept(s.plan))...)
}

func (s *player) kept(relays []Kept) (out []string) {
	for _, k := range relays {
		out = append(out, fmt.Sprintf("kept %s: %d items at %s, pass at %s", short(k.Relay), len(k.Items), clock(k.Mark), clock(k.PassAt)))
	}
	return out
}

func short(u graspsync.RelayURL) string {
	return strings.TrimSuffix(strings.TrimPrefix(u.String(), "wss://"), ".example")
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Sub(start).String()
}
