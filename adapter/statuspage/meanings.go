package statuspage

import "maps"

// reason is what was dropped, and whether it comes again.
type reason struct{ what, again string }

// meanings say what was dropped, by the reason that it is counted under. docs/metrics.md has the same
// reasons, and says more of some.
var meanings = map[string]map[string]reason{
	"sync": {
		"relays":               {"relays beyond the table of all", "when others are not listed any more"},
		"relays_listed":        {"relays beyond the first 16 of an announcement", "no: the first of a list count"},
		"relays_others":        {"relays that only others name whom the owner lists, beyond 16 of a repository", "no: each of them has some in turn"},
		"relays_unusable":      {"relays of announcements that nobody can connect to as they are written", "no: its author has to correct it"},
		"clones_unusable":      {"clone URLs of announcements that nobody can fetch from as they are written", "no: its author has to correct it"},
		"maintainers_unusable": {"maintainers of announcements who are no public keys", "no: its author has to correct it"},
		"clones_listed":        {"clone URLs beyond what is read of an announcement", "no: the first of a list count"},
		"maintainers_listed":   {"people beyond what is read of an announcement", "no: the first of a list count"},
		"blocked":              {"relays of announcements that the operator has blocked", "once the rule is lifted"},
		"plaintext":            {"relays that are reached without TLS, where that is not allowed", "no, unless plaintext is allowed"},
		"roots":                {"patches, pull requests and issues beyond 5,000 of a repository", "yes, in turns"},
		"authors":              {"authors beyond those whose deletions are asked for", "yes, in turns"},
		"descendants":          {"answers to answers beyond those that are asked about", "no, unless something else asks for them"},
		"filters":              {"filters that no request can hold", "no: ask other relays for these"},
		"poison":               {"values that a relay does not stand", "yes: tried again later"},
		"named":                {"ids beyond those asked for by name", "by the daily comparison"},
		"waiting":              {"events that waited for others and gave way", "yes"},
		"postponed":            {"events that there was no room for and that gave way", "yes"},
		"rejected":             {"events that were rejected, and are not remembered any more", "yes, to be rejected again"},
		"remembered":           {"of what is remembered: what gave way", "yes"},
		"unsaved":              {"events that could not be saved and had no room to wait", "yes"},
		"unproductive":         {"connections to relays that sent 8 MiB of what nobody asked for", "yes: after a pause"},
		"unlisted":             {"announcements that were removed since nobody lists their author any more", "once somebody lists them"},
		"not_dialed":           {"connections that our own rules refused, such as those to addresses that are not public", "no, unless it is allowed (-allow-net)"},
		"scans":                {"scans of our store that could not read everything", "yes: read again"},
		"own_feed_ids":         {"of our own relay: events with a wrong id", "no"},
		"own_feed_seconds":     {"of our own relay: seconds that hold more than a page", "no"},
		"observations":         {"observations that found the queue of the observer full", "no: only who watches misses them"},
		"health":               {"records of relays' health beyond their bound", "learned again"},
		"memory_chunks":        {"records that are to survive a restart, beyond their bound", "learned again, after a restart"},
		"memory_queue":         {"records that were not written in time", "learned again, after a restart"},
		"memory_size":          {"records that are too large", "learned again, after a restart"},
		"memory_unreadable":    {"records that could not be read", "learned again"},
	},
	"purgatory": {
		"author":          {"events of an author of whom 100 wait already", "yes, when one of theirs has ended"},
		"full":            {"events that found all places taken", "yes, when there is room"},
		"listed":          {"strangers' announcements that nobody pays for", "yes, when there is room"},
		"displaced":       {"events that gave way to others", "yes, when there is room"},
		"hunts":           {"repositories beyond those that are hunted for", "yes, when others are done"},
		"inbox":           {"messages to the engine beyond its queue: it looks at everything then", "yes: everything is looked at"},
		"gathered":        {"what was fetched, is not complete, and had no room", "yes"},
		"lacking":         {"of what servers are known to lack: what gave way", "learned again"},
		"clones":          {"clone URLs beyond 16 of an event", "no: the first of a list count"},
		"clones_turns":    {"clone URLs beyond those that a repository is hunted at together", "yes, in turns"},
		"clones_unusable": {"clone URLs of events that nobody can fetch from as they are written", "no: its author has to correct it"},
		"repositories":    {"repositories of one name beyond those looked at together", "no"},
		"kept":            {"of what was learned of servers: what was beyond the bound", "learned again"},
		"remembered":      {"ids that expired, beyond those that are remembered", "learned again"},
		"unsaved":         {"requests that were not made since they could not be noted", "yes: tried again"},
		"failed_here":     {"requests that were not made, or whose answers were not taken in, since git or the disk failed here", "yes: tried again"},
		"gave_way":        {"requests to servers that took more than a minute, and were ended while others waited", "yes: tried again"},
		"repo_day":        {"requests beyond the bytes of a day for a repository", "yes, within a day"},
		"host_day":        {"requests beyond the bytes of a day from a server", "yes, within a day"},
		"ceiling":         {"what had no room of its owner's, or on the disk", "yes, when there is room"},
		"busy":            {"requests that a server was too busy for", "yes: tried again"},
		"pull_refs":       {"refs of pull requests that had no room", "yes, when there is room"},
		"pull_displaced":  {"refs of pull requests that were removed for others", "no"},
		"pull_unswept":    {"refs of pull requests that come when others have gone", "yes, when others have gone"},
		"incomplete":      {"uploads without all their objects", "no: they have to be pushed again"},
		"departed":        {"repositories that went out of service", "within a week, if it is announced again"},
		"maintenance":     {"repositories that could not be listed for maintenance", "yes: in the next turn"},
	},
}

// meaning is what a reason means; nothing is said of one that is new.
func meaning(part, name string) string { return meanings[part][name].what }

// again says whether what was dropped by a reason is asked for again, or comes by itself.
func again(part, name string) string { return meanings[part][name].again }

// withAll adds the reasons by which nothing was dropped: what may be counted is known before it is.
func withAll(part string, counts map[string]uint64) map[string]uint64 {
	all := make(map[string]uint64, len(meanings[part]))
	for name := range meanings[part] {
		all[name] = 0
	}
	maps.Copy(all, counts)
	return all
}
