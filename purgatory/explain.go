package purgatory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/recently"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/hunt"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// EventExplanation says what purgatory knows of one event. String has it in sentences.
type EventExplanation struct {
	Now time.Time         `json:"now"` // when this was so
	ID  graspsync.EventID `json:"id"`
	// Is what became of it: "waits", "expired softly" (an announcement that a new state revives),
	// the text of a [Fate], "refused" by Submit, or "unknown".
	Is  string `json:"is"`
	Why string `json:"why,omitempty"` // of what was refused
	// At is when that was, zero if it is not remembered.
	At     time.Time           `json:"at,omitzero"`
	Class  string              `json:"class,omitempty"` // as in [EntryStatus]
	Repos  []graspsync.RepoRef `json:"repos,omitempty"`
	ByUser bool                `json:"by_user"`
	// Since when it waits, and until when at least, of what does.
	Since    time.Time `json:"since,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"`
	// Data is what the repositories of one that waits lack; of one that has waited in vain just who was asked.
	Data []RepoExplanation `json:"data,omitempty"`
}

// What an event is besides a [Fate].
const (
	isWaiting = "waits"
	isSoft    = "expired softly"
	isRefused = "refused"
	isUnknown = "unknown"
)

// RepoExplanation says what a repository lacks, and what is done about it. String has it in
// sentences.
type RepoExplanation struct {
	Now time.Time         `json:"now"`
	Ref graspsync.RepoRef `json:"ref"`
	// Missing are git objects that it lacks, as of the last look, up to 20; More is how many
	// there are besides.
	Missing []MissingObject `json:"missing,omitempty"`
	More    int             `json:"more,omitempty"`
	// Servers are where they may be had; where something was given up, also who was asked for that, as far as
	// it is remembered, which is not over restarts.
	Servers []ServerExplanation `json:"servers,omitempty"`
	// Attempts to get them did not complete, in a row; the next one is due at Next, or Running.
	Attempts int       `json:"attempts"`
	Running  bool      `json:"running"`
	Next     time.Time `json:"next,omitzero"`
	// Waiting are events that wait for it, up to 20.
	Waiting []EntryStatus `json:"waiting,omitempty"`
	// Ended are those that have ceased to wait, the newest first, up to 20.
	Ended []EventExplanation `json:"ended,omitempty"`
	// GivenUp are those that waited in vain, before a restart too, and are not taken from other relays
	// for a week, the newest first, up to 20. Untold is how many more there are, of whatever repository:
	// of which they were is not remembered.
	GivenUp []EventExplanation `json:"given_up,omitempty"`
	Untold  int                `json:"untold,omitempty"`
}

// MissingObject is a git object that is not here.
type MissingObject struct {
	ID string `json:"id"`
	// For is what names it: refs of states that wait, pull requests; up to 3. None: a state that
	// is served does.
	For []string `json:"for,omitempty"`
}

// ServerExplanation is what one clone URL was asked and said.
type ServerExplanation struct {
	URL graspsync.CloneURL `json:"url"`
	// Asked is when it was asked last, and Answer what it said; zero if it was not, or that is
	// not remembered.
	Asked  time.Time `json:"asked,omitzero"`
	Answer string    `json:"answer,omitempty"`
	// Passed is why it was not asked after that although it was its turn.
	Passed string `json:"passed,omitempty"`
	Asking bool   `json:"asking"` // now
	Queued bool   `json:"queued"` // it is asked for other repositories before
	// Until it is not asked, since it failed, or was asked too often.
	Until time.Time `json:"until,omitzero"`
}

const (
	mostMissing  = 20
	mostFor      = 3
	mostListed   = 20
	mostServers  = 64    // as far as it is asked for what was given up
	mostRemember = 1_000 // of what has ended, or was refused, for each reason
	endings      = 40    // reasons
)

