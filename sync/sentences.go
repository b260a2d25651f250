package sync

import (
	"fmt"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// String says it in sentences, a line for each.
func (x EventExplanation) String() string { return strings.Join(x.Sentences(), "\n") }

// Sentences says what became of the event, for people: the most important first.
func (x EventExplanation) Sentences() []string {
	var s sentences
	s.now = x.Now
	id := "Event " + x.ID.String()
	if x.Event != nil && x.Event.Kind > 0 {
		id += fmt.Sprintf(" (kind %d)", x.Event.Kind)
	}
	switch x.Is {
	case IsStored:
		s.add(id + " is stored and served.")
		return s.lines
	case IsHeld:
		s.add(id + " is held back until what it names is here.")
	case IsInFlight:
		s.add(id + " is being looked at just now.")
	case IsFailing:
		s.add(id + " could not be judged or saved, and is tried again: " + orElse(x.reason() == "", "nothing more is known", x.reason()) + ".")
	case IsWaiting:
		s.add(id + " waits for something that is not here: " + orUnknown(x.Detail) + ".")
	case IsPostponed:
		s.add(id + " can't be taken in now: " + orUnknown(x.reason()) + ".")
	case IsRejected:
		s.add(id + " was rejected: " + orUnknown(x.reason()) + ".")
	case IsRefused:
		s.add(id + " was refused by this relay when it was to be stored: " + orUnknown(x.reason()) + ".")
	case IsSuperseded:
		s.add(id + orElse(x.Once, " was here, and has given way to a newer version.", " was not stored: a newer version of it is here."))
	case IsDeleted:
		s.add(id + " is deleted: its author asked for that.")
	case IsRemoved:
		s.add(id + " was removed from here, by moderation, by its expiry, or since what it waited for did not come.")
	case IsGone:
		s.add(id + " was here once, or a version of it, and is not any more.")
	default:
		s.add(x.unknown(id, s.at(x.Since)))
	}
	s.came(x)
	if x.NamedBy != (graspsync.EventID{}) {
		s.add("A deletion names it: " + x.NamedBy.String() + ". Whether that is by its author is not known.")
	}
	if x.DeletedBy != (graspsync.EventID{}) {
		s.add("The deletion is " + x.DeletedBy.String() + ".")
	}
	if x.Again {
		s.add(x.again())
	}
	switch {
	case x.Is == IsUnknown && x.Unread:
		s.add("What is stored was not read yet, and no relay is followed before that" + because(x.Why) + ".")
	case x.Is == IsUnknown:
		s.toAsk(x.Relays, x.StillToAsk)
	}
	return s.lines
}

// unknown says that nothing is known of it.
func (x EventExplanation) unknown(id, since string) string {
	switch {
	case x.Why != "":
		return "Whether " + id + " is here is not known."
	case x.Since.IsZero():
		return id + " is not here, and nothing is remembered of it: more came since the start than is remembered."
	}
	return id + " never came here since the start at " + since + ". Asked about its repository this may say more."
}

// again says what would have it judged again.
func (x EventExplanation) again() string {
	switch {
	case x.Is == IsWaiting:
		return "It is judged again when that has come."
	case x.Is == IsPostponed:
		return "It is judged again later, by itself."
	case strings.HasPrefix(x.Why, "blocked: announcement"):
		return "It stays out as it is. A newer version of it that lists us is taken, and so is this one once an announcement here lists its author as a maintainer."
	}
	return "It is judged again if what it was judged by changes."
}

// repoName is a repository as people write it.
func repoName(ref graspsync.RepoRef) string {
	return graspsync.Printable(nip34.NPub(ref.Owner) + "/" + ref.Identifier)
}

// reason is why, with what is particular.
func (x EventExplanation) reason() string {
	return graspsync.Verdict{Reason: x.Why, Detail: x.Detail}.Message()
}

func orUnknown(why string) string {
	if why == "" {
		return "the reason is not remembered any more"
	}
	return why
}

func orElse(is bool, text, otherwise string) string {
	if is {
		return text
	}
	return otherwise
}

// sentences collects lines for people, who look at now.
type sentences struct {
	now   time.Time
	lines []string
}

func (s *sentences) add(line string) { s.lines = append(s.lines, line) }

// at says when something is or was: the time of the day, and the day if it is another one.
func (s *sentences) at(t time.Time) string { return graspsync.TimeText(t, s.now) }

// came says how an event came, and when what is said of it was found. Of what was judged again these are two times.
func (s *sentences) came(x EventExplanation) {
	var how string
	switch {
	case x.Once: // what was said of it last is how it went, not how it came
	case !x.Relay.IsZero():
		how = "from " + x.Relay.String()
	case x.Source == graspsync.Direct.String() && x.Is != IsRemoved:
		how = "from a client"
	}
	switch {
	case how != "" && !x.At.IsZero():
		s.add("That was found at " + s.at(x.At) + "; it came " + how + ".")
	case how != "":
		s.add("It came " + how + ".")
	case !x.At.IsZero():
		s.add("That was found at " + s.at(x.At) + ".")
	}
}

// toAsk says which relays may still have it.
func (s *sentences) toAsk(relays int, still []ToBeAsked) {
	switch {
	case relays == 0:
		s.add("No relay is followed: no repository that is ours lists one, and there are no bootstrap relays.")
	case len(still) == 0:
		s.add(fmt.Sprintf("%s followed, and each was asked for all that we want of it: none of them gave it.", plural(relays, "relay is", "relays are")))
	default:
		most := ""
		if len(still) == mostToAsk {
			most = "at least "
		}
		s.add(fmt.Sprintf("%s followed; %s%s not answered all that we ask of it, and may have it:", plural(relays, "relay is", "relays are"), most, plural(len(still), "has", "have")))
		for _, r := range still {
			line := "  " + r.URL.String() + " " + r.standing()
			if !r.Next.IsZero() {
				line += "; next attempt at " + s.at(r.Next)
			}
			s.add(line + ".")
		}
	}
}

// standing says why not all is known of it.
func (r ToBeAsked) standing() string {
	switch r.Phase {
	case plan.Disconnected.String(), plan.Connecting.String():
		text := "is not connected"
		if r.Phase == plan.Connecting.String() {
			text = "is being connected to"
		}
		if r.Why != "" {
			text += " (last error: " + r.Why + ")"
		}
		return text
	case plan.Syncing.String():
		return "is being asked for what it has"
	}
	return "is connected, and the last of what it has is being asked for or taken in"
}

// String says it in sentences, a line for each.
func (x RepoExplanation) String() string { return strings.Join(x.Sentences(), "\n") }

// Sentences says why the repository is here, or is not, for people: the most important first.
func (x RepoExplanation) Sentences() []string {
	s := sentences{now: x.Now}
	repo := "Repository " + repoName(x.Ref)
	want := "Its announcement must list " + x.Want[0] + " among its relays and " + x.Want[1] + " among its clone URLs."
	switch x.Is {
	case RepoFollowed:
		s.add(repo + " is one of ours.")
		if x.Status != nil && x.Status.Level != levelFull {
			s.add("Its git data has just come: its states are followed, and all else is asked for in a few seconds.")
		}
	case RepoHeld:
		s.add(repo + " is announced, and is served when its git data is here. Until then only its states are followed.")
	case RepoStarting:
		s.add("It is not known yet what is stored: the store is being read" + because(x.Why) + ".")
	case RepoLeft:
		s.add(repo + " is not ours by its own announcement, which does not list us: " + x.Why + ".")
		if x.Kept {
			s.add("The announcement is kept all the same: a repository of ours with the same identifier lists its author as a maintainer.")
		}
	case RepoBlocked:
		s.add(repo + " is not ours: whoever runs this server has blocked it, or its owner.")
	case RepoDeleted:
		s.add(repo + " is not here: its owner has deleted it (" + x.Why + ").")
	case RepoRejected:
		s.add(repo + " is not here: its announcement was not stored: " + orUnknown(x.Why) + ".")
	default:
		s.add(repo + " is not here: no announcement of it came.")
		s.add(want)
	}
	if x.Announcement != nil {
		s.add("Its announcement is " + x.Announcement.ID.String() + ", " + string(x.Announcement.Is) + ".")
		if x.Announcement.Is != IsStored {
			s.came(*x.Announcement)
		}
	}
	if x.Status != nil {
		s.status(x.Status)
	} else if x.Is == RepoUnknown {
		s.toAsk(x.Relays, x.StillToAsk)
	}
	for _, l := range x.LeftOut {
		s.add("Left out: " + l.What + ": " + l.Why + ".")
	}
	if x.Waiting > 0 {
		s.add(plural(x.Waiting, "event waits", "events wait") + " for its announcement.")
	}
	for i, r := range x.Refused {
		if x.Announcement != nil && r.ID == x.Announcement.ID {
			continue
		}
		if i >= 5 {
			s.add(fmt.Sprintf("%d more of its announcements and states were not stored.", len(x.Refused)-i))
			break
		}
		if r.Is == IsRemoved {
			s.add(fmt.Sprintf("Removed, or given up, at %s: kind %d %s.", s.at(r.At), r.Event.Kind, r.ID))
			continue
		}
		s.add(fmt.Sprintf("Not stored: kind %d %s, %s at %s: %s.", r.Event.Kind, r.ID, r.Is, s.at(r.At), orUnknown(r.reason())))
	}
	return s.lines
}

// status says how it goes with a repository.
func (s *sentences) status(r *RepoStatus) {
	s.add(fmt.Sprintf("Stored here: %s that belong to it or to its %s, besides announcements and states.", plural(r.Ours, "event", "events"), plural(r.Roots, "patch, pull request or issue", "patches, pull requests and issues")))
	if len(r.Relays) == 0 {
		s.add("It is followed at no relay: its announcement lists no other one that may be.")
	}
	for _, rel := range r.Relays {
		line := fmt.Sprintf("%s is %s: %d of %d items are complete", rel.URL, rel.Phase, rel.Confirmed, rel.Wanted)
		if rel.Live {
			line += ", and all of it is followed live"
		}
		if rel.Lacks > 0 {
			line += fmt.Sprintf("; as of %s it lacked %s that we have", s.at(rel.ComparedAt), plural(rel.Lacks, "event", "events"))
		}
		if rel.Missed > 0 {
			line += fmt.Sprintf("; it brought %d late", rel.Missed)
		}
		s.add(line + ".")
	}
	for _, line := range r.Authority {
		s.add("Who has a say: " + line)
	}
}

// because adds why the store was not read yet, if it is known.
func because(storeError string) string {
	if storeError == "" {
		return ""
	}
	return " (the last try failed: " + storeError + ")"
}

// String says it in sentences, a line for each.
func (x RelayExplanation) String() string { return strings.Join(x.Sentences(), "\n") }

// Sentences says why the relay is followed, or is not, and how that goes, for people.
func (x RelayExplanation) Sentences() []string {
	s := sentences{now: x.Now}
	url := x.URL.String()
	switch why := strings.Join(x.Why, ", and "); x.Is {
	case RelayOurs:
		s.add(url + " is this server.")
		return s.lines
	case RelayFollowed:
		s.add(url + " is followed: " + why + ".")
	default:
		s.add(url + " is not followed: " + why + ".")
		if x.Listed > 0 {
			s.add(plural(x.Listed, "repository lists", "repositories list") + " it.")
		}
		return s.lines
	}
	r := x.Status
	if len(r.Examples) > 0 {
		var names []string
		for _, ref := range r.Examples {
			names = append(names, repoName(ref))
		}
		if more := r.Repos - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		s.add("Listed by: " + strings.Join(names, ", ") + ".")
	}
	phase := r.Phase
	if trouble := r.Trouble(); trouble != "" {
		phase += " (" + trouble + ")"
	}
	s.add(fmt.Sprintf("It is %s: %d of %d items are complete, %d under way.", phase, r.Confirmed, r.Wanted, r.InFlight))
	if r.LastError != "" {
		s.add("The last error: " + r.LastError + ".")
	}
	if !r.NextAttempt.IsZero() {
		before := ""
		if r.Attempts == 0 {
			before = ", since it was tried shortly before this server was started, or its record says to wait"
		}
		last := ""
		if !r.LastAttempt.IsZero() {
			last = ", the last one was at " + s.at(r.LastAttempt)
		}
		s.add("The next attempt is at " + s.at(r.NextAttempt) + before + last + ".")
	}
	if !r.RateLimitedUntil.IsZero() {
		s.add("It asked for fewer requests: none are sent before " + s.at(r.RateLimitedUntil) + ".")
	}
	if r.Method != "" && r.Phase != "disconnected" {
		s.add(fmt.Sprintf("History comes by %s; it is followed %s. It sent %s, copies included, of which %d were new to us.", r.Method, orNot(r.Following), plural(int(r.Events), "event", "events"), r.Stored)) //nolint:gosec // fewer
	}
	if r.GapBatches+r.Parked > 0 {
		s.add(fmt.Sprintf("%s ended with gaps, %d wait to be tried again.", plural(r.GapBatches, "batch", "batches"), r.Parked))
	}
	for _, l := range x.LeftOut {
		s.add("Left out: " + l.What + ": " + l.Why + ".")
	}
	return s.lines
}

// orNot is for how a relay is followed.
func orNot(following string) string {
	if following == "" {
		return "not yet"
	}
	return following
}

// plural is a number of things.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
