package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	relaysync "github.com/graspsync/graspsync/sync"
)

type text struct {
	now   time.Time
	lines []string
}

// first adds the first sentence about a subject.
func (t *text) first(kind, is, name, why string) {
	t.add(answers[kind+" "+is][2], name, why)
}

func (t *text) add(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

func (t *text) at(when time.Time) string { return graspsync.TimeText(when, t.now) }

const named = 5

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func repoName(ref graspsync.RepoRef) string {
	return graspsync.Printable(nip34.NPub(ref.Owner) + "/" + ref.Identifier)
}

func reason(s relaysync.EventState) string {
	if s.Reason+s.Detail == "" {
		return "there is no record of the reason"
	}
	return graspsync.Verdict{Reason: s.Reason, Detail: s.Detail}.Message()
}

func (t *text) event(s relaysync.EventState, st relaysync.Status) {
	id := "Event " + s.ID.String()
	if s.Event != nil && s.Event.Kind > 0 {
		id += fmt.Sprintf(" (kind %d)", s.Event.Kind)
	}
	if s.Is == relaysync.IsUnknown {
		t.unknown(id, s, st)
	} else {
		t.first("event", string(s.Is), id, reason(s))
	}
	t.arrived(s)
	if s.Again && s.Is == relaysync.IsRejected {
		if strings.HasPrefix(s.Reason, "blocked: announcement") {
			t.add("A newer announcement that lists this server is accepted. This one is accepted when a stored announcement lists its author as a maintainer.")
		} else {
			t.add("It is judged again when one of its dependencies changes.")
		}
	}
}

func (t *text) unknown(id string, s relaysync.EventState, st relaysync.Status) {
	switch {
	case s.Reason != "":
		t.add("Whether %s is stored is unknown: %s. Ask again later.", id, reason(s))
	case s.Since.IsZero():
		t.add("%s is not stored, and there is no record of it, because older records were evicted. Ask about its repository, or submit the event again.", id)
	default:
		t.add("%s is not stored, and never arrived since the start at %s. Ask about its repository, or submit the event again.", id, t.at(s.Since))
	}
	t.incomplete(st)
}

func (t *text) arrived(s relaysync.EventState) {
	switch {
	case s.Is == relaysync.IsRemoved:
	case !s.Relay.IsZero():
		t.add("It came from %s.", s.Relay)
	case s.Source == graspsync.Direct.String():
		t.add("It came from a client.")
	}
	if !s.At.IsZero() {
		t.add("That was at %s.", t.at(s.At))
	}
}

func (t *text) incomplete(st relaysync.Status) {
	var rest []relaysync.RelayStatus
	for _, r := range st.Relays {
		if !r.Synced {
			rest = append(rest, r)
		}
	}
	all := plural(len(st.Relays), "relay is followed", "relays are followed")
	switch {
	case st.Unread:
		t.add("The store was not read yet%s. No relay is followed before that.", failed(st))
	case len(st.Relays) == 0:
		t.add("No relay is followed: no repository of this server lists one, and there are no bootstrap relays.")
	case len(rest) == 0:
		t.add("%s, and all requests to them are complete.", all)
	default:
		t.add("%s. The requests to %d of them are not complete:", all, len(rest))
	}
	for _, r := range rest[:min(len(rest), named)] {
		line := "  " + r.URL.String() + " is " + r.Phase
		if r.LastError != "" && !r.Connected() {
			line += ": " + r.LastError
		}
		t.add("%s.", line)
	}
}

func failed(st relaysync.Status) string {
	if st.StoreError == "" {
		return ""
	}
	return " (the last attempt failed: " + st.StoreError + ")"
}

func (t *text) repo(s relaysync.RepoFollowState, st relaysync.Status) {
	repo := "Repository " + repoName(s.Ref)
	why := cmp.Or(s.Reason, "there is no record of the reason")
	switch s.Is { //nolint:exhaustive // the others have a reason
	case relaysync.RepoDeleted:
		why = s.DeletedBy.String()
	case relaysync.RepoStarting:
		why = failed(st)
	}
	t.first("repository", string(s.Is), repo, why)
	switch {
	case s.Is == relaysync.RepoFollowed && s.Status != nil && s.Status.Level != "full":
		t.add("Its git data has just arrived. Its other events are requested within seconds.")
	case s.Is == relaysync.RepoUnknown:
		t.add("Its announcement must list %s as relay and %s as clone URL.", s.Want[0], s.Want[1])
	}
	if a := s.Announcement; a != nil {
		t.add("Its announcement is %s, %s.", a.ID, a.Is)
		t.arrived(*a)
	}
	if s.Status != nil {
		t.repoStatus(s.Status)
	} else if s.Is == relaysync.RepoUnknown {
		t.incomplete(st)
	}
	if s.Waiting > 0 {
		t.add("%s for its announcement.", plural(s.Waiting, "event waits", "events wait"))
	}
}

func (t *text) repoStatus(r *relaysync.RepoStatus) {
	t.add("Stored: %s of it.", plural(r.Roots, "patch, pull request or issue", "patches, pull requests and issues"))
	if len(r.Relays) == 0 {
		t.add("It is followed at no relay because its announcement lists no other relay that may be followed.")
	}
	for _, rel := range r.Relays {
		t.add("%s is %s: %d of %d items are complete.", rel.URL, rel.Phase, rel.Confirmed, rel.Wanted)
	}
	for _, line := range maintainers(*r) {
		t.add("Maintainers: %s", line)
	}
}

func (t *text) relay(s relaysync.RelayFollowState, st relaysync.Status) {
	switch s.Is { //nolint:exhaustive // the others have nothing else
	case relaysync.RelayFollowed:
		t.first("relay", string(s.Is), s.URL.String(), whyFollowed(s.Status))
		t.relayStatus(s.Status)
		return
	case relaysync.RelayUnread:
		t.first("relay", string(s.Is), s.URL.String(), failed(st))
	default:
		t.first("relay", string(s.Is), s.URL.String(), "")
	}
	if s.Listed > 0 && s.Is != relaysync.RelayOurs {
		t.add("%s it.", plural(s.Listed, "repository lists", "repositories list"))
	}
	for _, r := range st.Relays { // another scheme or path
		if r.URL.HostPort() == s.URL.HostPort() {
			t.add("%s is followed.", r.URL)
		}
	}
}

func whyFollowed(r *relaysync.RelayStatus) (why string) {
	if r.Bootstrap {
		why = " as a bootstrap relay"
	}
	if r.Repos > 0 {
		var names []string
		for _, ref := range r.Examples {
			names = append(names, repoName(ref))
		}
		why += fmt.Sprintf(" for %s: %s", plural(r.Repos, "repository", "repositories, such as"), strings.Join(names, ", "))
	}
	return why
}

func (t *text) relayStatus(r *relaysync.RelayStatus) {
	phase := r.Phase
	if trouble := Trouble(*r); trouble != "" {
		phase += " (" + trouble + ")"
	}
	t.add("It is %s: %d of %d items are complete, %d in flight.", phase, r.Confirmed, r.Wanted, r.InFlight)
	if r.LastError != "" {
		t.add("The last error: %s.", r.LastError)
	}
	if !r.NextAttempt.IsZero() {
		t.add("The next attempt is at %s.", t.at(r.NextAttempt))
	}
	if !r.RateLimitedUntil.IsZero() {
		t.add("No request is sent before %s.", t.at(r.RateLimitedUntil))
	}
}

// ended are the sentences about an event that is not in purgatory any more. [1] is its class.
var ended = map[purgatory.EventCode]string{
	purgatory.EventCode(purgatory.Expired.String()):   "%s expired before its git data arrived. Clients may submit it again. Copies from other relays are ignored for a week.",
	purgatory.EventCode(purgatory.Released.String()):  "%s was released when its git data arrived.",
	purgatory.EventCode(purgatory.NotStored.String()): "%s was refused by the relay when its git data arrived.",
}

func (t *text) held(s purgatory.EventState) {
	what := "It"
	if s.Class != "" {
		what = "The " + s.Class
	}
	sentence, is := ended[s.Is]
	switch {
	case s.Is == purgatory.IsUnknown:
		return
	case s.Is == purgatory.IsWaiting:
		by := "sync brought it"
		if s.ByUser {
			by = "a client submitted it"
		}
		t.add("%s waits for git data since %s, %s; %s.", what, t.at(s.Since), t.until(s.Deadline), by)
		for _, d := range s.Data {
			t.data(d, true)
		}
		return
	case s.Is == purgatory.IsSoft:
		t.soft(what, s.Deadline)
		return
	case s.Is == purgatory.IsNotHeld:
		t.add("%s may not wait for git data: %s.", what, s.Reason)
	case is:
		t.add(sentence, what)
	default:
		t.add("%s does not wait for git data any more: it is %s.", what, s.Is)
	}
	if !s.At.IsZero() {
		t.add("That was at %s.", t.at(s.At))
	}
	for _, d := range s.Data {
		t.servers(d.Servers)
	}
}

func (t *text) soft(what string, until time.Time) {
	t.add("%s expired before its git data arrived. Until %s a new state of a maintainer, or submitting it again, has it wait again.", what, t.at(until))
}

func (t *text) until(deadline time.Time) string {
	if deadline.After(t.now) {
		return "until " + t.at(deadline) + " at least"
	}
	return "and may expire now"
}

func (t *text) repoData(s purgatory.DataState, st *relaysync.RepoStatus) {
	isMember := func(e purgatory.EntryStatus) bool {
		return st != nil && slices.ContainsFunc(st.Maintainers, func(m nip34.Person) bool {
			return m.Key.String() == e.Author && (m.Kind == nip34.Root || m.Kind == nip34.Member)
		})
	}
	t.data(s, slices.ContainsFunc(s.Waiting, func(e purgatory.EntryStatus) bool { return !e.Soft }))
	for _, members := range []bool{true, false} { // strangers could hide the entries of members
		for _, e := range s.Waiting {
			switch {
			case isMember(e) != members:
			case e.Soft:
				t.soft(e.Class+" "+e.ID, e.Deadline)
			default:
				t.add("%s %s waits, %s.", e.Class, e.ID, t.until(e.Deadline))
			}
		}
	}
	for _, e := range s.Ended[:min(len(s.Ended), named)] {
		t.add("%s %s does not wait any more: %s at %s. %s", e.Class, e.ID, e.Is, t.at(e.At), e.Reason)
	}
}

// waits reports whether an event waits for the objects.
func (t *text) data(s purgatory.DataState, waits bool) {
	if len(s.Missing) == 0 {
		t.nothingMissing(s, waits)
		return
	}
	for _, m := range s.Missing[:min(len(s.Missing), named)] {
		of := ""
		if len(m.For) > 0 {
			of = " of " + strings.Join(m.For, ", ")
		}
		t.add("It waits for git object %s%s.", m.ID, of)
	}
	if more := len(s.Missing) - named + s.More; more > 0 {
		t.add("%d more git objects are missing.", more)
	}
	t.servers(s.Servers)
	switch {
	case len(s.Servers) == 0:
		t.add("No other git server can be asked, because no usable clone URL names one. The data has to be pushed to this server.")
	case s.Running:
		t.add("An attempt to get it is running.")
	case !s.Next.IsZero():
		t.add("The next attempt to get it is at %s; %d in a row did not get everything.", t.at(s.Next), s.Attempts)
	}
}

func (t *text) nothingMissing(s purgatory.DataState, waits bool) {
	repo := repoName(s.Ref)
	isOther := func(e purgatory.EntryStatus) bool { return e.Class != "announcement" }
	isSoft := func(e purgatory.EntryStatus) bool { return e.Soft }
	switch {
	case waits && len(s.Waiting) > 0 && !slices.ContainsFunc(s.Waiting, isOther):
		t.add("Only the announcement of %s waits. The repository is served when a state of it (kind 30618) arrives, and the git data that the state names.", repo)
		return
	case waits || len(s.Servers) > 0 && len(s.GivenUp) == 0:
		t.add("No git object of %s is known to be missing. Its events wait to be examined, for their author to become a maintainer, or for room for the ref of a pull request.", repo)
		return
	case len(s.GivenUp) == 0:
		t.add("No git data of %s is missing: all objects that its states and pull requests name are stored.", repo)
		return
	case slices.ContainsFunc(s.Waiting, isSoft):
		t.add("No git data of %s is requested any more.", repo)
	default:
		t.add("The git data of the served events of %s is stored.", repo)
	}
	for _, e := range s.GivenUp[:min(len(s.GivenUp), named)] {
		t.add("%s %s was given up at %s: its git data never arrived, and it is not served.", e.Class, e.ID, t.at(e.At))
	}
	t.servers(s.Servers)
}

var skipped = map[string]string{
	"repo_day":     "the repository has received its bytes of this day",
	"host_day":     "the server has sent its bytes of this day",
	"server_lacks": "it had none of these objects the last time, and the request is repeated later",
}

func (t *text) servers(all []purgatory.ServerState) {
	for _, s := range all {
		line := s.URL.String() + " was not asked yet"
		if !s.Asked.IsZero() {
			line = fmt.Sprintf("asked %s at %s: %s", s.URL, t.at(s.Asked), answer(s))
		}
		if s.Skipped != "" {
			line += "; not asked after that: " + cmp.Or(skipped[s.Skipped], s.Skipped)
		}
		switch {
		case s.Asking:
			line += "; a request is running"
		case !s.Until.IsZero():
			line += "; not asked again before " + t.at(s.Until)
		case s.Queued:
			line += "; other requests come first"
		}
		t.add("%s.", line)
	}
}

func answer(s purgatory.ServerState) string {
	switch {
	case s.Local:
		return "it answered, and this server failed to store the data: " + s.Error
	case s.Error != "":
		return s.Error
	case s.Missing == 0:
		return "it had all objects"
	case s.Missing < s.Wanted:
		return fmt.Sprintf("it had %d of %d objects", s.Wanted-s.Missing, s.Wanted)
	}
	return "not found: it has none of the objects"
}

func (t *text) git(a gitserve.About) {
	switch {
	case a.Here && a.Branches+a.Tags == 0:
		t.add("Its git repository has no branch and no tag yet (%s).", a.Dir)
	case a.Here:
		head := "no default branch"
		if a.HEAD != "" {
			head = "HEAD is " + a.HEAD
		}
		t.add("Its git repository has %s, %s, %s (%s).", plural(a.Branches, "branch", "branches"), plural(a.Tags, "tag", "tags"), head, a.Dir)
	case !a.Departed.IsZero():
		t.add("Its git repository is retired since %s because no stored event announces it, and is deleted a week later (%s).", t.at(a.Departed), a.Dir)
	default:
		t.add("It has no git repository here.")
	}
}