// ending is how an event ceased to wait, or why it was not let in.
type ending struct {
	id     graspsync.EventID
	class  ledger.Class
	repos  []graspsync.RepoRef
	more   bool // there were more, which are not remembered
	byUser bool
	is     string
	why    string
	since  time.Time
	at     time.Time
}

type memoryOfEndings = recently.Log[string, ending]

func newEndings() *memoryOfEndings { return recently.New[string, ending](mostRemember, endings) }

// explainer answers people who ask why something waits, or does not. It changes nothing.
type explainer struct {
	cfg      *Config
	waiting  *waiting
	entries  *entries
	findings *findings
	endings  *memoryOfEndings
	answers  *answers
	ask      func(ctx context.Context, question func(e *engine)) error
}

// event is [Purgatory.ExplainEvent].
func (x *explainer) event(ctx context.Context, id graspsync.EventID) (EventExplanation, error) {
	now := time.Now()
	out := EventExplanation{Now: now, ID: id, Is: isUnknown}
	e, waits := x.waiting.get(id)
	if !waits {
		x.ended(&out)
		return out, x.asked(ctx, &out)
	}
	out.Is = isWaiting
	if e.Soft {
		out.Is = isSoft
	}
	out.Class, out.Repos, out.ByUser, out.Since, out.Deadline = e.Class.String(), slices.Clone(e.Repos), e.ByUser, e.Seen, e.Deadline
	if e.Soft {
		return out, nil
	}
	for _, ref := range e.Repos {
		r, err := x.repo(ctx, ref)
		if err != nil {
			return EventExplanation{}, err
		}
		r.Waiting, r.Ended, r.GivenUp, r.Untold = nil, nil, nil, 0
		out.Data = append(out.Data, r)
	}
	return out, nil
}

// asked adds who was asked for what an event has waited for in vain, as far as that is remembered.
func (x *explainer) asked(ctx context.Context, out *EventExplanation) error {
	if out.Is != Expired.String() {
		return nil
	}
	for _, ref := range out.Repos {
		r, err := x.repo(ctx, ref)
		if err != nil {
			return err
		}
		if len(r.Servers) > 0 {
			out.Data = append(out.Data, RepoExplanation{Now: r.Now, Ref: ref, Servers: r.Servers})
		}
	}
	return nil
}

// ended says how an event ceased to wait.
func (x *explainer) ended(out *EventExplanation) {
	var last ending
	x.endings.Each(func(_ string, n ending) {
		if n.id == out.ID && n.at.After(last.at) {
			last = n
		}
	})
	switch {
	case !last.at.IsZero():
		last.explain(out)
	case x.waiting.hasExpired(out.ID):
		out.Is = Expired.String()
	}
}

func (n ending) explain(out *EventExplanation) {
	out.ID, out.Is, out.Why, out.At, out.Class = n.id, n.is, n.why, n.at, n.class.String()
	out.Repos, out.ByUser, out.Since = slices.Clone(n.repos), n.byUser, n.since
}

// repo is [Purgatory.ExplainRepo].
func (x *explainer) repo(ctx context.Context, ref graspsync.RepoRef) (RepoExplanation, error) {
	now := time.Now()
	out := RepoExplanation{Now: now, Ref: ref}
	need := x.findings.lacked(ref)
	entries := x.waiting.of(ref)
	names := x.names(entries)
	for _, id := range need.IDs[:min(len(need.IDs), mostMissing)] {
		out.Missing = append(out.Missing, MissingObject{ID: id.String(), For: names[id.String()]})
	}
	out.More = len(need.IDs) - len(out.Missing)
	for _, e := range entries[:min(len(entries), mostListed)] {
		out.Waiting = append(out.Waiting, x.entries.status(e))
	}
	out.Ended = x.endedOf(now, ref)
	out.GivenUp, out.Untold = x.givenUp(now, ref)
	var about hunt.About
	var patient time.Time
	err := x.ask(ctx, func(e *engine) { about, patient = e.queue.About(now, ref), e.patient[ref].until })
	if errors.Is(err, errNotRunning) {
		about = hunt.About{}
	} else if err != nil {
		return RepoExplanation{}, fmt.Errorf("explaining %s: %w", graspsync.Printable(ref.String()), err)
	}
	out.Attempts, out.Running, out.Next = about.Attempts, about.Running, about.Due
	if out.Running {
		out.Next = time.Time{}
	}
	if !about.Waits && patient.After(now) && len(need.IDs) > 0 {
		out.Next = patient
	}
	urls := need.URLs()
	if len(out.GivenUp) > 0 {
		for _, u := range x.answers.from(ref) {
			if len(urls) < mostServers && !slices.Contains(urls, u) {
				urls = append(urls, u)
			}
		}
	}
	for _, u := range urls {
		out.Servers = append(out.Servers, x.server(now, ref, u, about.Servers[u]))
	}
	return out, nil
}

// server is what is known of one URL.
func (x *explainer) server(now time.Time, ref graspsync.RepoRef, u graspsync.CloneURL, is hunt.AboutServer) ServerExplanation {
	a := x.answers.of(ref, u)
	s := ServerExplanation{URL: u, Asked: a.at, Answer: a.text, Asking: is.Asking, Queued: is.Queued}
	if a.passedAt.After(a.at) {
		s.Passed = a.passed
	}
	for _, until := range []time.Time{is.BrokenUntil, is.Opens} {
		if until.After(now) && until.After(s.Until) {
			s.Until = until
		}
	}
	return s
}

// names says what names the objects that events wait for.
func (x *explainer) names(entries []ledger.Entry) map[string][]string {
	out := make(map[string][]string)
	add := func(id, name string) {
		if len(out[id]) < mostFor {
			out[id] = append(out[id], graspsync.Printable(name))
		}
	}
	for _, e := range entries {
		switch e.Class { //nolint:exhaustive // the others name no objects
		case ledger.State:
			s := e.State
			refs := make([]string, 0, len(s.Refs))
			for name := range s.Refs {
				refs = append(refs, name.String())
			}
			slices.Sort(refs)
			for _, name := range refs {
				if ref, err := nip34.ParseRefName(name); err == nil {
					add(s.Refs[ref].String(), name)
				}
			}
		case ledger.PullRequest:
			add(e.Pull.Tip.String(), "pull request "+e.ID.String())
		}
	}
	return out
}

// endedOf returns what has ceased to wait for a repository.
func (x *explainer) endedOf(now time.Time, ref graspsync.RepoRef) (out []EventExplanation) {
	var all []ending
	x.endings.Each(func(_ string, n ending) {
		if slices.Contains(n.repos, ref) {
			all = append(all, n)
		}
	})
	slices.SortStableFunc(all, func(a, b ending) int { return b.at.Compare(a.at) })
	for _, n := range all[:min(len(all), mostListed)] {
		e := EventExplanation{Now: now}
		n.explain(&e)
		out = append(out, e)
	}
	return out
}

// gaveUp returns all events that are known to have waited for a repository in vain, and still count as such.
func (x *explainer) gaveUp(ref graspsync.RepoRef) (ids []graspsync.EventID) {
	seen := make(map[graspsync.EventID]bool)
	x.endings.Each(func(is string, n ending) {
		if is == Expired.String() && !seen[n.id] && slices.Contains(n.repos, ref) && x.waiting.hasExpired(n.id) {
			seen[n.id] = true
			ids = append(ids, n.id)
		}
	})
	return ids
}

// givenUp returns what has waited for a repository in vain, and of how much it is not remembered for which
// one it did.
func (x *explainer) givenUp(now time.Time, ref graspsync.RepoRef) (out []EventExplanation, untold int) {
	told := make(map[graspsync.EventID]bool)
	untold = x.waiting.countExpired()
	x.endings.Each(func(is string, n ending) { // the newest first
		if is != Expired.String() || told[n.id] || !x.waiting.hasExpired(n.id) {
			return
		}
		told[n.id] = true
		if !n.more {
			untold--
		}
		if slices.Contains(n.repos, ref) && len(out) < mostListed {
			e := EventExplanation{Now: now}
			n.explain(&e)
			out = append(out, e)
		}
	})
	return out, max(untold, 0)
}

// String says it in sentences, a line for each; nothing for an event that purgatory never met.
func (x EventExplanation) String() string { return strings.Join(x.Sentences(), "\n") }

// Sentences says what the event waits for, or how that ended, for people.
func (x EventExplanation) Sentences() (lines []string) {
	at := func(t time.Time) string { return graspsync.TimeText(t, x.Now) }
	what := "It"
	if x.Class != "" {
		what = "The " + x.Class
	}
	switch x.Is {
	case isUnknown:
		return nil
	case isWaiting:
		by := "sync brought it"
		if x.ByUser {
			by = "a client submitted it"
		}
		lines = append(lines, fmt.Sprintf("%s waits for git data since %s, %s; %s.", what, at(x.Since), until(x.Deadline, x.Now), by))
		for _, r := range x.Data {
			lines = append(lines, r.data(true)...)
		}
		return lines
	case isSoft:
		return []string{inVain(what, x.Deadline, x.Now)}
	case isRefused:
		lines = append(lines, what+" was not let in to wait for git data: "+x.Why+".")
	case Expired.String():
		lines = append(lines, what+" has waited for git data in vain. A client may submit it again; from other relays it is not taken for a week.")
	case Released.String():
		lines = append(lines, what+" has waited for git data, which is here: it was released.")
	case NotStored.String():
		lines = append(lines, what+" has waited for git data, and was refused by the relay when that was here.")
	default:
		lines = append(lines, what+" waits for git data no longer: it is "+x.Is+".")
	}
	if !x.At.IsZero() {
		lines = append(lines, "That was at "+at(x.At)+".")
	}
	for _, r := range x.Data {
		for _, s := range r.Servers {
			lines = append(lines, s.sentence(x.Now))
		}
	}
	return lines
}

// inVain says of an announcement that has expired softly what has it wait again.
func inVain(what string, until, now time.Time) string {
	return fmt.Sprintf("%s has waited for git data in vain; until %s a new state of one of its maintainers, or submitting it again, has it wait again.",
		what, graspsync.TimeText(until, now))
}

// until says how long something waits: it may be let wait for longer when its time is over.
func until(deadline, now time.Time) string {
	if deadline.After(now) {
		return "until " + graspsync.TimeText(deadline, now) + " at least"
	}
	return "for longer than it has to"
}

// String says it in sentences, a line for each.
func (x RepoExplanation) String() string { return strings.Join(x.Sentences(), "\n") }

// Sentences says what the repository lacks, and what is done about it, for people.
func (x RepoExplanation) Sentences() []string {
	lines := x.data(slices.ContainsFunc(x.Waiting, func(e EntryStatus) bool { return !e.Soft }))
	for _, e := range x.Waiting {
		if e.Soft {
			lines = append(lines, inVain(e.Class+" "+e.ID, e.Deadline, x.Now))
			continue
		}
		lines = append(lines, fmt.Sprintf("%s %s waits, %s.", e.Class, e.ID, until(e.Deadline, x.Now)))
	}
	for _, e := range x.Ended[:min(len(x.Ended), 5)] {
		line := fmt.Sprintf("%s %s waits no longer: %s at %s", e.Class, e.ID, e.Is, graspsync.TimeText(e.At, x.Now))
		if e.Why != "" {
			line += ": " + e.Why
		}
		lines = append(lines, line+".")
	}
	return lines
}

// whole says of a repository that lacks nothing that this is known of what is served only, if more was wanted.
func (x RepoExplanation) whole(repo string) (lines []string) {
	if len(x.GivenUp)+x.Untold == 0 {
		return []string{"No git data of " + repo + " is missing: all that its states and pull requests name is here, as of the last look."}
	}
	known := "What is served of " + repo + " has its git data, as of the last look."
	if slices.ContainsFunc(x.Waiting, func(e EntryStatus) bool { return e.Soft }) {
		known = "Nothing of " + repo + " is hunted for any more."
	}
	lines = append(lines, known)
	for i, e := range x.GivenUp {
		if i == 5 {
			more := fmt.Sprint(len(x.GivenUp) - i)
			if len(x.GivenUp) == mostListed {
				more = "At least " + more
			}
			lines = append(lines, more+" more were given up.")
			break
		}
		lines = append(lines, fmt.Sprintf("%s %s was given up at %s: its git data never came, and it is not served.", e.Class, e.ID, graspsync.TimeText(e.At, x.Now)))
	}
	for _, s := range x.Servers {
		lines = append(lines, s.sentence(x.Now))
	}
	if x.Untold > 0 {
		lines = append(lines, fmt.Sprintf("Whether more of it was given up is not known: of %d that were, the repository is not remembered.", x.Untold))
	}
	return lines
}

// data says which objects are missing, and who was asked. waits says that something waits for them.
func (x RepoExplanation) data(waits bool) (lines []string) {
	repo := graspsync.Printable(nip34.NPub(x.Ref.Owner) + "/" + x.Ref.Identifier)
	if len(x.Missing) == 0 {
		if waits && len(x.Waiting) > 0 && !slices.ContainsFunc(x.Waiting, func(e EntryStatus) bool { return e.Class != ledger.Announcement.String() }) {
			return []string{"Nothing but its announcement waits: " + repo +
				" is served once a state of it (kind 30618) is here, and what that names was pushed to us or fetched."}
		}
		if waits || len(x.Servers) > 0 && len(x.GivenUp)+x.Untold == 0 {
			line := "No git object of " + repo + " is known to be missing: what waits is waiting to be looked at, or for somebody to have a say."
			if slices.ContainsFunc(x.Waiting, func(e EntryStatus) bool { return e.Class == ledger.PullRequest.String() }) {
				line += " A pull request also waits while there is no room for its ref. It is judged again when there is."
			}
			return []string{line}
		}
		return x.whole(repo)
	}
	for i, m := range x.Missing {
		if i == 5 {
			break
		}
		line := "It waits for git object " + m.ID
		if len(m.For) > 0 {
			line += " of " + strings.Join(m.For, ", ")
		}
		lines = append(lines, line+".")
	}
	if more := len(x.Missing) - 5 + x.More; more > 0 {
		lines = append(lines, fmt.Sprintf("%d more git objects are missing.", more))
	}
	if len(x.Servers) == 0 {
		lines = append(lines, "Nobody can be asked for it: no clone URL that can be used leads to another server. It has to be pushed to us.")
	}
	for _, s := range x.Servers {
		lines = append(lines, s.sentence(x.Now))
	}
	switch {
	case x.Running:
		lines = append(lines, "An attempt to get it is under way.")
	case !x.Next.IsZero() && len(x.Servers) > 0:
		line := "The first attempt to get it is at " + graspsync.TimeText(x.Next, x.Now)
		if x.Attempts > 0 {
			line = fmt.Sprintf("The next attempt to get it is at %s; %d in a row did not get everything", graspsync.TimeText(x.Next, x.Now), x.Attempts)
		}
		lines = append(lines, line+".")
	}
	return lines
}

func (s ServerExplanation) sentence(now time.Time) string {
	line := s.URL.String() + " was not asked yet"
	if !s.Asked.IsZero() {
		line = fmt.Sprintf("asked %s at %s: %s", s.URL, graspsync.TimeText(s.Asked, now), s.Answer)
	}
	if s.Passed != "" {
		line += "; not asked since then: " + s.Passed
	}
	switch {
	case s.Asking:
		line += "; it is being asked now"
	case !s.Until.IsZero():
		line += "; not asked again before " + graspsync.TimeText(s.Until, now)
	case s.Queued:
		line += "; it is asked for other repositories before"
	}
	return line + "."
}
